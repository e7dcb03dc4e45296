//go:build linux

package local_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// Most programs of BenchmarkEgress are perl. They get a host, a port, and what to send before anything else. What they send starts
// with how bulk answers.
const (
	perlConnect = `use Time::HiRes "time"; my ($host, $port, $hello) = @ARGV; $hello = pack "H*", $hello; my $to = sockaddr_in($port, inet_aton($host));
		sub begin { socket(S, PF_INET, SOCK_STREAM, 0); connect(S, $to) or die $!; syswrite(S, "$hello$_[0]") } `
	connects = perlConnect + `my @t; for (1..300) { my $t = time; begin("g"); sysread(S, my $x, 1) or die "no answer"; push @t, time - $t; close S } @t = sort { $a <=> $b } @t; print 1000 * $t[150]`
	reads    = perlConnect + `begin("r"); my ($t, $n) = (time, 0); while (my $r = sysread(S, my $x, 1 << 18)) { $n += $r } $n >= 1 << 30 or die "$n bytes"; print $n / 1048576 / (time - $t)`
	writes   = perlConnect + `begin("w"); my $t = time; my $x = "x" x (1 << 18); syswrite(S, $x) for 1..4096; shutdown(S, 1); sysread(S, my $y, 1) or die "no answer"; print 1024 / (time - $t)`
)

// The others are shell scripts with curl, which really encrypt. They get a host, a port, and the options of curl that lead there.
const (
	downloads = `curl -sSk $3 -o /dev/null -w '%{speed_download}' "https://$1:$2/"`
	uploads   = `head -c 1G /dev/zero | curl -sSk $3 -T - -o /dev/null -w '%{speed_upload}' "https://$1:$2/"`
)

// BenchmarkEgress compares connections of a program in a box with those of the same program on the machine itself, both
// within one run: of a box that may reach every host, and through what judges listed ones, by the server name of TLS and by the Host
// of requests. It measures the time from a new connection to its first byte, and the throughput in each direction.
func BenchmarkEgress(b *testing.B) {
	needRoot(b)
	hosts := newInternet(b)
	for _, port := range []string{"5000", "443", "80"} {
		hosts["bulk.test:"+port] = bulk(b)
	}
	hosts["secure.test:443"] = secure(b)
	d := networked(b, local.Config{Dial: hosts.dial})
	defer closeDriver(b, d)
	open := create(b, d, sandbox.Spec{ID: "open", Egress: egress.Policy{Mode: egress.Open}})
	closed := create(b, d, sandbox.Spec{ID: "listed", Egress: egress.Policy{Mode: egress.Listed, Hosts: []string{"bulk.test", "secure.test"}}})
	hello := fmt.Sprintf("%x", helloOf(b, "bulk.test"))
	for _, c := range []struct{ name, box, program, port, hello, unit string }{
		{"open/connect", open, connects, "5000", "", "ms"}, {"open/read", open, reads, "5000", "", "MB/s"}, {"open/write", open, writes, "5000", "", "MB/s"},
		{"tls/connect", closed, connects, "443", hello, "ms"}, {"tls/read", closed, reads, "443", hello, "MB/s"}, {"tls/write", closed, writes, "443", hello, "MB/s"},
		{"http/connect", closed, connects, "80", requestFor("g"), "ms"}, {"http/read", closed, reads, "80", requestFor("r"), "MB/s"},
		{"https/read", closed, downloads, "443", "", "MB/s"}, {"https/write", closed, uploads, "443", "", "MB/s"},
	} {
		b.Run(c.name, func(b *testing.B) {
			// The machine may be busy, so the three are measured in turns, and the best of each counts.
			var inside, direct, relayed float64
			best := math.Max
			if c.unit == "ms" {
				inside, direct, relayed, best = math.Inf(1), math.Inf(1), math.Inf(1), math.Min
			}
			host := "bulk.test:" + c.port
			if strings.HasPrefix(c.name, "https/") {
				host = "secure.test:443"
			}
			through := relay(b, hosts[host])
			for range b.N {
				inside = best(inside, measureInside(b, d, c.box, commandLine(b, c.program, host, host, c.hello)))
				direct = best(direct, measureHere(b, commandLine(b, c.program, host, hosts[host], c.hello)))
				relayed = best(relayed, measureHere(b, commandLine(b, c.program, host, through, c.hello)))
			}
			b.ReportMetric(inside, c.unit)
			b.ReportMetric(direct, "direct-"+c.unit)
			if c.unit == "ms" {
				b.ReportMetric(inside-direct, "added-ms")
			}
			b.ReportMetric(inside/direct, "ratio")
			b.ReportMetric(inside/relayed, "to-relay")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// commandLine returns the command line of a program that reaches a host at an address.
func commandLine(b *testing.B, program, host, at, hello string) []string {
	b.Helper()
	if strings.Contains(program, "curl") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			b.Fatal(err)
		}
		return []string{"bash", "-c", program, "bash", name, port, "--connect-to " + host + ":" + at}
	}
	name, port, err := net.SplitHostPort(at)
	if err != nil {
		b.Fatal(err)
	}
	return []string{"perl", "-MSocket", "-e", program, name, port, hello}
}

// measureInside returns the number that a program prints in a box.
func measureInside(b *testing.B, d *local.Driver, box string, argv []string) float64 {
	b.Helper()
	var out strings.Builder
	if _, err := d.Exec(b.Context(), box, sandbox.Command{Argv: argv, Stdout: &out, Stderr: &out}); err != nil {
		b.Fatal(err)
	}
	return number(b, out.String())
}

// measureHere returns the number that a program prints on this machine.
func measureHere(b *testing.B, argv []string) float64 {
	b.Helper()
	said, err := exec.CommandContext(b.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, said)
	}
	return number(b, string(said))
}

func number(b *testing.B, text string) float64 {
	b.Helper()
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		b.Fatalf("the program printed %q", text)
	}
	if n > 1e6 {
		return n / (1 << 20) // curl prints bytes
	}
	return n
}

