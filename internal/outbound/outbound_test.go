package outbound_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/outbound"
)

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "2606:4700:4700::1111": true, "::ffff:8.8.8.8": true, "172.32.0.1": true, "100.128.0.1": true,

		"127.0.0.1": false, "127.8.9.1": false, "::1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
		"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "fc00::1": false, "fd12::1": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fd00:ec2::254": false, "fec0::1": false,
		"100.64.0.1": false, "100.127.255.255": false, "224.0.0.1": false, "239.1.1.1": false, "ff02::1": false, "ff0e::1": false,
		"255.255.255.255": false, "240.0.0.1": false, "192.0.0.192": false, "198.18.0.1": false, "192.0.2.1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:10.0.0.1": false, "::127.0.0.1": false,
		"::ffff:0:127.0.0.1": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::a00:1": false,
		"2002:7f00:1::": false, "2001::1": false, "2001:0:7f00:1::": false, "2001:10::1": false, "2001:db8::1": false,
		"100::1": false, "3fff::1": false, "5f00::1": false, "4000::1": false, "fd00::1%eth0": false, "::1%lo": false,
	} {
		if got := outbound.Public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: public is %v, want %v", text, got, want)
		}
	}
}

func TestTransport(t *testing.T) {
	// Not parallel: it sets the environment.
	reached := 0
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached++
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://[::ffff:127.0.0.1]:1/", http.StatusFound)
		}
	}))
	defer inside.Close()
	t.Setenv("HTTP_PROXY", inside.URL)
	t.Setenv("HTTPS_PROXY", inside.URL)
	address := strings.TrimPrefix(inside.URL, "http://")
	port := address[strings.LastIndex(address, ":"):]

	guarded := http.Client{Transport: outbound.Transport(nil)}
	for _, url := range []string{inside.URL, "http://localhost" + port, "http://[::ffff:127.0.0.1]" + port, "http://0.0.0.0" + port, "http://127.1.2.3" + port} {
		_, err := guarded.Get(url)
		if _, refused := errors.AsType[*outbound.RefusedError](err); !refused {
			t.Errorf("%s: %v, want a refusal", url, err)
		}
	}
	if reached != 0 {
		t.Fatalf("the server inside was reached %d times", reached)
	}
	open := http.Client{Transport: outbound.Transport(func(hostPort string) bool { return hostPort == address })}
	if _, err := open.Get(inside.URL); err != nil || reached != 1 {
		t.Errorf("an allowed destination: %v, reached %d times", err, reached)
	}
	_, err := open.Get(inside.URL + "/away")
	if _, refused := errors.AsType[*outbound.RefusedError](err); !refused {
		t.Errorf("a redirect to a private one: %v, want a refusal", err)
	}
}
