package arbe_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// token is the credential that the scripted server accepts.
const token = "arbe_0123456789abcdef"

// A scriptedServer keeps the contract of EntryService.Tail over a log in memory, except where a test
// scripts a failure: the failures of a real server cannot be timed to the byte.
type scriptedServer struct {
	arbev1connect.UnimplementedEntryServiceHandler
	// threads, unless nil, serves commands.
	threads arbev1connect.ThreadServiceHandler
	// onCall, unless nil, is called first in every call of Tail. An error ends the call.
	onCall func(ctx context.Context, call int) error
	// onSend, unless nil, is called before each event is sent. An error ends the call.
	onSend func(call int, event *arbev1.TailResponse) error

	mu      sync.Mutex
	calls   int
	entries []*arbev1.Entry
	changed chan struct{}
}

// errEnd makes the scripted server end a call without an error.
var errEnd = errors.New("end")

// serve starts the server and returns a client with the credential that it accepts.
func serve(t *testing.T, s *scriptedServer) *arbe.Client {
	t.Helper()
	return serveAs(t, s, token)
}

// serveAs is serve for a client with another credential.
func serveAs(t *testing.T, s *scriptedServer, credential string) *arbe.Client {
	t.Helper()
	s.changed = make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle(arbev1connect.NewEntryServiceHandler(s))
	if s.threads != nil {
		mux.Handle(arbev1connect.NewThreadServiceHandler(s.threads))
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return arbe.New(srv.URL+"/", credential, arbe.WithHTTPClient(srv.Client()))
}

// write adds n entries to the log.
func (s *scriptedServer) write(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.entries = append(s.entries, &arbev1.Entry{Seq: int64(len(s.entries) + 1), Type: "chat", Payload: `{"text":"hi"}`})
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// behind returns the entries after a position, and a channel that is closed when more are written.
func (s *scriptedServer) behind(seq int64) ([]*arbev1.Entry, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.entries[seq:]), s.changed
}

func (s *scriptedServer) Tail(ctx context.Context, req *arbev1.TailRequest, stream *connect.ServerStream[arbev1.TailResponse]) error {
	s.mu.Lock()
	s.calls++
	call := s.calls
	s.mu.Unlock()
	if s.onCall != nil {
		if err := s.onCall(ctx, call); err == errEnd {
			return nil
		} else if err != nil {
			return err
		}
	}
	send := func(event *arbev1.TailResponse) error {
		if s.onSend != nil {
			if err := s.onSend(call, event); err != nil {
				return err
			}
		}
		return stream.Send(event)
	}
	alive := time.NewTicker(20 * time.Millisecond)
	defer alive.Stop()
	for seq, caughtUp := req.GetAfter(), false; ; {
		entries, changed := s.behind(seq)
		for _, e := range entries {
			if req.GetTyped() {
				e = proto.CloneOf(e)
				e.Typed = &arbev1.Entry_Chat{Chat: &arbev1.Chat{Text: "hi"}}
			}
			if err := send(entryEvent(e)); err != nil {
				return err
			}
			seq = e.GetSeq()
		}
		if !caughtUp {
			caughtUp = true
			if err := send(&arbev1.TailResponse{Event: &arbev1.TailResponse_CaughtUp{CaughtUp: &arbev1.CaughtUp{Seq: seq}}}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-alive.C:
			if err := send(&arbev1.TailResponse{Event: &arbev1.TailResponse_Alive{Alive: &arbev1.Alive{}}}); err != nil {
				return err
			}
		}
	}
}

func entryEvent(e *arbev1.Entry) *arbev1.TailResponse {
	return &arbev1.TailResponse{Event: &arbev1.TailResponse_Entry{Entry: e}}
}
