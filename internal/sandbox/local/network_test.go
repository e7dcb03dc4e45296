//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

// internet maps the hosts that boxes of a test can reach, by host:port, to addresses on this machine.
type internet map[string]string

// newInternet starts the hosts. web.test and other.test answer HTTP and HTTPS. raw.test, at port 4000, sends a greeting
// and then echoes what it receives. inside.test has a private address.
func newInternet(t testing.TB) internet {
	t.Helper()
	hosts := internet{}
	for _, name := range []string{"web.test", "other.test"} {
		for port, start := range map[string]func(*httptest.Server){"80": (*httptest.Server).Start, "443": (*httptest.Server).StartTLS} {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "this is %s", r.Host) }))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			start(s)
			t.Cleanup(s.Close)
			hosts[name+":"+port] = s.Listener.Addr().String()
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	hosts["raw.test:4000"] = l.Addr().String()
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
	return hosts
}

func (i internet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if strings.HasPrefix(address, "inside.test:") {
		return nil, &outbound.RefusedError{Address: "10.0.0.1"}
	}
	to, ok := i[address]
	if !ok {
		return nil, errors.New("no such host: " + address)
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

// networked opens a driver whose boxes can reach an internet on this machine.
func networked(t testing.TB, cfg local.Config) *local.Driver {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Dial == nil {
		cfg.Dial = newInternet(t).dial
	}
	d := newDriver(t, cfg)
	if !d.Capabilities().Network {
		closeDriver(t, d)
		t.Skip("this machine cannot redirect the connections of sandboxes")
	}
	return d
}

var listed = egress.Policy{Mode: egress.Listed, Hosts: []string{"web.test", "raw.test:4000", "inside.test"}}

func TestABoxReachesWhatItsPolicyAllows(t *testing.T) {
	t.Parallel()
	d := networked(t, local.Config{})
	t.Cleanup(func() { closeDriver(t, d) })
	box := create(t, d, sandbox.Spec{ID: "networked", Egress: listed})
	for name, c := range map[string]struct{ script, says string }{
		"HTTP":                            {"curl -sS http://web.test/", "this is web.test"},
		"HTTPS":                           {"curl -sSk https://web.test/", "this is web.test"},
		"a program that knows no proxies": {`node -e 'fetch("http://web.test/").then(r => r.text()).then(console.log)'`, "this is web.test"},
		"another protocol":                {`exec 3<>/dev/tcp/raw.test/4000; head -n1 <&3; echo there >&3; head -n1 <&3`, "hello\nthere\n"},
		"its own loopback": {`perl -MSocket -e 'socket(L, PF_INET, SOCK_STREAM, 0); bind(L, sockaddr_in(3000, INADDR_LOOPBACK)) or die $!; listen(L, 1);
			socket(C, PF_INET, SOCK_STREAM, 0); connect(C, sockaddr_in(3000, INADDR_LOOPBACK)) or die $!; accept(A, L); syswrite(A, "hi"); sysread(C, $x, 2); print $x'`, "hi"},

		"a host that is not allowed":          {"curl -sS http://other.test/", "the environment of this sandbox does not allow other.test:80"},
		"the same with HTTPS":                 {"curl -sSk https://other.test/ 2>&1", "access denied"},
		"an address":                          {"curl -sS http://93.184.216.34/", "does not allow 93.184.216.34:80"},
		"the metadata service":                {"curl -sS http://169.254.169.254/latest/meta-data/", "does not allow 169.254.169.254:80"},
		"a host with a private address":       {"curl -sS http://inside.test/", "inside.test:80 has no public address"},
		"a Host that lies":                    {"curl -sS -H 'Host: other.test' http://web.test/", "does not allow other.test:80"},
		"IPv6":                                {"curl -sS --max-time 20 'http://[2606:4700::1111]:81/' 2>&1", "curl: ("},
		"another name server":                 {`perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); send(S, "\0\1\1\0\0\1\0\0\0\0\0\0\3web\4test\0\0\1\0\1", 0, sockaddr_in(53, inet_aton("8.8.8.8"))) or die $!; recv(S, $x, 512, 0); print length($x) > 30 ? "answered here" : "no"'`, "answered here"},
		"UDP":                                 {`perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); send(S, "x", 0, sockaddr_in(443, inet_aton("8.8.8.8"))) or print $!'`, "not permitted"},
		"SSH to a host that is not allowed":   {`exec 3<>/dev/tcp/other.test/22; cat <&3 | tr -d '\0'`, "does not allow other.test:22"},
		"a command that removes the way back": {"ip route flush table all 2>&1; ip route show table all 2>&1 | wc -l; curl -sS http://web.test/", "this is web.test"},
		"one that wants the gate's port":      {`perl -MSocket -e 'socket(L, PF_INET, SOCK_STREAM, 0); setsockopt(L, SOL_SOCKET, 15, 1); bind(L, sockaddr_in(54, INADDR_ANY)) or print $!'`, "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sh(t, d, box, "exec bash -c '"+strings.ReplaceAll(c.script, "'", `'\''`)+"'"); !strings.Contains(got, c.says) {
				t.Errorf("the command printed %q, want %q", got, c.says)
			}
		})
	}
}

