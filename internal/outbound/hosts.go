package outbound

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Hosts are destinations that the operator allows although they may be at private addresses. The zero value has none.
type Hosts struct{ allowed map[destination]bool }

// destination is a host and a port. The port is empty for all ports.
type destination struct{ host, port string }

// ParseHosts reads destinations: a host, which stands for all its ports, or host:port. An IPv6 address with a port is in
// brackets. Its errors say which one is wrong.
func ParseHosts(list ...string) (Hosts, error) {
	h := Hosts{map[destination]bool{}}
	for _, text := range list {
		host, port := text, ""
		if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
			host = ip.String()
		} else if strings.Contains(text, ":") {
			if host, port, err = net.SplitHostPort(text); err != nil {
				return Hosts{}, fmt.Errorf("%q is neither a host nor host:port", text)
			}
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return Hosts{}, fmt.Errorf("%q has no port from 1 to 65535", text)
			}
		}
		if host == "" || strings.ContainsAny(host, "/@ ") {
			return Hosts{}, fmt.Errorf("%q is neither a host nor host:port", text)
		}
		h.allowed[destination{normal(host), port}] = true
	}
	return h, nil
}

// Allows reports whether a destination, as host:port, is allowed.
func (h Hosts) Allows(hostPort string) bool {
	host, port, err := net.SplitHostPort(hostPort)
	return err == nil && (h.allowed[destination{normal(host), ""}] || h.allowed[destination{normal(host), port}])
}

// AllowsURL reports whether the destination of an http or https URL is allowed. A URL without a port has the port of
// its scheme.
func (h Hosts) AllowsURL(u *url.URL) bool {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return h.Allows(net.JoinHostPort(u.Hostname(), port))
}

// normal returns the canonical form of a host, for comparisons.
func normal(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Client returns a client for URLs that members name. It connects only to public addresses and to private, so that members cannot
// make the server call services inside its own network. It follows no redirect, because the URL behind it was not checked. timeout
// limits a request, idle the unused connections that the client keeps, and maxHeader the bytes of an answer's header.
func Client(private Hosts, timeout time.Duration, idle int, maxHeader int64) *http.Client {
	transport := Transport(private.Allows)
	transport.MaxIdleConns, transport.MaxResponseHeaderBytes = idle, maxHeader
	return &http.Client{
		Timeout: timeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
