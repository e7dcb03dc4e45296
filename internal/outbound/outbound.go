// Package outbound restricts the server's connections to addresses that members name. They may reach the internet, but
// not the server's own machine or the networks behind it. Otherwise any member could call the operator's internal
// services through the server.
package outbound

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// v6 is the part of IPv6 that the internet uses so far. The rest is excluded, because its addresses are local, contain
// IPv4 addresses or are not assigned.
var v6 = netip.MustParsePrefix("2000::/3")

// special are the special-purpose networks (RFC 6890 and its registries) that netip has no method for. They include
// IPv6 networks that contain IPv4 addresses, because a relay could translate one to a private address.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("100.64.0.0/10"),   // carriers' address translation
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, and broadcast
	netip.MustParsePrefix("2001::/23"),       // protocol assignments, Teredo among them
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("2002::/16"),       // 6to4
	netip.MustParsePrefix("3fff::/20"),       // documentation
}

// Public reports whether an address belongs to the public internet: not loopback, private, link-local, carrier-grade
// NAT, multicast, unspecified, reserved or a translation of an IPv4 address.
func Public(ip netip.Addr) bool {
	// A prefix never contains an address with a zone, or an IPv4 address in its IPv6 form: both would pass the loop.
	ip = ip.WithZone("").Unmap()
	for _, p := range special {
		if p.Contains(ip) {
			return false
		}
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && (ip.Is4() || v6.Contains(ip))
}

// RefusedError is the error of a connection to an address that is not public.
type RefusedError struct{ Address string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the address %s is not public", e.Address)
}

// unchecked connects to any address, checked only to public ones: Control sees each address that is dialled. A check of
// the name before the call would miss a name that resolves to another address the next time.
var (
	unchecked = &net.Dialer{Timeout: 30 * time.Second}
	checked   = &net.Dialer{Timeout: unchecked.Timeout, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err == nil && !Public(at.Addr()) {
			err = &RefusedError{address}
		}
		return err
	}}
)

// Dial connects to a public address, within 30 seconds. It connects to a name if one of its addresses is public; if
// none is, the error is a [RefusedError].
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return checked.DialContext(ctx, network, address)
}

// Dialer returns Dial for all destinations but those that allow reports, as host:port: these may have any address.
func Dialer(allow func(hostPort string) bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if allow != nil && allow(address) {
			return unchecked.DialContext(ctx, network, address)
		}
		return Dial(ctx, network, address)
	}
}

// Transport returns a transport that connects only to public addresses. It checks the address when it connects, after
// the name was resolved, which covers redirects and names that change. It ignores the environment's proxy settings,
// because a proxy would resolve names after the check. allow reports destinations, as host:port, that are allowed
// without a check.
func Transport(allow func(hostPort string) bool) *http.Transport {
	return &http.Transport{
		DialContext:            Dialer(allow),
		ForceAttemptHTTP2:      true, // otherwise a transport with its own DialContext speaks only HTTP/1.1
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  30 * time.Second,
		IdleConnTimeout:        time.Minute,
		MaxIdleConnsPerHost:    4,
		MaxResponseHeaderBytes: 64 << 10,
	}
}
