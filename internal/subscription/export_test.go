package subscription

import "net/http"

// Transport is what webhooks are called through.
func (s *Subscriptions) Transport() *http.Transport { return s.client.Transport.(*http.Transport) }
