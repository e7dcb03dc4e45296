// Package httpd creates HTTP servers on which no client can hold resources for long, whatever a handler does. A body
// must arrive and an answer must be received at a minimum rate, connections are counted, and the bytes that wait for
// slow clients are limited.
package httpd

import (
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits restrict what a client may use. The zero value of a field means its default.
type Limits struct {
	// Header is how long the header of a request may take to arrive. Defaults to 10 seconds.
	Header time.Duration
	// Idle is how long a connection may be without a request. Defaults to 2 minutes.
	Idle time.Duration
	// Stall is how long a client may send nothing of a body, or receive nothing of an answer. Defaults to 20 seconds.
	Stall time.Duration
	// Rate is the minimum rate at which a body must arrive and a part of an answer must be received, in bytes per
	// second, with one Stall of tolerance. Defaults to 16 KiB.
	Rate int64
	// MaxBody limits the body of every request, in bytes. Handlers have lower limits of their own. Defaults to 32 MiB.
	MaxBody int64
	// Credential returns the credential in a request's header, valid or not; "" if there is none. It must return the
	// same text for the same credential, however that is written. Defaults to the headers Authorization and Cookie as
	// sent.
	Credential func(http.Header) string
	// Requests limits the concurrent requests with one credential; a further one is answered with 429. Defaults to
	// 8,192.
	Requests int
	// Memory limits the large parts of answers that wait for their clients. Defaults to 256 MiB in total, and a quarter
	// of it for each credential.
	Memory *Memory
}

// withDefaults returns l with every field set.
func (l Limits) withDefaults() Limits {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&l.Header, 10*time.Second)
	set(&l.Idle, 2*time.Minute)
	set(&l.Stall, 20*time.Second)
	if l.Rate == 0 {
		l.Rate = 16 << 10
	}
	if l.MaxBody == 0 {
		l.MaxBody = 32 << 20
	}
	if l.Requests == 0 {
		l.Requests = 8 << 10
	}
	if l.Credential == nil {
		l.Credential = credential
	}
	if l.Memory == nil {
		l.Memory = NewMemory(256<<20, 64<<20)
	}
	return l
}

// New returns a server for HTTP/1 and for HTTP/2 without TLS, which gRPC clients use. An answer may last forever if its
// client keeps receiving it.
func New(h http.Handler, l Limits, logger *slog.Logger) *http.Server {
	l = l.withDefaults()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           limited(h, l),
		Protocols:         &protocols,
		ReadHeaderTimeout: l.Header,
		IdleTimeout:       l.Idle,
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			SendPingTimeout:      l.Idle,
			PingTimeout:          l.Stall,
			WriteByteTimeout:     l.Stall,
		},
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// limited limits how long a handler waits for the client of a request.
func limited(next http.Handler, l Limits) http.Handler {
	var crowd Crowd
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		out := &writer{
			ResponseWriter: w, control: control, limits: l, request: r,
			wait: patience{set: control.SetWriteDeadline, lasting: r.ProtoMajor == 1},
		}
		if r.ContentLength != 0 {
			out.body = &body{
				ReadCloser: http.MaxBytesReader(w, r.Body, l.MaxBody), limits: l,
				wait: patience{set: control.SetReadDeadline, lasting: r.ProtoMajor == 1},
			}
			r.Body = out.body
		}
		// What the server writes itself, such as 100 Continue, would have the deadline of the previous request.
		if r.ProtoMajor == 1 {
			out.wait.start(time.Now().Add(l.Stall))
		}
		defer out.end()
		if who := l.Credential(r.Header); who != "" { // without a credential, strangers would share one limit
			leave, ok := crowd.Enter(who, l.Requests)
			if !ok {
				out.refuse(http.StatusTooManyRequests)
				return
			}
			defer leave()
		}
		next.ServeHTTP(out, r)
	})
}

// credential is the default of [Limits.Credential].
func credential(h http.Header) string {
	if bearer := h.Get("Authorization"); bearer != "" {
		return bearer
	}
	return h.Get("Cookie")
}

// Listener returns a listener that accepts at most most connections at a time and closes further ones at once. A
// connection counts until it is closed, even if a handler takes it over.
func Listener(l net.Listener, most int) net.Listener {
	return &listener{Listener: l, free: make(chan struct{}, most)}
}
