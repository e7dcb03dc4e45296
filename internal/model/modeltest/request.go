package modeltest

import (
	"net/http"
	"slices"
	"strings"
)

// Dialect is a protocol of models.
type Dialect string

// The dialects.
const (
	Chat      Dialect = "chat"      // POST /v1/chat/completions
	Messages  Dialect = "messages"  // POST /v1/messages
	Responses Dialect = "responses" // POST /v1/responses
	Gemini    Dialect = "gemini"    // POST /v1beta/models/MODEL:streamGenerateContent
)

// Request is one call of a model.
type Request struct {
	Dialect Dialect
	Model   string
	// Key is the key of the request, whatever the header; empty if it has none.
	Key    string
	Header http.Header
	// Body is the body as it was received.
	Body []byte
	// System is the system prompt, and Messages are the messages after it.
	System   string
	Messages []Message
	// Tools are the names of the tools.
	Tools []string
	// Encrypted reports that a request of responses stores nothing and wants encrypted reasoning.
	Encrypted bool
	// Seen is the number of earlier requests for the same model.
	Seen int
	// Gone is closed when the request is over: answered, or left by its client.
	Gone <-chan struct{}
}

// Message is one message of a [Request]. Messages that a dialect merges are separate: each tool result is its own
// message.
type Message struct {
	// Role is "user", "assistant" or "tool".
	Role string
	Text string
	// Thinking is an assistant's thinking, if the client sent it, and Proof its signature or encrypted content.
	Thinking, Proof string
	// Calls are the tool calls of an assistant.
	Calls []Call
	// CallID is the call whose result a tool message is. IsError reports a failure, in dialects that can say so.
	CallID  string
	IsError bool
}

// Last returns the last message; the zero Message if there is none.
func (r *Request) Last() Message {
	if len(r.Messages) == 0 {
		return Message{}
	}
	return r.Messages[len(r.Messages)-1]
}

// Asked returns the text of the last message of a user.
func (r *Request) Asked() string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" {
			return m.Text
		}
	}
	return ""
}

// Call is a tool call.
type Call struct {
	// ID is chosen by the server if it is empty.
	ID   string
	Name string
	// Arguments is JSON text, or the text that a model writes instead.
	Arguments string
}

// keyOf returns the key of a request, whatever the header.
func keyOf(h http.Header) string {
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if key := h.Get(name); key != "" {
			return key
		}
	}
	return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
}
