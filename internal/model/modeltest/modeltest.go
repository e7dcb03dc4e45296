// Package modeltest is a scripted model server for tests: real HTTP on a loopback address, in the four dialects that
// models speak (chat/completions, messages, responses and Gemini's), with the events that the real services stream.
//
// Its answers depend on the model's name (see [ByName]), or on a [Script] of the test, which sees each [Request] and
// can therefore write turns of many steps. It never sleeps: a channel holds an answer that must not continue. Other
// processes can use it by its URL.
package modeltest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Server is a running model server. Its methods may be called concurrently.
type Server struct {
	// URL is its base URL without a path. Anthropic's clients use it unchanged; those of chat and responses append /v1.
	URL string

	http   *httptest.Server
	script Script
	stop   context.CancelFunc
	done   context.Context
	step   chan struct{}

	mu       sync.Mutex
	offer    offer
	asked    int
	requests []*Request
	arrived  chan struct{} // closed and replaced at each request
}

// Script says what the server replies to a request. It may be called concurrently.
type Script func(*Request) Reply

// New starts a server that ends with the test. A nil script is [ByName].
func New(t testing.TB, script Script) *Server {
	t.Helper()
	s := Start(script)
	t.Cleanup(s.Close)
	return s
}

// Start starts a server, which the caller closes. A nil script is [ByName].
func Start(script Script) *Server {
	s := &Server{script: script, step: make(chan struct{}), arrived: make(chan struct{})}
	if script == nil {
		s.script = ByName
	}
	s.done, s.stop = context.WithCancel(context.Background())
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = s.http.URL
	return s
}

