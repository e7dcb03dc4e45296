//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// echo is a program that reads a connection to its end and then returns everything. It listens on $1, in a given
// address family, before it goes into the background.
const echo = `perl -MSocket -e '
	my ($family, $address) = $ARGV[0] eq "6" ? (PF_INET6, pack_sockaddr_in6($ARGV[1], "\0" x 15 . "\1")) : (PF_INET, pack_sockaddr_in($ARGV[1], INADDR_LOOPBACK));
	socket(L, $family, SOCK_STREAM, 0) or die $!; setsockopt(L, SOL_SOCKET, SO_REUSEADDR, 1); bind(L, $address) or die $!; listen(L, 50) or die $!;
	exit if fork; open(STDIN, "</dev/null"); open(STDOUT, ">/dev/null"); open(STDERR, ">/dev/null"); $SIG{CHLD} = "IGNORE";
	while (accept(A, L)) { if (fork) { close A; next } my ($all, $x) = ("", ""); $all .= $x while sysread(A, $x, 65536);
		for (my $at = 0; $at < length $all;) { my $n = syswrite(A, $all, 65536, $at) or last; $at += $n } exit }' `

// ports: programs in a box can be reached at their ports, and nothing else can.
func ports(s *suite, t *testing.T) {
	need(t, s.guarantees.Ports, "ports can be reached")
	d, ok := s.driver.(sandbox.Dialer)
	if !ok {
		t.Fatal("the driver states that ports can be reached, and is no Dialer")
	}
	b := s.newBox(t, small)
	dial := func(t *testing.T, port uint16) (sandbox.Conn, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return d.Dial(ctx, b.ref, port)
	}
	echoed := func(t *testing.T, port uint16, size int) {
		conn, err := dial(t, port)
		if err != nil {
			t.Error(fault.From(err).Detail())
			return
		}
		defer conn.Close()
		defer time.AfterFunc(patience, func() { conn.Close() }).Stop()
		sent := make([]byte, size)
		rand.Read(sent)
		go func() {
			conn.Write(sent)
			conn.CloseWrite()
		}()
		if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes came back of %d (%v)", len(got), size, err)
		}
	}
	listens := func(t *testing.T, family int, port uint16) {
		t.Helper()
		if got := b.sh(t, fmt.Sprintf("%s %d %d", echo, family, port)); got.ExitCode != 0 {
			t.Fatalf("the program does not listen: %s", got.stderr)
		}
	}
	listens(t, 4, 3000)
	t.Run("what is sent comes, whatever it is, and so does the end", func(t *testing.T) { echoed(t, 3000, 300_000) })
	t.Run("a program may listen on IPv6 alone", func(t *testing.T) {
		if b.sh(t, "grep -q ' lo$' /proc/net/if_inet6").ExitCode != 0 {
			t.Skip("this sandbox has no IPv6") // Docker before version 26 disables it
		}
		listens(t, 6, 3001)
		echoed(t, 3001, 10)
	})
	t.Run("many connections at once", func(t *testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { echoed(t, 3000, 5000) })
		}
		all.Wait()
	})
	t.Run("nothing listens", func(t *testing.T) {
		if _, err := dial(t, 3002); !errors.Is(err, sandbox.ErrNobodyListens) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("what listens outside the box is not reached", func(t *testing.T) {
		need(t, s.guarantees.SharedHost, sharedHost)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, port := range []uint16{uint16(l.Addr().(*net.TCPAddr).Port), 53, 54} { // inside, the server itself uses 53 and 54
			if _, err := dial(t, port); !errors.Is(err, sandbox.ErrNobodyListens) {
				t.Errorf("port %d: the error is %v", port, err)
			}
		}
	})
	t.Run("connections end with the box", func(t *testing.T) {
		conn, err := dial(t, 3000)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := b.driver.Destroy(t.Context(), b.ref); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { io.Copy(io.Discard, conn); close(ended) }()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("it goes on")
		}
		if _, err := dial(t, 3000); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("another connection: %v", err)
		}
	})
}
