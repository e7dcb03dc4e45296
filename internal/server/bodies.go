package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/rpc"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// freeBody and freeCompressed are how much of a body, and of a compressed one, is read without a lease, in bytes.
	freeBody, freeCompressed = 16 << 10, 512
	// maxBody is the most that the services and the web app read of a body, in bytes.
	maxBody = rpc.MaxRequest
	// copies is how many times a handler has a body in memory at worst: the buffer as it grows, and the message.
	copies = 3
	// bodyWait is how long a request waits for memory.
	bodyWait = 20 * time.Second
)

// bodies bounds the memory of requests' bodies, for handlers that read a body whole before they know whose it is.
type bodies struct {
	// who authenticates the request's credential, as [auth.Auth.Request] does.
	who func(context.Context, http.Header) (auth.Principal, error)
	// memory is what all large bodies take together, and those of one agent.
	memory *httpd.Memory
}

// bound returns next with bounded bodies: more than a small part of one is read only when the request's credential is
// good, and when there is memory for it. Otherwise reading fails with what refuse makes of the reason. The body of a
// request that shows no credential is bounded by [maxStrangersBody] already.
func (b bodies) bound(next http.Handler, refuse func(context.Context, http.ResponseWriter, *fault.Error) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, _ := auth.Credential(r.Header); token == "" || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if rpc.StreamsAnswer(r.URL.Path) { // a lease would last as long as the answer
			bounded := *r
			bounded.Body = http.MaxBytesReader(w, r.Body, rpc.MaxStreamRequest)
			next.ServeHTTP(w, &bounded)
			return
		}
		in := &boundBody{ReadCloser: r.Body, bodies: b, request: r, free: freeBody, size: maxBody}
		in.refuse = func(f *fault.Error) error { return refuse(r.Context(), w, f) }
		if r.ContentLength > 0 {
			in.size = min(r.ContentLength, maxBody)
		}
		for _, header := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
			if coding := r.Header.Get(header); coding != "" && coding != "identity" {
				in.free, in.size, in.compressed = freeCompressed, maxBody, true
			}
		}
		defer func() { in.lease.Release() }()
		bounded := *r
		bounded.Body = in
		next.ServeHTTP(w, &bounded)
	})
}

// boundBody is the body of one request.
type boundBody struct {
	io.ReadCloser
	bodies  bodies
	refuse  func(*fault.Error) error
	request *http.Request
	// free is how much may still be read without a lease, and size how large the body can be in memory.
	free, size int64
	compressed bool
	got        int64
	lease      *httpd.Lease
	err        error
}

func (b *boundBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.lease == nil {
		if left := b.free - b.got; left > 0 {
			p = p[:min(int64(len(p)), left)]
		} else if b.got < b.request.ContentLength || b.request.ContentLength < 0 {
			if b.err = b.enter(); b.err != nil {
				return 0, b.err
			}
		}
	}
	n, err := b.ReadCloser.Read(p)
	b.got += int64(n)
	if errors.Is(err, io.EOF) && b.lease != nil && !b.compressed {
		b.lease.Shrink(copies * b.got)
	}
	return n, err
}

// enter takes the memory for the whole body.
func (b *boundBody) enter() error {
	ctx, cancel := context.WithTimeout(b.request.Context(), bodyWait)
	defer cancel()
	p, err := b.bodies.who(ctx, b.request.Header)
	if err == nil {
		if b.lease, err = b.bodies.memory.Take(ctx, p.Agent, copies*b.size); err == nil {
			return nil
		}
		err = fault.New(fault.Unavailable, "too many large requests are under way", "try again in a moment, with fewer at a time").Because(err)
	}
	return b.refuse(fault.From(err))
}

// refuseCall makes an error that Connect answers as it is, of a body that is not read.
func refuseCall(ctx context.Context, w http.ResponseWriter, f *fault.Error) error {
	w.Header().Del(arbev1.NextHeader) // what it says of a body that is not understood
	return rpc.WireError(ctx, f)
}

// refuseForm makes an error that the web app answers as it is, of a body that is not read.
func refuseForm(_ context.Context, _ http.ResponseWriter, f *fault.Error) error { return f }