func TestABoxWithoutAPolicyReachesNothing(t *testing.T) {
	t.Parallel()
	d := networked(t, local.Config{})
	defer closeDriver(t, d)
	for id, p := range map[string]egress.Policy{"zero": {}, "none": {Mode: egress.None}} {
		box := create(t, d, sandbox.Spec{ID: id, Egress: p})
		if got := sh(t, d, box, "curl -sS --max-time 20 http://web.test/ 2>&1"); !strings.Contains(got, "Could not resolve host") {
			t.Errorf("%s: the command printed %q", id, got)
		}
	}
}

func TestAPolicyChangesWhileABoxRuns(t *testing.T) {
	t.Parallel()
	d := networked(t, local.Config{})
	defer closeDriver(t, d)
	box := create(t, d, sandbox.Spec{ID: "changing", Egress: egress.Policy{Mode: egress.None}})
	get := func(host string) string { return sh(t, d, box, "curl -sS --max-time 20 http://"+host+"/ 2>&1") }
	set := func(p egress.Policy) {
		t.Helper()
		for range 2 { // repeating it has no effect
			if err := d.SetEgress(t.Context(), box, p); err != nil {
				t.Fatal(fault.From(err).Detail())
			}
		}
	}
	if got := get("web.test"); strings.Contains(got, "this is") {
		t.Errorf("without a network, the command printed %q", got)
	}
	set(listed)
	if got := get("web.test"); got != "this is web.test" {
		t.Errorf("after it was allowed, the command printed %q", got)
	}
	set(egress.Policy{Mode: egress.Listed, Hosts: []string{"other.test"}})
	if got := get("web.test"); !strings.Contains(got, "does not allow") {
		t.Errorf("after it was removed, the command printed %q", got)
	}
	set(egress.Policy{Mode: egress.None})
	if got := get("other.test"); strings.Contains(got, "this is") {
		t.Errorf("after everything was removed, the command printed %q", got)
	}
	set(egress.Policy{Mode: egress.Open})
	if got := get("other.test"); got != "this is other.test" {
		t.Errorf("with an open policy, the command printed %q", got)
	}
	if err := d.SetEgress(t.Context(), strings.Replace(box, "changing", "gone", 1), listed); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a box that is not there: %v", err)
	}
}

// A box has its network again after it is started again, and after the next server continues it.
func TestANetworkOutlivesTheServer(t *testing.T) {
	t.Parallel()
	open := newDoors(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "the doors") }))
	cfg := local.Config{Dir: t.TempDir(), Dial: newInternet(t).dial, Grace: patience, Door: open.take}
	d := networked(t, cfg)
	const get = "curl -sS --max-time 20 http://web.test/ http://arbe.internal/ 2>&1"
	kept := create(t, d, sandbox.Spec{ID: "kept", Egress: listed})
	stopped := create(t, d, sandbox.Spec{ID: "stopped", Egress: listed})
	sh(t, d, kept, "sleep 1000 > /dev/null 2>&1 &")
	closeDriver(t, d)
	d = networked(t, cfg)
	defer halt(t, d)
	for id, box := range map[string]string{"a box that continued": kept, "one that was stopped": stopped} {
		if got := sh(t, d, box, get); got != "this is web.testthe doors" {
			t.Errorf("in %s, the command printed %q", id, got)
		}
	}
	if got := sh(t, d, kept, "pgrep -c sleep"); strings.TrimSpace(got) == "0" {
		t.Error("the first box did not continue")
	}
}

