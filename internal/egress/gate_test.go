package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// patience is how long a test waits for an expected event.
const patience = 2 * time.Minute

// bench is a gate whose hosts are on this machine: tls.test and other.test with TLS, web.test at port 80, echo.test at port
// 7777, which speaks first, and inside.test, whose address is private.
type bench struct {
	t     testing.TB
	gate  *egress.Gate
	names net.PacketConn
	tcp   net.Listener // for questions about names

	mu      sync.Mutex
	to      map[string]netip.AddrPort // the destination of connections, by the address of their listener
	ready   []net.Listener            // the listeners without a destination yet
	refused []egress.Refusal
	asked   []string // the requests to the hosts: host and path
}

// quiet discards the logs of hosts whose clients leave.
var quiet = log.New(io.Discard, "", 0)

func setup(t testing.TB, p egress.Policy, change ...func(*egress.Config)) *bench {
	t.Helper()
	b := &bench{t: t, to: map[string]netip.AddrPort{}}
	hosts := map[string]string{
		"tls.test:443": b.serve((*httptest.Server).StartTLS), "other.test:443": b.serve((*httptest.Server).StartTLS),
		"web.test:80": b.serve((*httptest.Server).Start), "other.test:80": b.serve((*httptest.Server).Start), "tls.test:8443": b.serve((*httptest.Server).StartTLS),
		"echo.test:7777": b.echo(),
	}
	var s egress.Sockets
	for range 4 {
		s.Connections = append(s.Connections, listen(t))
	}
	b.ready = slices.Clone(s.Connections)
	var err error
	if b.names, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	b.tcp = listen(t)
	s.Names, s.NameStreams = []net.PacketConn{b.names}, []net.Listener{b.tcp}
	config := egress.Config{
		Policy: p,
		Destination: func(c net.Conn) (netip.AddrPort, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.to[c.LocalAddr().String()], nil
		},
		Refused: func(r egress.Refusal) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.refused = append(b.refused, r)
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			at, ok := hosts[address]
			if !ok && strings.HasPrefix(address, "inside.test:") {
				return nil, &net.OpError{Op: "dial", Err: &outbound.RefusedError{Address: "10.0.0.1:80"}}
			}
			if !ok {
				return nil, errors.New("no such host: " + address)
			}
			return new(net.Dialer).DialContext(ctx, network, at)
		},
		Door: answerDoor,
	}
	for _, c := range change {
		c(&config)
	}
	b.gate = egress.New(config, s)
	t.Cleanup(func() { b.gate.Close() })
	return b
}

// answerDoor answers the requests of a connection with their paths.
func answerDoor(conn net.Conn) {
	defer conn.Close()
	for r := bufio.NewReader(conn); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		text := "the door, asked for " + req.URL.Path
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve starts a host that answers with its name, and returns its address.
func (b *bench) serve(start func(*httptest.Server)) string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.asked = append(b.asked, r.Host+r.URL.Path)
		b.mu.Unlock()
		fmt.Fprintf(w, "this is %s, asked by %q", r.Host, r.Header["User-Agent"])
	}))
	s.Config.ErrorLog = quiet
	start(s)
	b.t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// echo starts a host that sends a greeting, and then sends back what it receives.
func (b *bench) echo() string {
	l := listen(b.t)
	b.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprintln(conn, "hello")
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

// address returns the address that programs get for a name.
func (b *bench) address(name string) netip.Addr {
	b.t.Helper()
	answers := b.ask(name, dnsmessage.TypeA)
	if len(answers) != 1 {
		b.t.Fatalf("%s has the addresses %v", name, answers)
	}
	return netip.AddrFrom4(answers[0].(*dnsmessage.AResource).A)
}

// ask looks up a name as programs do.
func (b *bench) ask(name string, kind dnsmessage.Type) (answers []dnsmessage.ResourceBody) {
	b.t.Helper()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}}}
	packed, err := q.Pack()
	if err != nil {
		b.t.Fatal(err)
	}
	conn, err := net.Dial("udp", b.names.LocalAddr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(packed); err != nil {
		b.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		b.t.Fatal(err)
	}
	var a dnsmessage.Message
	if err := a.Unpack(buf[:n]); err != nil || a.ID != 7 || a.RCode != dnsmessage.RCodeSuccess {
		b.t.Fatalf("the answer is %+v (%v)", a, err)
	}
	for _, r := range a.Answers {
		answers = append(answers, r.Body)
	}
	return answers
}

