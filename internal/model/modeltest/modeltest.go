// Package modeltest is a scripted model server for tests: real HTTP on a loopback address, in the four dialects that
// models speak (chat/completions, messages, responses and Gemini's), with the events that the real services stream.
//
// Its answers depend on the model's name (see [ByName]), or on a [Script] of the test, which sees each [Request] and
// can therefore write turns of many steps. It never sleeps: a channel holds an answer that must not continue. Other
// processes can use it by its URL.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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

// offer has the models that a server lists, and the keys that it accepts.
type offer struct {
	keys   []string // empty if it accepts any key, or none
	models []string
}

// Script returns the server's reply to a request. It may be called concurrently.
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
