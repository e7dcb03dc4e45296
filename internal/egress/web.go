package egress

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/outbound"
)

func (c *webConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.passage.Close()
}

// CloseWrite ends the response of a connection that was taken over by another protocol.
func (c *webConn) CloseWrite() error {
	if half, ok := c.passage.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// connKey is the key of a request's *webConn.
type connKey struct{}

func (g *Gate) newWeb() *web {
	w := &web{gate: g, conns: make(chan *webConn)}
	discard := log.New(io.Discard, "", 0) // failures here concern only the program and the host
	w.server = &http.Server{
		Handler: w, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: discard,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	transport := &http.Transport{DialContext: g.config.Dial, DisableCompression: true, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 256 << 10}
	w.proxy = &httputil.ReverseProxy{
		Transport: transport, ErrorLog: discard, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", net.JoinHostPort(normal(hostOf(r.In)), "80"), r.In.Host
			if _, ok := r.In.Header["User-Agent"]; !ok {
				r.Out.Header["User-Agent"] = nil // otherwise the transport adds one
			}
		},
		ErrorHandler: func(rw http.ResponseWriter, r *http.Request, err error) {
			if _, private := errors.AsType[*outbound.RefusedError](err); private {
				g.refuseWeb(rw, w.refusal(r, true))
				return
			}
			http.Error(rw, "arbe: "+hostOf(r)+" cannot be reached: "+err.Error(), http.StatusBadGateway)
		},
	}
	return w
}

// serve serves the requests of a connection until it ends.
func (w *web) serve(p *passage, host, addr string) {
	c := &webConn{passage: p, host: host, addr: addr, done: make(chan struct{})}
	select {
	case w.conns <- c:
		<-c.done
	case <-w.gate.done.Done():
	}
}

func (w *web) run() { _ = w.server.Serve(w) } // until it is closed

func (w *web) close() error {
	err := w.server.Close()
	w.proxy.Transport.(*http.Transport).CloseIdleConnections()
	return err
}

// Accept, Close and Addr make web a listener, whose connections are those given to serve.

func (w *web) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.gate.done.Done():
		return nil, net.ErrClosed
	}
}

func (w *web) Close() error   { return nil }
func (w *web) Addr() net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPort{}) }

// hostOf returns the host that a request names, without its port.
func hostOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		return host
	}
	return strings.Trim(r.Host, "[]")
}

// refusal returns the Refusal of a request.
func (w *web) refusal(r *http.Request, private bool) Refusal {
	c := r.Context().Value(connKey{}).(*webConn)
	host := hostOf(r)
	if host == "" {
		host = c.addr
	}
	return Refusal{Host: host, Port: 80, Private: private, From: c.RemoteAddr()}
}

// ServeHTTP forwards a request if its Host is allowed and is the host that its connection is for.
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*webConn)
	host := hostOf(r)
	if _, err := netip.ParseAddr(host); err == nil || host == "" || c.host != "" && normal(host) != c.host || !w.gate.rules.Load().allow(host, 80) {
		w.gate.refuseWeb(rw, w.refusal(r, false))
		return
	}
	if r.Method == http.MethodConnect {
		http.Error(rw, "arbe: connect without a proxy; every connection is forwarded", http.StatusMethodNotAllowed)
		return
	}
	if r.ProtoMajor != 1 { // the beginning of HTTP/2, which this does not read
		refuseVersion(rw)
		return
	}
	if namesHosts(r.Header) {
		r.Header.Del("Upgrade") // the host then answers with HTTP/1.1
		r.Header.Del("HTTP2-Settings")
	}
	w.proxy.ServeHTTP(rw, r)
}

// afterRefusal limits the time and the bytes that a program may still send after its last answer.
const afterRefusal, maxAfterRefusal = time.Second, 64 << 10

// refuseVersion answers the beginning of HTTP/2, and ends the connection when the program has ended it. What a program sends to a
// closed connection makes the kernel drop the answer that it has not read.
func refuseVersion(rw http.ResponseWriter) {
	conn, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(afterRefusal)) != nil {
		return
	}
	const text = "arbe: without TLS, only HTTP/1.1 is forwarded\n"
	answer := http.Response{
		ProtoMajor: 1, ProtoMinor: 1, StatusCode: http.StatusHTTPVersionNotSupported, Close: true,
		Header:        http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text)),
	}
	if answer.Write(conn) != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, conn, maxAfterRefusal)
	}
}

// namesHosts reports whether a request asks for a protocol in which each further request can name another host. The gate could
// not see it.
func namesHosts(h http.Header) bool {
	for _, line := range h["Upgrade"] {
		for asked := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(asked), "/")
			switch strings.ToLower(name) {
			case "h2c", "h2", "http", "tls":
				return true
			}
		}
	}
	return false
}