// dial connects to an address, as a program in a sandbox whose kernel redirects the connection.
func (b *bench) dial(to netip.AddrPort) net.Conn {
	b.t.Helper()
	conn, err := b.try(to)
	if err != nil {
		b.t.Fatal(err)
	}
	return conn
}

// try is dial for a connection that may be refused at once.
func (b *bench) try(to netip.AddrPort) (net.Conn, error) {
	b.mu.Lock()
	l := b.ready[0]
	b.ready = b.ready[1:]
	b.to[l.Addr().String()] = to
	b.mu.Unlock()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	b.t.Cleanup(func() { conn.Close() })
	return conn, nil
}

// named connects to a name.
func (b *bench) named(name string, port uint16) net.Conn {
	b.t.Helper()
	return b.dial(netip.AddrPortFrom(b.address(name), port))
}

// get makes a request on a connection, and returns the status and the text of its answer.
func get(conn net.Conn, host, path string) (int, string, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host); err != nil {
		return 0, "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

func secured(conn net.Conn, server string) net.Conn {
	return tls.Client(conn, &tls.Config{ServerName: server, InsecureSkipVerify: true})
}

var listed = egress.Policy{Mode: egress.Listed, Hosts: []string{"tls.test", "tls.test:8443", "web.test", "echo.test:7777", "inside.test", "gone.test"}}

func (b *bench) wantRefused(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var got []string
	for _, r := range b.refused {
		got = append(got, r.String())
		if r.From == nil {
			b.t.Errorf("%s was reported without a connection", r)
		}
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("%q were refused, want %q", got, want)
	}
}

func TestAllowedConnectionsAreForwarded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host string
		port uint16
		tls  string // the server name; empty for no TLS
	}{
		"TLS":                               {"tls.test", 443, "tls.test"},
		"TLS without a server name":         {"tls.test", 443, "127.0.0.1"},
		"TLS at another port":               {"tls.test", 8443, "tls.test"},
		"HTTP":                              {"web.test", 80, ""},
		"a name in capitals":                {"Web.Test", 80, ""},
		"an address, with the name in TLS":  {"", 443, "tls.test"},
		"an address, with the name in HTTP": {"", 80, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, listed)
			var conn net.Conn
			host := c.host
			if host == "" {
				conn = b.dial(netip.AddrPortFrom(netip.MustParseAddr("93.184.216.34"), c.port))
				host = "web.test"
			} else {
				conn = b.named(c.host, c.port)
			}
			if c.tls != "" {
				conn, host = secured(conn, c.tls), "tls.test"
			}
			status, text, err := get(conn, host, "/path")
			if err != nil || status != 200 || !strings.HasPrefix(text, "this is "+host) || !strings.HasSuffix(text, `asked by []`) {
				t.Errorf("the answer is %d %q (%v)", status, text, err)
			}
			b.wantRefused()
		})
	}
	t.Run("a protocol in which the host speaks first, to the end of both", func(t *testing.T) {
		t.Parallel()
		b := setup(t, listed)
		conn := b.named("echo.test", 7777)
		r := bufio.NewReader(conn)
		if line, err := r.ReadString('\n'); line != "hello\n" {
			t.Fatalf("the host said %q (%v)", line, err)
		}
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		go func() {
			_, _ = conn.Write(sent)
			_ = conn.(*net.TCPConn).CloseWrite()
		}()
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d of %d bytes came back (%v)", len(got), len(sent), err)
		}
	})
	t.Run("several requests on one connection", func(t *testing.T) {
		t.Parallel()
		b := setup(t, listed)
		conn := b.named("web.test", 80)
		for i := range 3 {
			if status, text, err := get(conn, "web.test:80", fmt.Sprint("/", i)); err != nil || status != 200 {
				t.Errorf("the answer is %d %q (%v)", status, text, err)
			}
		}
		if !slices.Equal(b.asked, []string{"web.test:80/0", "web.test:80/1", "web.test:80/2"}) {
			t.Errorf("the host was asked %q", b.asked)
		}
	})
	t.Run("everything, with an open policy", func(t *testing.T) {
		t.Parallel()
		b := setup(t, egress.Policy{Mode: egress.Open})
		if status, _, err := get(b.named("other.test", 80), "other.test", "/"); err != nil || status != 200 {
			t.Errorf("the answer is %d (%v)", status, err)
		}
		if status, _, err := get(secured(b.named("other.test", 443), "tls.test"), "tls.test", "/"); err != nil || status != 200 {
			t.Errorf("the answer to TLS is %d (%v)", status, err)
		}
		b.wantRefused()
	})
}

func TestOtherConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	literal := netip.MustParseAddr("93.184.216.34")
	tlsRefusal := func(conn net.Conn, server string) string {
		err := secured(conn, server).(*tls.Conn).Handshake()
		if err == nil {
			return "nothing"
		}
		return err.Error()
	}
	webRefusal := func(conn net.Conn, request string) string {
		fmt.Fprint(conn, request)
		text, _ := io.ReadAll(conn)
		return string(text)
	}
	for name, c := range map[string]struct {
		do      func(*bench) string // what the program gets
		says    string
		refused string
	}{
		"a name, with TLS":                            {func(b *bench) string { return tlsRefusal(b.named("other.test", 443), "other.test") }, "access denied", "other.test:443"},
		"a false server name":                         {func(b *bench) string { return tlsRefusal(b.named("tls.test", 443), "other.test") }, "access denied", "other.test:443"},
		"a false server name at another port":         {func(b *bench) string { return tlsRefusal(b.named("tls.test", 8443), "other.test") }, "reset", "other.test:8443"},
		"an address whose server name is not allowed": {func(b *bench) string { return tlsRefusal(b.dial(netip.AddrPortFrom(literal, 443)), "other.test") }, "access denied", "93.184.216.34:443"},
		"an address without a server name":            {func(b *bench) string { return tlsRefusal(b.dial(netip.AddrPortFrom(literal, 443)), "127.0.0.1") }, "access denied", "93.184.216.34:443"},
		"an address at another port": {func(b *bench) string {
			conn, err := b.try(netip.AddrPortFrom(literal, 8443))
			if err != nil {
				return err.Error()
			}
			return tlsRefusal(conn, "tls.test")
		}, "reset", "93.184.216.34:8443"},
		"the metadata service": {func(b *bench) string {
			return webRefusal(b.dial(netip.MustParseAddrPort("169.254.169.254:80")), "GET / HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n")
		}, "does not allow 169.254.169.254:80", "169.254.169.254:80"},
		"a name, with HTTP": {func(b *bench) string {
			return webRefusal(b.named("other.test", 80), "GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n")
		}, "403 Forbidden", "other.test:80"},
		"a false Host": {func(b *bench) string {
			return webRefusal(b.named("web.test", 80), "GET / HTTP/1.1\r\nHost: tls.test\r\nConnection: close\r\n\r\n")
		}, "403 Forbidden", "tls.test:80"},
		"a request for another host's URL": {func(b *bench) string {
			return webRefusal(b.named("web.test", 80), "GET http://other.test/ HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n")
		}, "403 Forbidden", "other.test:80"},
		"a false Host in the second request": {func(b *bench) string {
			return webRefusal(b.named("web.test", 80), "GET /first HTTP/1.1\r\nHost: web.test\r\n\r\nGET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n")
		}, "403 Forbidden", "other.test:80"},
		"a host with a private address": {func(b *bench) string {
			return webRefusal(b.named("inside.test", 80), "GET / HTTP/1.1\r\nHost: inside.test\r\nConnection: close\r\n\r\n")
		}, "has no public address", "inside.test:80"},
		"the same, with TLS": {func(b *bench) string { return tlsRefusal(b.named("inside.test", 443), "inside.test") }, "access denied", "inside.test:443"},
		"SSH": {func(b *bench) string {
			text, _ := io.ReadAll(b.named("other.test", 22))
			return string(text)
		}, "SSH-2.0-arbe\r\n", "other.test:22"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, listed)
			if got := c.do(b); !strings.Contains(got, c.says) {
				t.Errorf("the program gets %q, want %q", got, c.says)
			}
			b.wantRefused(c.refused)
			if len(b.asked) > 0 && !slices.Equal(b.asked, []string{"web.test/first"}) {
				t.Errorf("a host was asked %q", b.asked)
			}
		})
	}
}

