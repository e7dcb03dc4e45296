package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/arbe-dev/arbe/internal/outbound"
)

// dialTime is how long connecting to a host may take.
const dialTime = 30 * time.Second

// Dialer connects to a host, as host:port.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// ThroughProxy returns a dialer that connects through the proxy that the environment names for a host (HTTPS_PROXY,
// with exceptions in NO_PROXY), and directly if there is none. The proxy looks names up, so it decides which addresses
// are reached; the dialer itself refuses addresses that are not public.
func ThroughProxy(direct Dialer) Dialer { return throughProxy(httpproxy.FromEnvironment(), direct) }

func throughProxy(env *httpproxy.Config, direct Dialer) Dialer {
	find := env.ProxyFunc()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		proxy, err := find(&url.URL{Scheme: "https", Host: address})
		if err != nil || proxy == nil {
			return direct(ctx, network, address)
		}
		if to, err := netip.ParseAddrPort(address); err == nil && !outbound.Public(to.Addr()) {
			return nil, &outbound.RefusedError{Address: address}
		}
		return connectThrough(ctx, proxy, address)
	}
}

// connectThrough asks a proxy for a connection to a host.
func connectThrough(ctx context.Context, proxy *url.URL, address string) (_ net.Conn, err error) {
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	}
	if port == "" {
		return nil, fmt.Errorf("the proxy %s is neither http nor https", proxy.Redacted())
	}
	at := net.JoinHostPort(proxy.Hostname(), port)
	var conn net.Conn
	if proxy.Scheme == "https" {
		conn, err = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTime}}).DialContext(ctx, "tcp", at)
	} else {
		conn, err = (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", at)
	}
	if err != nil {
		return nil, fmt.Errorf("the proxy %s: %w", proxy.Redacted(), err)
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	ask := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		ask.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := ask.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, ask)
	if err != nil {
		return nil, fmt.Errorf("the proxy %s: %w", proxy.Redacted(), err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the proxy %s does not connect to %s: %s", proxy.Redacted(), address, answer.Status)
	}
	if r.Buffered() > 0 { // a host that speaks first
		return &begun{conn, r}, nil
	}
	return conn, nil
}

// begun is a connection whose first bytes are already in a buffer.
type begun struct {
	net.Conn
	r *bufio.Reader
}

func (b *begun) Read(p []byte) (int, error) { return b.r.Read(p) }

// CloseWrite ends the sending direction.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return b.Conn.Close()
}