// A box that is deleted ends its connections.
func TestADeletedBoxHasNoConnections(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	d := networked(t, local.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer close(ended)
			_, _ = theirs.Write([]byte("hello\n"))
			_, _ = io.Copy(io.Discard, theirs)
		}()
		return ours, nil
	}})
	defer closeDriver(t, d)
	box := create(t, d, sandbox.Spec{ID: "deleted", Egress: listed})
	if got := sh(t, d, box, "exec bash -c 'exec 3<>/dev/tcp/raw.test/4000; head -n1 <&3; sleep 1000 <&3 >/dev/null 2>&1 &'"); got != "hello\n" {
		t.Fatalf("the command printed %q", got)
	}
	if err := d.Destroy(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the connection goes on")
	}
}

// A refused connection is reported with the command that opened it.
func TestARefusedConnectionNamesItsCommand(t *testing.T) {
	t.Parallel()
	d := networked(t, local.Config{})
	defer closeDriver(t, d)
	const burst = 200
	refused := make(chan sandbox.Refusal, 3+burst) // large enough that the driver never waits for this test
	d.OnRefusal(func(r sandbox.Refusal) { refused <- r })
	box := create(t, d, sandbox.Spec{ID: "refused", Egress: listed})
	next := func() sandbox.Refusal {
		select {
		case r := <-refused:
			return r
		case <-time.After(patience):
			t.Fatal("nothing was reported")
			return sandbox.Refusal{}
		}
	}
	for id, script := range map[string]string{
		"web":        "curl -s http://other.test/",
		"tls":        "curl -sk https://other.test/",
		"background": "curl -s http://other.test:4000/ &",
	} {
		if err := d.Launch(t.Context(), box, id, sandbox.Command{Argv: []string{"sh", "-c", script}}); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if r := next(); r.Launch != id || r.Program != "curl" || r.Host != "other.test" || r.Ref != box {
			t.Errorf("of the command %s, %q of %q to %s in %s was reported", id, r.Program, r.Launch, r, r.Ref)
		}
	}
	// A box cannot make the server search the commands of ever more connections.
	began := time.Now()
	sh(t, d, box, fmt.Sprintf("for i in $(seq %d); do curl -s http://other.test/ & done; wait", burst))
	if n, seconds := len(refused), int(time.Since(began).Seconds()); n == 0 || n > 10*(seconds+2) {
		t.Errorf("%d connections were reported in %d s", n, seconds)
	}
}

// doors serves the connections of boxes to the server's doors.
type doors struct {
	conns        chan net.Conn
	net.Listener // for its address
	closed       chan struct{}
	once         sync.Once
}

func newDoors(t testing.TB, h http.Handler) *doors {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &doors{conns: make(chan net.Conn), Listener: l, closed: make(chan struct{})}
	server := &http.Server{Handler: h, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, sandbox.Labels{}, c.(labelled).from)
	}}
	go server.Serve(d)
	t.Cleanup(func() { server.Close() })
	return d
}

type labelled struct {
	net.Conn
	from sandbox.Labels
}

func (d *doors) take(c net.Conn, from sandbox.Labels) { d.conns <- labelled{c, from} }

func (d *doors) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *doors) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

func TestTheDoorIsReachedFromInside(t *testing.T) {
	t.Parallel()
	closeDriver(t, networked(t, local.Config{Door: sandboxtest.AnswerDoor}))
	dir := t.TempDir()
	sandboxtest.RunDoor(t, func(t *testing.T) sandbox.Driver {
		return newDriver(t, local.Config{Dir: dir, Grace: time.Minute, Door: sandboxtest.AnswerDoor})
	})
}