// Data that is not a request for a host never reaches one.
func TestNonsense(t *testing.T) {
	t.Parallel()
	b := setup(t, listed)
	for _, said := range []string{"\x16\x03\x01\xff\xff", "CONNECT other.test:443 HTTP/1.1\r\nHost: web.test\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"} {
		conn := b.named("web.test", 80)
		if _, err := io.WriteString(conn, said); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		if text, _ := io.ReadAll(conn); bytes.Contains(text, []byte("200")) {
			t.Errorf("%q is answered with %q", said, text)
		}
	}
	if len(b.asked) > 0 {
		t.Errorf("the host was asked %q", b.asked)
	}
}

func TestAPolicyChangesAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, listed)
	open := b.named("echo.test", 7777)
	r := bufio.NewReader(open)
	if line, err := r.ReadString('\n'); line != "hello\n" {
		t.Fatalf("the host said %q (%v)", line, err)
	}
	b.gate.SetPolicy(egress.Policy{Mode: egress.Listed, Hosts: []string{"other.test"}})
	if line, err := r.ReadString('\n'); err == nil {
		t.Errorf("a connection to a removed host continues: %q", line)
	}
	if status, _, err := get(b.named("other.test", 80), "other.test", "/"); err != nil || status != 200 {
		t.Errorf("a host that was added answers %d (%v)", status, err)
	}
	if status, _, err := get(b.named("web.test", 80), "web.test", "/"); err != nil || status != 403 {
		t.Errorf("a host that was removed answers %d (%v)", status, err)
	}
}

func TestEachNameHasItsOwnAddress(t *testing.T) {
	t.Parallel()
	b := setup(t, listed)
	one, two := b.address("one.test"), b.address("two.test")
	if one == two || b.address("ONE.test") != one || outbound.Public(one) || !one.Is4() {
		t.Errorf("the addresses are %s, %s and %s", one, two, b.address("ONE.test"))
	}
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeTXT, dnsmessage.TypeMX, 65} {
		if answers := b.ask("one.test", kind); len(answers) != 0 {
			t.Errorf("%s is answered with %v", kind, answers)
		}
	}
	// However many names are looked up, the table is bounded, and its answers are right.
	for i := range 10_000 {
		b.address(fmt.Sprintf("n%d.test", i))
	}
	for _, name := range []string{"web.test", "other.test"} {
		if status, _, err := get(b.named(name, 80), name, "/"); err != nil || status != map[string]int{"web.test": 200, "other.test": 403}[name] {
			t.Errorf("%s answers %d (%v)", name, status, err)
		}
	}
	if status, _, err := get(b.dial(netip.AddrPortFrom(one, 80)), "other.test", "/"); err != nil || status != 403 {
		t.Errorf("an address that was another name's answers %d (%v)", status, err)
	}
}