// relay starts a relay to an address, and returns its own. It does nothing but let the kernel move the bytes, so it is what a
// gate that judges nothing could reach.
func relay(b *testing.B, to string) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	half := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // splice(2), because both are TCP connections
		_ = to.(*net.TCPConn).CloseWrite()
	}
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer here.Close()
				there, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer there.Close()
				go half(there, here)
				half(here, there)
			}()
		}
	}()
	return l.Addr().String()
}

// helloOf returns the first message of a client of TLS, which names its host.
func helloOf(b *testing.B, host string) []byte {
	b.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() { _ = tls.Client(client, &tls.Config{ServerName: host}).Handshake(); client.Close() }()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		b.Fatal(err)
	}
	hello := append(head, make([]byte, int(head[3])<<8|int(head[4]))...)
	if _, err := io.ReadFull(server, hello[5:]); err != nil {
		b.Fatal(err)
	}
	return hello
}

// requestFor returns a request in hexadecimal digits, whose path says how bulk answers.
func requestFor(how string) string {
	return fmt.Sprintf("%x", "GET /"+how+" HTTP/1.1\r\nHost: bulk.test\r\nConnection: close\r\n\r\n")
}

// secure starts a host that answers HTTPS: it sends 1 GiB, or reads what it gets.
func secure(b *testing.B) string {
	b.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		piece := make([]byte, 1<<18)
		for range 4096 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	b.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// bulk starts a host that sends 1 GiB to a client that sends r, reads everything from a client that sends w, and sends one byte to
// one that sends g. Before that, a client may send a hello of TLS. A request of HTTP says it in its path.
func bulk(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveBulk(conn)
		}
	}()
	return l.Addr().String()
}

func serveBulk(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	how, size := "", 1
	switch first, _ := r.Peek(1); string(first) {
	case "\x16": // a record of a TLS handshake
		head, err := r.Peek(5)
		if err != nil {
			return
		}
		_, _ = r.Discard(5 + (int(head[3])<<8 | int(head[4])))
	case "G":
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if how = request.URL.Path[1:]; how == "r" {
			size = 1 << 30
		}
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", size)
	}
	if how == "" {
		first, _ := r.ReadByte()
		how = string(first)
	}
	switch how {
	case "w":
		_, _ = io.Copy(io.Discard, r)
		fmt.Fprint(conn, ".")
	case "g":
		fmt.Fprint(conn, ".")
	default:
		piece := make([]byte, 1<<18)
		for range 4096 {
			if _, err := conn.Write(piece); err != nil {
				return
			}
		}
	}
}
