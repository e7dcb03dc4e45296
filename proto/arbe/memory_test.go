//go:build go1.25

package arbe_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/arbe-dev/arbe/proto/arbe"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// onFakeClock runs a test on a clock that moves only when every goroutine waits, so that the times that it measures do not
// depend on the machine. Such a test cannot use a network, so its server must be from serveInMemory.
func onFakeClock(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// serveInMemory is serve without a network.
func serveInMemory(s *scriptedServer) *arbe.Client {
	s.changed = make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle(arbev1connect.NewEntryServiceHandler(s))
	return arbe.New("http://memory", token, arbe.WithHTTPClient(&http.Client{Transport: memory{mux}}))
}

// memory passes requests to a handler in this process.
type memory struct{ handler http.Handler }

func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, leave := context.WithCancel(r.Context())
	body, to := io.Pipe()
	w := &memoryWriter{header: http.Header{}, to: to, began: make(chan struct{})}
	context.AfterFunc(ctx, func() { to.CloseWithError(ctx.Err()) })
	go func() {
		defer leave()
		request := r.Clone(ctx)
		request.RequestURI = r.URL.RequestURI()
		m.handler.ServeHTTP(w, request)
		w.WriteHeader(http.StatusOK)
		if r.Body != nil {
			r.Body.Close()
		}
		to.Close()
	}()
	select {
	case <-w.began:
	case <-ctx.Done():
		// The handler may have answered and returned at once.
		select {
		case <-w.began:
		default:
			return nil, ctx.Err()
		}
	}
	return &http.Response{
		StatusCode: w.status, Header: w.header, Request: r, ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: &memoryBody{body, leave},
	}, nil
}

// memoryWriter is the answer to one request.
type memoryWriter struct {
	header http.Header
	to     *io.PipeWriter
	once   sync.Once
	status int
	began  chan struct{} // closed when the header is written
}

func (w *memoryWriter) Header() http.Header { return w.header }

func (w *memoryWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status = status
		close(w.began)
	})
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.to.Write(bytes.Clone(p))
}

// Flush implements [http.Flusher]; nothing is kept back.
func (w *memoryWriter) Flush() { w.WriteHeader(http.StatusOK) }

// memoryBody is the body of an answer. Closing it ends the request.
type memoryBody struct {
	*io.PipeReader
	leave context.CancelFunc
}

func (b *memoryBody) Close() error {
	b.leave()
	return b.PipeReader.Close()
}
