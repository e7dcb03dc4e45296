//go:build linux

package sandboxtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// AnswerDoor stands in for a server's doors: it answers each request of a box's connection with the house of the box, the
// length of the request, and as many bytes.
func AnswerDoor(conn net.Conn, from sandbox.Labels) {
	defer conn.Close()
	requests := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		text := fmt.Sprintf("%s:%d:%s", from.House, len(body), body)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		if r.Close {
			return
		}
	}
}

// knock posts $3 bytes to a door at the host $1 and the port $2, and prints the answer.
const knock = `perl -MSocket -e '
	my ($host, $port, $size) = @ARGV; $SIG{PIPE} = "IGNORE"; alarm 100;
	socket(S, PF_INET, SOCK_STREAM, 0) or die $!; connect(S, sockaddr_in($port, inet_aton($host) || die "no address")) or die $!;
	my $all = "POST /api/stream/x HTTP/1.0\r\nHost: $host\r\nContent-Length: $size\r\n\r\n" . "x" x $size;
	for (my $at = 0; $at < length $all;) { my $n = syswrite(S, $all, 65536, $at) or last; $at += $n }
	my ($answer, $x) = ("", ""); $answer .= $x while sysread(S, $x, 65536); print substr($answer, index($answer, "\r\n\r\n") + 4)' `

// RunDoor checks that a program in a box whose environment allows no network reaches the server's doors, and nothing else if the
// driver carries the connections itself. newDriver is called twice, for the same boxes; a [sandbox.Doored] driver passes
// connections to [AnswerDoor].
func RunDoor(t *testing.T, newDriver func(t *testing.T) sandbox.Driver) {
	d := &doorSuite{house: freshID(), public: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprintf(conn, "HTTP/1.0 200 OK\r\n\r\npublic:%d:", r.ContentLength)
			conn.Close()
		}
	}))}
	t.Cleanup(d.public.Close)
	d.open(t, newDriver)
	ref, err := d.driver.Create(t.Context(), sandbox.Spec{
		ID: freshID(), Labels: sandbox.Labels{Installation: "doors", House: d.house}, Limits: small, Egress: egress.Policy{Mode: egress.None}, Door: d.public.URL,
	})
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	t.Cleanup(func() {
		if err := d.driver.Destroy(context.Background(), ref); err != nil {
			t.Error(fault.From(err).Detail())
		}
		_ = d.driver.Close(context.Background())
	})
	d.box = &box{suite: &suite{driver: d.driver}, ref: ref}
	d.find(t)
	t.Run("a program reaches it", func(t *testing.T) { d.wantAnswer(t, 10) })
	if !d.own {
		return // a server at a public address is not the driver's
	}
	t.Run("what is sent comes, whatever its size", func(t *testing.T) { d.wantAnswer(t, 3_000_000) })
	t.Run("many programs at once", func(t *testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { d.wantAnswer(t, 300_000) })
		}
		all.Wait()
	})
	t.Run("nothing else is reached", d.nothingElse)
	t.Run("it is back after a command that ends everything", func(t *testing.T) {
		d.box.sh(t, "kill -9 -1")
		again := fmt.Sprintf("until %s %s %s 5 2>/dev/null; do sleep 0.1; done", knock, d.host, d.port) // where a command can end the door
		if got, want := d.box.sh(t, again).stdout, d.house+":5:xxxxx"; got != want {
			t.Errorf("the door answers %q, want %q", got, want)
		}
	})
	t.Run("the next server opens it for what runs on", func(t *testing.T) { d.nextServer(t, newDriver) })
}

// doorSuite is one [RunDoor].
type doorSuite struct {
	driver     sandbox.Driver
	box        *box
	house      string
	public     *httptest.Server
	own        bool // the driver carries the connections
	host, port string
}

func (d *doorSuite) open(t *testing.T, newDriver func(t *testing.T) sandbox.Driver) {
	d.driver = newDriver(t)
	if relaying, ok := d.driver.(sandbox.Relaying); ok {
		relaying.OnDoor(AnswerDoor)
	}
}

// find finds the door of the box.
func (d *doorSuite) find(t *testing.T) {
	t.Helper()
	origin := ""
	if doored, ok := d.driver.(sandbox.Doored); ok {
		origin = doored.Door()
	}
	if relaying, ok := d.driver.(sandbox.Relaying); ok {
		var err error
		if origin, err = relaying.Relay(t.Context(), d.box.ref); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}
	if d.own = origin != ""; !d.own {
		origin = d.public.URL
	}
	at, err := url.Parse(origin)
	if err != nil {
		t.Fatal(err)
	}
	if d.host, d.port = at.Hostname(), at.Port(); d.port == "" {
		d.port = "80"
	}
}

func (d *doorSuite) wantAnswer(t *testing.T, size int) {
	t.Helper()
	got := d.box.sh(t, fmt.Sprintf("%s %s %s %d", knock, d.host, d.port, size))
	want := fmt.Sprintf("public:%d:", size)
	if d.own {
		want = fmt.Sprintf("%s:%d:%s", d.house, size, strings.Repeat("x", size))
	}
	if got.stdout != want {
		t.Errorf("the door answers %.100q (%d bytes, exit code %d, %q), want %.100q", got.stdout, len(got.stdout), got.ExitCode, got.stderr, want)
	}
}

// nothingElse checks that this machine is not reached, at any of its addresses.
func (d *doorSuite) nothingElse(t *testing.T) {
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	reached := make(chan string, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(reached)
				return
			}
			reached <- conn.LocalAddr().String()
			conn.Close()
		}
	}()
	hosts := []string{"127.0.0.1", d.host}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range interfaces {
		if ip, ok := address.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			hosts = append(hosts, ip.IP.String())
		}
	}
	for _, host := range hosts {
		// A connection may be accepted, and then end, because a driver may refuse it only when it knows what it is for.
		d.box.sh(t, fmt.Sprintf("%s %s %d 5 2>/dev/null", knock, host, l.Addr().(*net.TCPAddr).Port))
	}
	l.Close()
	for at := range reached {
		t.Errorf("%s of this machine is reached", at)
	}
}

// nextServer checks that a launched command reaches the door of a driver that is opened after its own.
func (d *doorSuite) nextServer(t *testing.T, newDriver func(t *testing.T) sandbox.Driver) {
	launcher, ok := d.driver.(sandbox.Launcher)
	need(t, ok && launcher.Launches(), "commands outlive their server")
	const id = "knocks"
	again := fmt.Sprintf("until test -e next; do sleep 0.1; done; until %s %s %s 5 2>/dev/null; do sleep 0.2; done", knock, d.host, d.port)
	if err := launcher.Launch(t.Context(), d.box.ref, id, sandbox.Command{Argv: []string{"sh", "-c", again}, Merged: true}); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if err := d.driver.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.open(t, newDriver)
	d.box = &box{suite: &suite{driver: d.driver}, ref: d.box.ref}
	next := d.driver.(sandbox.Launcher)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := d.driver.Upload(ctx, d.box.ref, "next", 0o644, strings.NewReader("")); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	var said strings.Builder
	err := next.Follow(ctx, d.box.ref, id, 0, func(r sandbox.Record) error { said.Write(r.Data); return nil })
	if want := d.house + ":5:xxxxx"; err != nil || said.String() != want {
		t.Errorf("the door answers %q, want %q (%v)", said.String(), want, err)
	}
}
