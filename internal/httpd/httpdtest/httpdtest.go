// Package httpdtest finds addresses for servers that tests start as processes.
package httpdtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Address returns an address with this IP at which nothing listens. Its port is below those that the kernel gives to the
// local ends of connections, so it stays free until the test's server listens there, and while the server restarts.
func Address(t testing.TB, ip string) string {
	t.Helper()
	for attempt := 1; ; attempt++ {
		addr := net.JoinHostPort(ip, strconv.Itoa(20_000+rand.IntN(12_000)))
		listener, err := net.Listen("tcp", addr)
		if err == nil {
			_ = listener.Close() // it accepted nothing
			return addr
		}
		if attempt == 100 {
			t.Fatal(err)
		}
	}
}
