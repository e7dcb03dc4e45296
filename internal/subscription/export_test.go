package subscription

import "net/http"

// Transport returns the transport of calls to webhooks.
func (s *Subscriptions) Transport() *http.Transport { return s.client.Transport.(*http.Transport) }
