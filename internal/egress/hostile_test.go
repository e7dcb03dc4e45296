package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// helloOf returns the hello that a TLS client sends first: one record.
func helloOf(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() { _ = tls.Client(theirs, config).Handshake() }()
	defer theirs.Close()
	defer ours.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(ours, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(ours, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// inRecords distributes handshake messages over records of a size.
func inRecords(messages []byte, size int) (all []byte) {
	for len(messages) > 0 {
		n := min(size, len(messages))
		all = append(all, 22, 3, 1, byte(n>>8), byte(n))
		all = append(all, messages[:n]...)
		messages = messages[n:]
	}
	return all
}

// splitting is a connection that sends its first bytes, a hello, in records of size bytes and in segments of one byte.
type splitting struct {
	net.Conn
	size int
	sent bool
}

func (s *splitting) Write(p []byte) (int, error) {
	if s.sent {
		return s.Conn.Write(p)
	}
	s.sent = true
	var messages []byte
	for rest := p; len(rest) > 0; {
		n := 5 + int(binary.BigEndian.Uint16(rest[3:]))
		messages, rest = append(messages, rest[5:n]...), rest[n:]
	}
	for _, b := range inRecords(messages, s.size) {
		if _, err := s.Conn.Write([]byte{b}); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// encryptedFor returns the ECH configuration of a front: the name that a hello then shows.
func encryptedFor(t testing.TB, front string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint16(0xfe0d) // the version
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			b.AddUint8(7)     // the key's id
			b.AddUint16(0x20) // X25519
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(key.PublicKey().Bytes()) })
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint16(1); b.AddUint16(1) }) // HKDF-SHA256, AES-128-GCM
			b.AddUint8(32)
			b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(front)) })
			b.AddUint16(0)
		})
	})
	return b.BytesOrPanic()
}

// hiding is a client's configuration that shows the name of a front, and encrypts the name of the host that it wants.
func hiding(t testing.TB, front, host string) *tls.Config {
	return &tls.Config{
		ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: encryptedFor(t, front),
		EncryptedClientHelloRejectionVerify: func(tls.ConnectionState) error { return nil },
	}
}

// dials replaces the hosts of a gate with one that counts as the given host and records the connections.
func dials(to chan<- string, dial egress.Dialer) func(*egress.Config) {
	return func(c *egress.Config) {
		if dial == nil {
			dial = c.Dial
		}
		inner := dial
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			to <- address
			return inner(ctx, network, address)
		}
	}
}

var publicAddress = netip.MustParseAddr("93.184.216.34")

// In an encrypted hello, the front's name decides, because only the front can read the encrypted name.
func TestAnEncryptedHelloCountsAsItsFront(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		to      string // a name, or empty for an address
		front   string
		refused string // empty if the connection reaches the front
	}{
		"an allowed front":                            {"tls.test", "tls.test", ""},
		"an allowed front at another host's address":  {"", "tls.test", ""},
		"another front":                               {"tls.test", "other.test", "other.test:443"},
		"a front that is not allowed, at its address": {"", "other.test", publicAddress.String() + ":443"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reached := make(chan string, 1)
			b := setup(t, listed, dials(reached, nil))
			to := netip.AddrPortFrom(publicAddress, 443)
			if c.to != "" {
				to = netip.AddrPortFrom(b.address(c.to), 443)
			}
			err := tls.Client(b.dial(to), hiding(t, c.front, "hidden.test")).Handshake()
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), "access denied") || len(reached) > 0 {
					t.Errorf("the program gets %v, and %d connections left", err, len(reached))
				}
				b.wantRefused(c.refused)
				return
			}
			if _, answered := errors.AsType[*tls.ECHRejectionError](err); !answered || len(reached) != 1 || <-reached != "tls.test:443" {
				t.Errorf("the program gets %v, not the front's answer", err)
			}
			b.wantRefused()
		})
	}
}

// However a hello is cut into pieces, its name decides, and the host gets the same bytes.
func TestAHelloInPieces(t *testing.T) {
	t.Parallel()
	var protocols []string // which make the hello almost as large as it may be
	for i := range 3500 {
		protocols = append(protocols, fmt.Sprintf("protocol-%08d", i))
	}
	large := append(protocols, "http/1.1")
	for name, c := range map[string]struct {
		protocols []string
		size      int
	}{"in records of 7 bytes": {nil, 7}, "of 60 KB": {large, 16 << 10}, "of 60 KB in small records": {large, 100}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, listed)
			client := func(server string) *tls.Conn {
				conn := &splitting{Conn: b.named("tls.test", 443), size: c.size}
				return tls.Client(conn, &tls.Config{ServerName: server, InsecureSkipVerify: true, NextProtos: c.protocols})
			}
			if status, text, err := get(client("tls.test"), "tls.test", "/"); err != nil || status != 200 {
				t.Errorf("the answer is %d %q (%v)", status, text, err)
			}
			if err := client("other.test").Handshake(); err == nil || !strings.Contains(err.Error(), "access denied") {
				t.Errorf("another name gets %v", err)
			}
			b.wantRefused("other.test:443")
		})
	}
}

