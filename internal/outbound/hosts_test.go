package outbound_test

import (
	"net/url"
	"testing"

	"github.com/arbe-dev/arbe/internal/outbound"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	h, err := outbound.ParseHosts("models.lan", "127.0.0.1:11434", "[fd00::1]:8080", "fd00::2", "hooks.lan:443")
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"http://models.lan/v1": true, "https://models.lan:9000": true, "http://MODELS.lan.:1": true, "http://other.lan": false,
		"http://127.0.0.1:11434/v1": true, "http://127.0.0.1:5432": false, "http://127.0.0.1": false, "http://127.0.0.2:11434": false,
		"http://[fd00::1]:8080": true, "http://[fd00:0::1]:8080": true, "http://[fd00::1]": false, "http://[fd00::2]:1": true,
		"https://hooks.lan": true, "http://hooks.lan": false, "http://hooks.lan:443": true,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.AllowsURL(u); got != want {
			t.Errorf("%s: allowed is %v, want %v", address, got, want)
		}
	}
	var none outbound.Hosts
	if none.Allows("models.lan:80") {
		t.Error("the zero value allows one")
	}
	for _, wrong := range []string{"", ":80", "models.lan:", "models.lan:http", "models.lan:0", "models.lan:65536", "http://models.lan", "a:1:2"} {
		if _, err := outbound.ParseHosts(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