func TestQuestionsByTCP(t *testing.T) {
	t.Parallel()
	b := setup(t, listed)
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", b.tcp.Addr().String())
	}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := resolver.LookupNetIP(ctx, "ip4", "one.test.")
	if err != nil || len(got) != 1 || got[0].Unmap() != b.address("one.test") {
		t.Errorf("the addresses are %v (%v)", got, err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	b := setup(t, listed)
	passed, waiting, web := b.named("echo.test", 7777), b.named("tls.test", 443), b.named("web.test", 80)
	if _, err := bufio.NewReader(passed).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := b.gate.Close(); err != nil {
		t.Errorf("Close returned %v", err)
	}
	for _, conn := range []net.Conn{passed, waiting, web} {
		if _, err := io.ReadAll(conn); errors.Is(err, context.DeadlineExceeded) {
			t.Error("a connection is still open")
		}
	}
}

// A program that opens connections and sends nothing takes no more than its share, and other programs of the sandbox
// continue when it ends.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, listed)
	to := netip.AddrPortFrom(b.address("echo.test"), 7777)
	var conns []net.Conn
	l := b.ready[0]
	b.dial(to)
	for range 400 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	greeted := func(conn net.Conn, within time.Duration) bool {
		_ = conn.SetReadDeadline(time.Now().Add(within))
		_, err := io.ReadFull(conn, make([]byte, 6))
		return err == nil
	}
	n := 0
	for _, conn := range conns[:200] {
		if greeted(conn, patience) {
			n++
		}
	}
	if n != 200 {
		t.Errorf("%d of the first 200 connections were passed on", n)
	}
	for _, conn := range conns[:300] {
		conn.Close()
	}
	if !greeted(conns[399], patience) {
		t.Error("the last one was not passed on after the others ended")
	}
	for _, conn := range conns[300:] {
		conn.Close()
	}
}

func TestTheServersDoorIsReachedWithEveryPolicy(t *testing.T) {
	t.Parallel()
	const want = "the door, asked for /api/stream/x"
	for name, p := range map[string]egress.Policy{"zero": {}, "none": {Mode: egress.None}, "listed": listed, "open": {Mode: egress.Open}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, p)
			conn := b.named(egress.DoorHost, 80)
			for range 2 { // the connection survives a change of the policy
				if status, text, err := get(conn, egress.DoorHost, "/api/stream/x"); status != 200 || text != want {
					t.Errorf("it answers %d %q (%v)", status, text, err)
				}
				b.gate.SetPolicy(egress.Policy{Mode: egress.Listed, Hosts: []string{"other.test"}})
			}
			if conn, err := b.try(netip.AddrPortFrom(b.address(egress.DoorHost), 443)); err == nil {
				if _, err := io.ReadAll(conn); err == nil {
					t.Error("a connection to another port of it has no error")
				}
			}
			if status, _, err := get(b.named("web.test", 80), egress.DoorHost, "/"); status != http.StatusForbidden {
				t.Errorf("a Host that lies gets %d (%v)", status, err)
			}
			if status, _, err := get(b.named("under."+egress.DoorHost, 80), "under."+egress.DoorHost, "/"); status != http.StatusForbidden {
				t.Errorf("a name below it gets %d (%v)", status, err)
			}
			b.wantRefused(egress.DoorHost+":80", "under."+egress.DoorHost+":80")
		})
	}
}

// Another server may take over a sandbox whose programs remember the address.
func TestTheDoorAlwaysHasTheSameAddress(t *testing.T) {
	t.Parallel()
	a, b := setup(t, listed), setup(t, listed)
	b.address("web.test")
	if a.address(egress.DoorHost) != b.address(egress.DoorHost) || b.address(egress.DoorHost) == b.address("web.test") {
		t.Errorf("it is %s and %s", a.address(egress.DoorHost), b.address(egress.DoorHost))
	}
}