// Close ends held answers and the server.
func (s *Server) Close() {
	s.stop()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Step lets one held answer write its next part. It waits until there is such an answer.
func (s *Server) Step(ctx context.Context) error {
	select {
	case s.step <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Requests returns the requests for models so far, oldest first.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Await waits for n requests and returns the n-th.
func (s *Server) Await(ctx context.Context, n int) (*Request, error) {
	for {
		s.mu.Lock()
		arrived, requests := s.arrived, s.requests
		s.mu.Unlock()
		if len(requests) >= n {
			return requests[n-1], nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("modeltest: %d of %d requests came: %w", len(requests), n, ctx.Err())
		}
	}
}

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
	// Arguments is JSON text, or what a model writes instead.
	Arguments string
}

// Usage counts tokens. Input does not overlap with the caches, and Output includes Reasoning.
type Usage struct{ Input, Output, CacheRead, CacheWrite, Reasoning int }

// DefaultUsage is the usage of an answer whose reply has none.
var DefaultUsage = Usage{Input: 100, Output: 20}

// DefaultProof is the proof of thinking if a reply has none.
const DefaultProof = "c2lnbmF0dXJl"

// Reply is the server's reaction to a request. The zero Reply is an empty answer.
type Reply struct {
	// Status is the HTTP status of a refused request, which Error then explains; 0 means that the request is answered.
	Status int
	Header map[string]string
	Error  Error

	// Thinking comes first, then Text, then Calls. Text is sent in parts that end at its spaces.
	Thinking string
	Text     string
	Calls    []Call
	// Proof is the proof of Thinking: a signature or, on request, encrypted content. Defaults to [DefaultProof].
	// Redacted is thinking that only the proof shows, in the dialects that have that.
	Proof    string
	Redacted bool
	// Refusal is the text with which the model refuses.
	Refusal string
	// Stop is why the answer ends; empty means the dialect's ordinary reason.
	Stop  Stop
	Usage *Usage

	// Hold makes each part after the first, or the cut there, wait for [Server.Step]. HoldHeaders makes the response itself wait for it.
	Hold        bool
	HoldHeaders bool
	// Before is called before each part is written, with its number from 1, and the part waits until it returns. Nil is none.
	Before func(part int)
	// Endless repeats Text until the client leaves.
	Endless bool
	// Cut closes the connection before the part of that number; 1 is the first part, and -1 closes it before the response.
	Cut int
	// Fail ends the answer after its parts with an error in the stream.
	Fail *Error
	// Garbage is sent unchanged instead of the answer, with ContentType (text/event-stream if empty).
	Garbage     string
	ContentType string
	// Stream writes the answer instead of the server, piece by piece. write returns false once nobody reads it.
	Stream func(write func(piece string) bool)
}

// Error is a provider's error.
type Error struct{ Type, Code, Message string }

// Stop is why an answer ends.
type Stop string

// The reasons that differ from the ordinary one.
const (
	// StopLength: the limit of tokens was reached.
	StopLength Stop = "length"
	// StopFilter: a filter of the provider ended it.
	StopFilter Stop = "filter"
	// StopPlain: an ordinary end, even after tool calls. Some servers of the chat dialect do that.
	StopPlain Stop = "plain"
)

// ByName is the default script. The model's name selects the reply:
//
//   - fake-answer: repeats the last message of the user.
//   - fake-tool~NAME, fake-tool~A~B: calls the tools NAME, or A and B at once, with the last message of the user as
//     arguments if it is a JSON object, and else with {}. When their results come, it answers with them.
//   - fake-slow: as fake-answer, but each part after the first waits for [Server.Step]. fake-silent: as fake-slow, and
//     the response itself waits as well.
//   - fake-reasoning: thinks, then answers. fake-length: answers, and is ended by the limit.
//   - fake-429, fake-429~SECONDS: refuses the first request, without and with a Retry-After, and answers all others.
//   - fake-500, fake-529, fake-401, fake-404: refuses as a broken, an overloaded server, with a wrong key, or because
//     there is no such model.
//   - fake-overflow, fake-nomoney: refuses because of too much context, or no money.
//   - fake-cut: closes the connection within the answer; fake-cut~1 before its first part, fake-cut~-1 before the response.
//   - fake-fail: reports an overload within the answer. fake-refusal: the model refuses.
//   - fake-garbage: sends no JSON, and fake-garbage~html a page of a web site. fake-endless: never ends.
//
// Any other model behaves like fake-answer, so that names with prices can be used.
func ByName(r *Request) Reply {
	name, argument, _ := strings.Cut(r.Model, "~")
	text := r.Asked()
	switch name {
	case "fake-tool":
		if last := r.Last(); last.Role == "tool" {
			var results []string
			for _, m := range slices.Backward(r.Messages) {
				if m.Role != "tool" {
					break
				}
				results = append([]string{m.Text}, results...)
			}
			return Reply{Text: "The tools said: " + strings.Join(results, ", ")}
		}
		arguments := "{}"
		if json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{") {
			arguments = text
		}
		var calls []Call
		for tool := range strings.SplitSeq(argument, "~") {
			calls = append(calls, Call{Name: tool, Arguments: arguments})
		}
		return Reply{Text: "I will use a tool.", Calls: calls}
	case "fake-slow":
		return Reply{Text: text, Hold: true}
	case "fake-silent":
		return Reply{Text: text, Hold: true, HoldHeaders: true}
	case "fake-reasoning":
		return Reply{Thinking: "Let me think.", Text: text, Usage: &Usage{Input: 100, Output: 50, Reasoning: 30}}
	case "fake-length":
		return Reply{Text: text, Stop: StopLength}
	case "fake-429":
		if r.Seen > 0 {
			return Reply{Text: text}
		}
		reply := Refused(r.Dialect, 429)
		if argument != "" {
			reply.Header = map[string]string{"Retry-After": argument}
		}
		return reply
	case "fake-500":
		return Refused(r.Dialect, 500)
	case "fake-529":
		return Refused(r.Dialect, 529)
	case "fake-401":
		return Refused(r.Dialect, 401)
	case "fake-404":
		return Refused(r.Dialect, 404)
	case "fake-overflow":
		if r.Dialect == Messages {
			return Reply{Status: 400, Error: Error{Type: "invalid_request_error", Message: "prompt is too long: 200000 tokens > 128000 maximum"}}
		}
		return Reply{Status: 400, Error: Error{Type: "invalid_request_error", Code: "context_length_exceeded",
			Message: "This model's maximum context length is 128000 tokens. However, your messages resulted in 200000 tokens. Please reduce the length of the messages."}}
	case "fake-nomoney":
		if r.Dialect == Messages {
			return Reply{Status: 400, Error: Error{Type: "invalid_request_error", Message: "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}
		}
		return Reply{Status: 429, Error: Error{Type: "insufficient_quota", Code: "insufficient_quota", Message: "You exceeded your current quota, please check your plan and billing details."}}
	case "fake-cut":
		reply := Reply{Text: text + " and more", Cut: 2}
		if at, err := strconv.Atoi(argument); err == nil {
			reply.Cut = at
		}
		return reply
	case "fake-fail":
		return Reply{Text: text, Fail: &Error{Type: "overloaded_error", Code: "server_error", Message: "Overloaded"}}
	case "fake-refusal":
		if r.Dialect == Messages {
			return Reply{Stop: StopFilter}
		}
		return Reply{Refusal: "I cannot help with that."}
	case "fake-garbage":
		if argument == "html" {
			return Reply{Garbage: "<html><body>Welcome to nginx!</body></html>", ContentType: "text/html"}
		}
		return Reply{Garbage: "event: message_start\ndata: {]\n\n"}
	case "fake-endless":
		return Reply{Text: "again and ", Endless: true}
	}
	return Reply{Text: text}
}

// Refused returns the refusal with which a provider of the dialect answers a request with an HTTP status: 401, 404, 429,
// 500 or 529.
func Refused(d Dialect, status int) Reply {
	openai := map[int]Error{
		401: {"invalid_request_error", "invalid_api_key", "Incorrect API key provided. You can find your API key at https://platform.openai.com/account/api-keys."},
		404: {"invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."},
		429: {"requests", "rate_limit_exceeded", "Rate limit reached for requests per min. Please try again later."},
		500: {"server_error", "", "The server had an error while processing your request. Sorry about that!"},
		529: {"server_error", "", "The engine is currently overloaded, please try again later"},
	}
	anthropic := map[int]Error{
		401: {"authentication_error", "", "invalid x-api-key"},
		404: {"not_found_error", "", "model: fake-404"},
		429: {"rate_limit_error", "", "This request would exceed your organization's rate limit."},
		500: {"api_error", "", "Internal server error"},
		529: {"overloaded_error", "", "Overloaded"},
	}
	google := map[int]Error{
		401: {"UNAUTHENTICATED", "", "Request had invalid authentication credentials."},
		404: {"NOT_FOUND", "", "models/fake-404 is not found for API version v1beta, or is not supported for generateContent."},
		429: {"RESOURCE_EXHAUSTED", "", "Resource has been exhausted (e.g. check quota)."},
		500: {"INTERNAL", "", "An internal error has occurred. Please retry."},
		503: {"UNAVAILABLE", "", "The model is overloaded. Please try again later."},
	}
	switch d {
	case Messages:
		return Reply{Status: status, Error: anthropic[status]}
	case Gemini:
		if status == 529 {
			status = 503
		}
		return Reply{Status: status, Error: google[status]}
	}
	if status == 529 { // only Anthropic has this status
		return Reply{Status: 503, Error: openai[529]}
	}
	return Reply{Status: status, Error: openai[status]}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if s.list(w, r) {
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return
	}
	request := &Request{Header: r.Header.Clone(), Body: body, Key: keyOf(r.Header)}
	path := strings.TrimPrefix(r.URL.Path, "/v1")
	if id, found := strings.CutPrefix(r.URL.Path, "/v1beta/models/"); found {
		id, path, _ = strings.Cut(id, ":")
		request.Model = id
	}
	switch path {
	case "streamGenerateContent":
		request.Dialect, err = Gemini, request.readGemini()
	case "/chat/completions":
		request.Dialect, err = Chat, request.readChat()
	case "/messages":
		request.Dialect, err = Messages, request.readMessages()
	case "/responses":
		request.Dialect, err = Responses, request.readResponses()
	default:
		http.NotFound(w, r)
		return
	}
	if !s.accepts(w, r, request.Dialect) {
		return
	}
	if err == nil && request.Model == "" {
		s.mu.Lock()
		s.asked++
		s.mu.Unlock()
		err = errors.New("model: Field required")
	}
	if err != nil {
		refuse(w, request.Dialect, Reply{Status: 400, Error: Error{Type: "invalid_request_error", Message: err.Error()}})
		return
	}
	gone := make(chan struct{})
	defer close(gone)
	request.Gone = gone

	s.mu.Lock()
	for _, earlier := range s.requests {
		if earlier.Model == request.Model {
			request.Seen++
		}
	}
	s.requests = append(s.requests, request)
	close(s.arrived)
	s.arrived = make(chan struct{})
	s.mu.Unlock()

	s.reply(w, r, request, s.script(request))
}

func (s *Server) reply(w http.ResponseWriter, r *http.Request, request *Request, reply Reply) {
	wait := func() bool {
		select {
		case <-s.step:
			return true
		case <-r.Context().Done():
		case <-s.done.Done():
		}
		return false
	}
	if reply.HoldHeaders && !wait() {
		return
	}
	for name, value := range reply.Header {
		w.Header().Set(name, value)
	}
	switch {
	case reply.Cut < 0:
		panic(http.ErrAbortHandler)
	case reply.Status != 0:
		refuse(w, request.Dialect, reply)
		return
	case reply.Garbage != "":
		w.Header().Set("Content-Type", reply.ContentType)
		if reply.ContentType == "" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		io.WriteString(w, reply.Garbage) //nolint:errcheck // the client has left
		return
	case reply.Stream != nil:
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		reply.Stream(func(piece string) bool {
			_, err := io.WriteString(w, piece)
			return err == nil && flush.Flush() == nil && r.Context().Err() == nil && s.done.Err() == nil
		})
		return
	}
	if reply.Usage == nil {
		reply.Usage = &DefaultUsage
	}
	for i := range reply.Calls {
		if reply.Calls[i].ID == "" {
			reply.Calls[i].ID = fmt.Sprintf("call_%d_%d", len(s.Requests()), i)
		}
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	parts := 0
	e := emitter{request: request, reply: reply, usage: *reply.Usage, send: func(event string, data any) bool {
		if event != "" && request.Dialect != Chat {
			fmt.Fprintf(w, "event: %s\n", event)
		}
		text, isText := data.(string)
		if !isText {
			encoded, err := json.Marshal(data)
			if err != nil {
				panic(err) // these types can always be encoded
			}
			text = string(encoded)
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
			return false
		}
		return flush.Flush() == nil && r.Context().Err() == nil && s.done.Err() == nil
	}, next: func() bool {
		if reply.Hold && parts > 0 && !wait() {
			return false
		}
		if reply.Cut > 0 && parts+1 >= reply.Cut {
			panic(http.ErrAbortHandler)
		}
		parts++
		if reply.Before != nil {
			reply.Before(parts)
		}
		return true
	}}
	switch request.Dialect {
	case Chat:
		e.chat()
	case Messages:
		e.messages()
	case Responses:
		e.responses()
	case Gemini:
		e.gemini()
	}
}

// refuse answers with an error in the dialect.
func refuse(w http.ResponseWriter, d Dialect, reply Reply) {
	w.Header().Set("Content-Type", cmp.Or(reply.ContentType, "application/json"))
	w.WriteHeader(reply.Status)
	if reply.Garbage != "" {
		io.WriteString(w, reply.Garbage) //nolint:errcheck // the client has left
		return
	}
	json.NewEncoder(w).Encode(wireError(d, reply.Error)) //nolint:errcheck // the client has left
}

func wireError(d Dialect, e Error) any {
	if d == Gemini {
		return object{"error": object{"code": 503, "status": e.Type, "message": e.Message}}
	}
	if d == Messages {
		return object{"type": "error", "error": object{"type": e.Type, "message": e.Message}, "request_id": "req_1"}
	}
	return object{"error": object{"message": e.Message, "type": e.Type, "param": nil, "code": orNull(e.Code)}}
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}
