package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/gateway"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/rpc"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// freeBody is how many bytes of a body may be read without a lease of memory, and freeCompressed how many of a compressed
	// body. The latter is smaller, because decompression can multiply the size.
	freeBody, freeCompressed = 16 << 10, 512
	// maxBody limits the bodies that the services and the web app read, in bytes.
	maxBody = rpc.MaxRequest
	// copies is the number of copies of a body that a handler may have in memory: the growing buffer, its old copy, and the
	// message.
	copies = 3
	// bodyWait limits how long a request waits for memory.
	bodyWait = 20 * time.Second
)

// bodies limits the memory for request bodies, for handlers that read a whole body before they authenticate.
type bodies struct {
	// who authenticates a request, as [auth.Auth.Request] does.
	who func(context.Context, http.Header) (auth.Principal, error)
	// memory limits the memory of all large bodies together, and of the large bodies of one agent.
	memory *httpd.Memory
}

// bound returns next with limited bodies. It reads more than a small part of a body only if the request's credential is valid
// and memory is free. Otherwise, reading fails with refuse's error. [maxStrangersBody] already limits the body of a request
// without a credential.
func (b bodies) bound(next http.Handler, refuse func(context.Context, http.ResponseWriter, *fault.Error) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, _ := auth.Credential(r.Header); token == "" || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		// A lease would last as long as the answer, perhaps for hours. These messages must be small instead.
		if rpc.StreamsAnswer(r.URL.Path) {
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
	// free is how much may be read without a lease, and size is the most memory that the body can take, both in bytes.
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

// enter authenticates the request and leases the memory for its whole body.
func (b *boundBody) enter() error {
	ctx, cancel := context.WithTimeout(b.request.Context(), bodyWait)
	defer cancel()
	p, err := b.bodies.who(ctx, b.request.Header)
	if err == nil {
		if b.lease, err = b.bodies.memory.Take(ctx, p.Agent, copies*b.size); err == nil {
			return nil
		}
		err = fault.New(fault.Unavailable, "too many large requests are in progress", "try again in a moment, with fewer at a time").WithReason(fault.Busy).Because(err)
	}
	return b.refuse(fault.From(err))
}

// refuseCall returns an error that Connect answers unchanged.
func refuseCall(ctx context.Context, w http.ResponseWriter, f *fault.Error) error {
	// The header has the next step for a malformed request, but this request is well-formed.
	w.Header().Del(arbev1.NextHeader)
	return rpc.WireError(ctx, f)
}

// refuseForm returns an error that the web app answers unchanged.
func refuseForm(_ context.Context, _ http.ResponseWriter, f *fault.Error) error { return f }

// credential returns the credential of a request, and whether it is a cookie. The gateway accepts no cookies, but accepts
// tokens in the places where agents send their keys.
func credential(r *http.Request) (token string, cookie bool) {
	if gateway.Serves(r) {
		return gateway.Credential(r.Header), false
	}
	return auth.Credential(r.Header)
}