// Some servers read hellos that the gate cannot read. None of them reaches its host, whose name may be a different one.
func TestAHelloThatCannotBeRead(t *testing.T) {
	t.Parallel()
	other := helloOf(t, &tls.Config{ServerName: "other.test"})
	large := append([]byte{1, 1, 0x10, 0}, make([]byte, 0x11000)...)
	twice := bytes.Clone(other)
	copy(twice[bytes.Index(twice, []byte("other.test")):], "other.tes.") // names do not end with a dot
	for name, said := range map[string][]byte{
		"that is not complete":            other[:len(other)/2],
		"of which only one byte comes":    other[:1],
		"of more than 64 KB":              inRecords(large, 16<<10),
		"that is not valid":               twice,
		"after an alert":                  append([]byte{21, 3, 1, 0, 2, 1, 90}, other...),
		"after a record of another type":  append([]byte{20, 3, 1, 0, 1, 1}, other...),
		"after empty records without end": append(bytes.Repeat([]byte{22, 3, 1, 0, 0}, 100), other...),
	} {
		for _, port := range []uint16{443, 8443} {
			t.Run(fmt.Sprint(name, ", at port ", port), func(t *testing.T) {
				t.Parallel()
				heard := make(chan []byte, 1)
				b := setup(t, listed, func(c *egress.Config) {
					c.HelloTime = 100 * time.Millisecond
					c.Dial = func(context.Context, string, string) (net.Conn, error) {
						ours, theirs := net.Pipe()
						go func() {
							all, _ := io.ReadAll(theirs)
							heard <- all
						}()
						return ours, nil
					}
				})
				conn := b.named("tls.test", port)
				_, _ = conn.Write(said)
				got, err := io.ReadAll(conn)
				if port == 443 && !bytes.HasPrefix(got, []byte{21, 3, 1, 0, 2, 2, 49}) || port != 443 && err == nil {
					t.Errorf("the program gets %v (%v)", got, err)
				}
				b.gate.Close()
				select {
				case all := <-heard:
					if len(all) > 0 {
						t.Errorf("the host gets %d bytes", len(all))
					}
				default:
				}
			})
		}
	}
}

// A program may wait until the gate has connected, because in some protocols the host speaks first.
func TestASilentProgramIsStillHeard(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 2)
	b := setup(t, listed, dials(reached, nil), func(c *egress.Config) { c.HelloTime = 10 * time.Millisecond })
	for server, want := range map[string]string{"tls.test": "", "other.test": "reset"} {
		conn := b.named("tls.test", 443)
		if address := <-reached; address != "tls.test:443" {
			t.Errorf("it connects to %s", address)
		}
		err := secured(conn, server).(*tls.Conn).Handshake()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s, said late, gets %v", server, err)
		}
	}
	b.wantRefused("other.test:443")
	if conn := b.dial(netip.AddrPortFrom(publicAddress, 443)); conn != nil {
		if text, _ := io.ReadAll(conn); !bytes.HasPrefix(text, []byte{21}) || len(reached) > 0 {
			t.Errorf("a silent program that used an address gets %v", text)
		}
	}
}

// HTTP/2, and protocols that take over a connection, could name several hosts where the gate does not look.
func TestWebConnectionsStayReadable(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 10)
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(host.Close)
	b := setup(t, egress.Policy{Mode: egress.Listed, Hosts: []string{"web.test"}}, func(c *egress.Config) {
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, host.Listener.Addr().String())
		}
	})
	l := b.ready[0]
	to := netip.AddrPortFrom(b.address("web.test"), 80)
	ask := func(request string) string {
		b.ready = append(b.ready, l)
		b.ready = b.ready[len(b.ready)-1:]
		conn := b.dial(to)
		fmt.Fprint(conn, request)
		line, _ := bufio.NewReader(conn).ReadString('\n')
		return line
	}
	for request, want := range map[string]string{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                                         "403 ",
		"PRI * HTTP/2.0\r\nHost: web.test\r\n\r\nSM\r\n\r\n":                                                       "505 ",
		"CONNECT web.test:80 HTTP/1.1\r\nHost: web.test\r\n\r\n":                                                   "405 ",
		"CONNECT other.test:80 HTTP/1.1\r\nHost: web.test\r\n\r\n":                                                 "403 ",
		"GET / HTTP/1.1\r\nHost: web.test\r\nHost: other.test\r\n\r\n":                                             "400 ",
		"GET / HTTP/1.1\r\nHost: web.test@other.test\r\n\r\n":                                                      "400 ",
		"GET / HTTP/1.1\r\nHost: other.test\r\nX-Forwarded-Host: web.test\r\n\r\n":                                 "403 ",
		"POST / HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n": "501 ",
	} {
		if text := ask(request); !strings.HasPrefix(text, "HTTP/1.1 "+want) && !strings.HasPrefix(text, "HTTP/1.0 "+want) {
			t.Errorf("%q is answered with %q, want %s", request, text, want)
		}
	}
	if len(got) > 0 {
		t.Fatalf("the host got %d requests", len(got))
	}
	for _, protocol := range []string{"h2c", "H2C", "websocket, h2c", "TLS/1.0", "HTTP/2.0"} {
		request := "GET / HTTP/1.1\r\nHost: web.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol + "\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
		if text := ask(request); !strings.HasPrefix(text, "HTTP/1.1 200 ") {
			t.Fatalf("%s: the answer is %q", protocol, text)
		}
		if h := <-got; h.Get("Upgrade") != "" || h.Get("HTTP2-Settings") != "" || h.Get("Connection") != "" {
			t.Errorf("%s: the host got %v", protocol, h)
		}
	}
	ask("GET / HTTP/1.1\r\nHost: web.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if h := <-got; h.Get("Upgrade") != "websocket" {
		t.Errorf("of a websocket, the host got %v", h)
	}
}

