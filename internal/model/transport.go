package model

import (
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/outbound"
)

// openTransport connects to the operator's addresses: to everything but metadata services.
func openTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err == nil && isMetadata(at.Addr()) {
			err = &outbound.RefusedError{Address: address}
		}
		return err
	}}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = dialer.DialContext
	return bounded(t)
}

// publicTransport connects to the public internet. The client limits the time of a response.
func publicTransport() *http.Transport {
	t := outbound.Transport(nil)
	t.ResponseHeaderTimeout = 0
	return bounded(t)
}

// bounded limits what a transport accepts from a server. It refuses compressed bodies, because they could have any
// size.
func bounded(t *http.Transport) *http.Transport {
	t.DisableCompression = true
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}