// Every box reaches the server's doors, regardless of its policy, and otherwise only the hosts that its policy allows.
func TestABoxReachesTheServersDoors(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	open := newDoors(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/house":
			fmt.Fprint(w, r.Context().Value(sandbox.Labels{}).(sandbox.Labels).House)
		case "/count":
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		case "/zeros":
			_, _ = io.CopyN(w, zeros{}, 10<<20)
		case "/events": // the second event comes only after the box got the first
			fmt.Fprint(w, "data: first\n\n")
			w.(http.Flusher).Flush()
			<-more
			fmt.Fprint(w, "data: second\n\n")
		case "/more":
			close(more)
		}
	}))
	d := networked(t, local.Config{Door: open.take})
	defer closeDriver(t, d)
	if d.Door() != egress.DoorOrigin {
		t.Errorf("the driver says that it is at %q", d.Door())
	}
	for id, p := range map[string]egress.Policy{"doored-zero": {}, "doored-none": {Mode: egress.None}, "doored-listed": listed, "doored-open": {Mode: egress.Open}} {
		box := create(t, d, sandbox.Spec{ID: id, Egress: p, Labels: sandbox.Labels{House: "house of " + id}})
		for script, want := range map[string]string{
			"curl -sS http://arbe.internal/house":                                              "house of " + id,
			"wget -qO- http://arbe.internal/house":                                             "house of " + id,
			"curl -sS http://arbe.internal/house http://arbe.internal/house":                   strings.Repeat("house of "+id, 2),
			"head -c 10485760 /dev/zero | curl -sS -T- http://arbe.internal/count":             "10485760 <nil>",
			"curl -sS http://arbe.internal/zeros | wc -c":                                      "10485760\n",
			"curl -sSk https://arbe.internal/house -o /dev/null -w '%{http_code}' 2>/dev/null": "000",
		} {
			if got := sh(t, d, box, script); got != want {
				t.Errorf("%s: %q printed %q, want %q", id, script, got, want)
			}
		}
		if got := sh(t, d, box, "curl -sS --max-time 20 http://other.test/ 2>&1"); p.Mode != egress.Open && !strings.Contains(got, "does not allow") {
			t.Errorf("%s: a host that is not allowed: %q", id, got)
		}
	}
	box := found(t, d, "doored-none")
	const follow = `curl -sSN http://arbe.internal/events | { read -r first; echo "$first"; curl -sS http://arbe.internal/more; cat; }`
	if got := sh(t, d, box, follow); got != "data: first\n\ndata: second\n\n" {
		t.Errorf("of events it printed %q", got)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// The way out of a box is the operator's proxy, which the environment of the server names.
func TestABoxGoesOutThroughTheOperatorsProxy(t *testing.T) {
	hosts := newInternet(t)
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		there, err := hosts.dial(r.Context(), "tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(there, conn) }()
		_, _ = io.Copy(conn, there)
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	t.Setenv("NO_PROXY", "")
	d := newDriver(t, local.Config{Dir: t.TempDir()}) // with its own way out
	defer closeDriver(t, d)
	if !d.Capabilities().Network {
		t.Skip("this machine cannot redirect the connections of sandboxes")
	}
	box := create(t, d, sandbox.Spec{ID: "proxied", Egress: listed})
	for script, want := range map[string]string{
		"curl -sSk https://web.test/":                                           "this is web.test",
		"curl -sS http://web.test/":                                             "this is web.test",
		"exec bash -c 'exec 3<>/dev/tcp/raw.test/4000; head -n1 <&3'":           "hello\n",
		"curl -sS http://other.test/":                                           "does not allow other.test:80",
		"env | grep -ci proxy":                                                  "0\n",       // programs need no setting
		"curl -sS --max-time 20 http://" + proxy.Listener.Addr().String() + "/": "curl: (7)", // it is not reached from inside
	} {
		if got := sh(t, d, box, script+" 2>&1"); !strings.Contains(got, want) {
			t.Errorf("%s printed %q, want %q", script, got, want)
		}
	}
	close(asked)
	got := map[string]int{}
	for a := range asked {
		got[a]++
	}
	if len(got) != 3 || got["CONNECT web.test:443"] != 1 || got["CONNECT web.test:80"] != 1 || got["CONNECT raw.test:4000"] != 1 {
		t.Errorf("the proxy was asked %v", got)
	}
}
