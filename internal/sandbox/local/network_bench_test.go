//go:build linux

package local_test

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// BenchmarkEgress compares connections of a program in a box with those of the same program on the machine itself, both
// within one run. It measures the time of a new connection, and the throughput in each direction.
func BenchmarkEgress(b *testing.B) {
	needRoot(b)
	hosts := newInternet(b)
	hosts["bulk.test:5000"] = bulk(b)
	d := networked(b, local.Config{Dial: hosts.dial})
	defer closeDriver(b, d)
	box := create(b, d, sandbox.Spec{ID: "measured", Egress: egress.Policy{Mode: egress.Open}})
	measure := func(b *testing.B, program, boxHost, there string) (inside, direct float64) {
		b.Helper()
		argv := func(host string) []string {
			name, port, _ := net.SplitHostPort(host)
			return []string{"perl", "-MSocket", "-MTime::HiRes=time", "-e", program, name, port}
		}
		number := func(text string) float64 {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				b.Fatalf("the program printed %q", text)
			}
			return n
		}
		var out strings.Builder
		if _, err := d.Exec(b.Context(), box, sandbox.Command{Argv: argv(boxHost), Stdout: &out, Stderr: &out}); err != nil {
			b.Fatal(err)
		}
		at := argv(there)
		said, err := exec.CommandContext(b.Context(), at[0], at[1:]...).CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %s", err, said)
		}
		return number(out.String()), number(string(said))
	}
	const connects = `my $to = sockaddr_in($ARGV[1], inet_aton($ARGV[0])); my @t; for (1..300) { my $t = time; socket(S, PF_INET, SOCK_STREAM, 0); connect(S, $to) or die $!; sysread(S, $x, 6); push @t, time - $t; close S } @t = sort { $a <=> $b } @t; print 1000 * $t[150]`
	const reads = `socket(S, PF_INET, SOCK_STREAM, 0); connect(S, sockaddr_in($ARGV[1], inet_aton($ARGV[0]))) or die $!; syswrite(S, "r"); my $t = time; my $n = 0; while (my $r = sysread(S, $x, 1 << 18)) { $n += $r } print $n / 1048576 / (time - $t)`
	const writes = `socket(S, PF_INET, SOCK_STREAM, 0); connect(S, sockaddr_in($ARGV[1], inet_aton($ARGV[0]))) or die $!; syswrite(S, "w"); my $t = time; my $x = "x" x (1 << 18); syswrite(S, $x) for 1..4096; shutdown(S, 1); sysread(S, $y, 1); print 1024 / (time - $t)`
	for _, c := range []struct{ name, program, host, unit string }{
		{"connect", connects, "raw.test:4000", "ms"}, {"read", reads, "bulk.test:5000", "MB/s"}, {"write", writes, "bulk.test:5000", "MB/s"},
	} {
		b.Run(c.name, func(b *testing.B) {
			var inside, direct float64
			for range b.N {
				i, d := measure(b, c.program, c.host, hosts[c.host])
				inside, direct = inside+i, direct+d
			}
			n := float64(b.N)
			b.ReportMetric(inside/n, c.unit)
			b.ReportMetric(direct/n, "direct-"+c.unit)
			b.ReportMetric(inside/direct, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// bulk starts a host that sends 1 GiB to a client that sends r, and reads everything from a client that sends w.
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
			go func() {
				defer conn.Close()
				var how [1]byte
				_, _ = io.ReadFull(conn, how[:])
				if how[0] == 'w' {
					_, _ = io.Copy(io.Discard, conn)
					fmt.Fprint(conn, ".")
					return
				}
				piece := make([]byte, 1<<18)
				for range 4096 {
					if _, err := conn.Write(piece); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
