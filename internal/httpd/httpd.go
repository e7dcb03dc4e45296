// Package httpd creates HTTP servers on which no client can hold resources for long, whatever a handler does. A body
// must arrive and an answer must be received at a minimum rate, connections are counted, and the bytes that wait for
// slow clients are limited.
package httpd

import (
	"log/slog"
	"net/http"
	"time"
)

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
		// The server's own writes, such as 100 Continue, would otherwise have the deadline of the previous request.
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