// A program that is still sending when it is refused gets the answer. A closed connection would end it by a signal.
func TestARefusedProgramMayEndItsSentence(t *testing.T) {
	t.Parallel()
	conn := setup(t, listed).named("web.test", 80)
	fmt.Fprint(conn, "PRI * HTTP/2.0\r\nHost: web.test\r\n\r\n")
	if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 505 ") {
		t.Fatalf("the answer is %q, %v", text, err)
	}
	for range 10 {
		if _, err := fmt.Fprint(conn, "SM\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// The body of a request for one host does not become a request for another, whatever its headers say about its length.
func TestABodyIsNoRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, listed)
	conn := b.named("web.test", 80)
	const hidden = "GET /hidden HTTP/1.1\r\nHost: other.test\r\n\r\n"
	fmt.Fprintf(conn, "POST /outer HTTP/1.1\r\nHost: web.test\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 5+len(hidden), hidden)
	_ = conn.(*net.TCPConn).CloseWrite()
	_, _ = io.ReadAll(conn)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, asked := range b.asked {
		if asked != "web.test/outer" {
			t.Errorf("a host was asked %s", asked)
		}
	}
}

// A name's owner may change its address at any time, so that each connection is judged by the address that it gets.
func TestANameThatBecomesPrivate(t *testing.T) {
	t.Parallel()
	var private atomic.Bool
	b := setup(t, listed, func(c *egress.Config) {
		hosts := c.Dial
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if private.Load() {
				return nil, &net.OpError{Op: "dial", Err: &outbound.RefusedError{Address: "127.0.0.1:7777"}}
			}
			return hosts(ctx, network, address)
		}
	})
	if _, err := io.ReadFull(b.named("echo.test", 7777), make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	private.Store(true)
	if conn, err := b.try(netip.AddrPortFrom(b.address("echo.test"), 7777)); err == nil { // its reset may come before or after
		if text, err := io.ReadAll(conn); err == nil {
			t.Errorf("the second connection gets %q", text)
		}
	}
	b.wantRefused("echo.test:7777")
	if len(b.refused) == 1 && !b.refused[0].Private {
		t.Error("it was refused for another reason")
	}
}

// Each name below an allowed domain reaches that domain's name servers when the server looks it up.
func TestNewNamesAreLookedUpSlowly(t *testing.T) {
	t.Parallel()
	dialled := make(chan string, 10_000)
	b := setup(t, egress.Policy{Mode: egress.Listed, Hosts: []string{"*.tunnel.test:7777"}}, func(c *egress.Config) {
		c.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			dialled <- address
			return nil, io.EOF
		}
	})
	l := b.ready[0]
	ask := func(name string) {
		b.ready = []net.Listener{l}
		if conn, err := b.try(netip.AddrPortFrom(b.address(name), 7777)); err == nil {
			_, _ = io.ReadAll(conn)
			conn.Close()
		}
	}
	began := time.Now()
	for i := range 310 {
		ask(fmt.Sprintf("secret%d.tunnel.test", i))
	}
	if took := time.Since(began); len(dialled) != 310 || took < 900*time.Millisecond {
		t.Errorf("%d names were looked up in %v", len(dialled), took)
	}
	for range 1000 { // the same name is no new data
		ask("secret0.tunnel.test")
	}
	if took := time.Since(began); len(dialled) != 1310 || took > 60*time.Second {
		t.Errorf("%d connections took %v", len(dialled), took)
	}
}
