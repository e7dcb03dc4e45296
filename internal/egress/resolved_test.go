package egress_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// resolveWith makes this program ask a name server of the test, which answers with the given addresses, and returns the names
// that it was asked for. It changes a variable of the process, so only tests that are not parallel may use it.
func resolveWith(t *testing.T, addresses map[string]string) (asked func() []string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var names []string
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			name := strings.TrimSuffix(q.Name.String(), ".")
			mu.Lock()
			names = append(names, name)
			mu.Unlock()
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			at, _ := netip.ParseAddr(addresses[name])
			header := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}
			switch {
			case q.Type == dnsmessage.TypeA && at.Is4():
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: at.As4()}}}
			case q.Type == dnsmessage.TypeAAAA && at.Is6():
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AAAAResource{AAAA: at.As16()}}}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = before; conn.Close() })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), names...)
	}
}

// A host that the policy allows may lead to any address, because its owner chooses that. The gate checks the address that it
// connects to.
func TestAnAllowedNameDoesNotLeadToAPrivateAddress(t *testing.T) {
	asked := resolveWith(t, map[string]string{
		"loopback.test": "127.0.0.1", "six.test": "::1", "mapped.test": "::ffff:127.0.0.1", "lan.test": "10.1.2.3", "metadata.test": "169.254.169.254",
	})
	l := listen(t) // on the server's loopback
	t.Cleanup(func() { l.Close() })
	reached := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, "inside")
			conn.Close()
			reached <- conn
		}
	}()
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	policy := egress.Policy{Mode: egress.Listed}
	names := []string{"loopback.test", "six.test", "mapped.test", "lan.test", "metadata.test"}
	for _, name := range names {
		policy.Hosts = append(policy.Hosts, fmt.Sprintf("%s:%d", name, port))
	}
	said := func(b *bench, name string) string {
		conn, err := b.try(netip.AddrPortFrom(b.address(name), port))
		if err != nil {
			return "" // it was reset at once
		}
		text, _ := io.ReadAll(conn)
		return string(text)
	}
	b := setup(t, policy, func(c *egress.Config) { c.Dial = outbound.Dialer(nil) })
	var want []string
	for _, name := range names {
		if got := said(b, name); got != "" {
			t.Errorf("%s answers %q", name, got)
		}
		want = append(want, fmt.Sprintf("%s:%d", name, port))
		b.ready = append(b.ready, b.ready[0]) // the next connection may use the same socket
	}
	b.wantRefused(want...)
	b.mu.Lock()
	for _, r := range b.refused {
		if !r.Private {
			t.Errorf("%s was refused for another reason", r)
		}
	}
	b.mu.Unlock()
	if len(reached) != 0 || len(asked()) == 0 {
		t.Errorf("%d connections reached the server's loopback; the names %q were looked up", len(reached), asked())
	}
	// The operator may allow such a host, which also shows that the name leads there.
	allowed := setup(t, policy, func(c *egress.Config) {
		c.Dial = outbound.Dialer(func(at string) bool { return strings.HasPrefix(at, "loopback.test:") })
	})
	if got := said(allowed, "loopback.test"); got != "inside\n" {
		t.Errorf("a host that the operator allows answers %q", got)
	}
}

// Programs send data in the names that they look up, and in questions of other types, to whoever owns the name server.
func TestQuestionsCarryNothingOut(t *testing.T) {
	asked := resolveWith(t, nil)
	dialled := make(chan string, 10_000)
	b := setup(t, listed, func(c *egress.Config) {
		c.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			dialled <- address
			return nil, io.EOF
		}
	})
	byTCP, err := net.Dial("tcp", b.tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer byTCP.Close()
	for i := range 300 {
		label := func(n int) string { return fmt.Sprintf("%0*x", n, i) }
		// Almost the longest name that there is. 10 is NULL, whose data can be anything.
		name := strings.Join([]string{label(63), label(63), label(63), label(40), "tunnel.test"}, ".")
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeTXT, 10} {
			if answers := b.ask(name, kind); (len(answers) > 0) != (kind == dnsmessage.TypeA) {
				t.Fatalf("%s %s is answered with %v", name, kind, answers)
			}
			q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}}}
			packed, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			var size [2]byte
			binary.BigEndian.PutUint16(size[:], uint16(len(packed)))
			if _, err := byTCP.Write(append(size[:], packed...)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(byTCP, size[:]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, byTCP, int64(binary.BigEndian.Uint16(size[:]))); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Not even a connection has its name looked up, unless it is allowed.
	if conn, err := b.try(netip.AddrPortFrom(b.address("after.tunnel.test"), 7777)); err == nil {
		_, _ = io.ReadAll(conn)
	}
	b.wantRefused("after.tunnel.test:7777")
	if names := asked(); len(names) > 0 || len(dialled) > 0 {
		t.Errorf("%d names left the server, and %d connections", len(names), len(dialled))
	}
}
