package fault

import (
	"encoding/json"
	"net/http"
)

// Body is an error in the JSON of an HTTP response. A door whose protocol has further fields embeds it.
type Body struct {
	Code      Code   `json:"code"`
	Reason    Reason `json:"reason"`
	Message   string `json:"message"`
	Next      string `json:"next"`
	Reference string `json:"reference,omitempty"`
}

// Body returns everything that a person may know about the error: all but its cause.
func (e *Error) Body() Body { return Body{e.Code, e.Reason(), e.Message, e.Next, e.Reference} }

// BodyFor returns the error for the response to a request: [Error.Body], with the next step for its client.
func (e *Error) BodyFor(r *http.Request) Body {
	body := e.Body()
	body.Next = e.NextFor(r)
	return body
}

// Answer answers an HTTP request with {"error": body}, where body is a [Body] or embeds one, and with the headers that
// go with code: how to authenticate, or when to try again. It keeps the other headers of w. A HEAD request gets no body.
func Answer(w http.ResponseWriter, r *http.Request, status int, code Code, body any) {
	text, _ := json.Marshal(map[string]any{"error": body}) // texts and numbers can always be encoded
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch code {
	case Unauthenticated:
		h.Set("WWW-Authenticate", "Bearer")
	case Unavailable:
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // an error is ignored, because a client that has left needs no answer
	}
}
