//go:build linux

package sandboxtest

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// network: a box has its own loopback and nothing else.
func network(s *suite, t *testing.T) {
	need(t, s.guarantees.NoNetwork, "no network")
	b := s.newBox(t, small)
	// dial exits with 0 when the address answers.
	dial := func(family, address string) string {
		return fmt.Sprintf(`perl -MSocket -e 'socket(S, %s, SOCK_STREAM, 0) or exit 2; alarm 20; exit(connect(S, %s) ? 0 : 1)'`, family, address)
	}
	b.verify(t, []check{
		{name: "loopback is the only interface", script: "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", stdout: "lo\n"},
		{name: "there are no routes", script: "tail -n +2 /proc/net/route"},
		{
			name: "its own loopback works",
			script: `perl -MSocket -e 'socket(L, PF_INET, SOCK_STREAM, 0); bind(L, sockaddr_in(3000, INADDR_LOOPBACK)) or die $!; listen(L, 1);
				socket(C, PF_INET, SOCK_STREAM, 0); connect(C, sockaddr_in(3000, INADDR_LOOPBACK)) or die $!; accept(A, L); syswrite(C, "hi"); sysread(A, $x, 2); print $x'`,
			stdout: "hi",
		},
		{name: "names do not resolve", script: "getent hosts example.com", fails: true},
		{name: "no packets from outside can be read", script: "perl -MSocket -e 'socket(S, PF_INET, SOCK_RAW, 1) or exit 1'", fails: true},
	})
	t.Run("addresses outside are refused at once", func(t *testing.T) {
		for _, address := range []string{"169.254.169.254", "10.0.2.2", "192.168.0.1", "8.8.8.8"} {
			// It must be refused at once, because programs would otherwise wait for an answer that never comes. For an
			// address that does not answer, dial ends with its alarm, which gives a different exit code.
			if got := b.sh(t, dial("PF_INET", fmt.Sprintf(`sockaddr_in(80, inet_aton("%s"))`, address))); got.ExitCode != 1 {
				t.Errorf("%s: exit code %d", address, got.ExitCode)
			}
		}
	})
	t.Run("the host's loopback cannot be reached", func(t *testing.T) {
		need(t, s.guarantees.SharedHost, sharedHost)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		for _, address := range []string{"127.0.0.1", "127.1.2.3", "0.0.0.0"} {
			if got := b.sh(t, dial("PF_INET", fmt.Sprintf(`sockaddr_in(%d, inet_aton("%s"))`, port, address))); got.ExitCode != 1 {
				t.Errorf("%s: exit code %d", address, got.ExitCode)
			}
		}
		if got := b.sh(t, dial("PF_INET6", fmt.Sprintf(`pack_sockaddr_in6(%d, inet_pton(AF_INET6, "::ffff:127.0.0.1"))`, port))); got.ExitCode == 0 {
			t.Error("reached through IPv6")
		}
	})
	t.Run("the host's abstract sockets cannot be reached", func(t *testing.T) {
		need(t, s.guarantees.SharedHost, sharedHost)
		name := "arbe-suite-" + freshID()
		l, err := net.Listen("unix", "@"+name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := b.sh(t, dial("PF_UNIX", `pack_sockaddr_un("\0`+name+`")`)); got.ExitCode != 1 {
			t.Errorf("exit code %d", got.ExitCode)
		}
		if got := b.sh(t, "cat /proc/net/unix"); strings.Contains(got.stdout, name) {
			t.Error("it is listed inside")
		}
	})
	t.Run("two boxes do not reach each other", func(t *testing.T) {
		other := s.newBox(t, small)
		other.sh(t, `perl -MSocket -e 'socket(L, PF_INET, SOCK_STREAM, 0); bind(L, sockaddr_in(3001, INADDR_LOOPBACK)) or die $!; listen(L, 1) or die $!; exit if fork; sleep 100'`)
		if got := other.sh(t, dial("PF_INET", "sockaddr_in(3001, INADDR_LOOPBACK)")); got.ExitCode != 0 {
			t.Fatalf("the other box does not even reach itself: %+v", got)
		}
		if got := b.sh(t, dial("PF_INET", "sockaddr_in(3001, INADDR_LOOPBACK)")); got.ExitCode != 1 {
			t.Errorf("exit code %d", got.ExitCode)
		}
	})
}
