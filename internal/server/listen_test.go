package server_test

import (
	"net"
	"testing"

	"github.com/arbe-dev/arbe/internal/server"
)

func TestTheAddressForProgramsOnThisMachine(t *testing.T) {
	t.Parallel()
	for listens, want := range map[string]string{
		"127.0.0.1": "http://127.0.0.1:8420",
		"0.0.0.0":   "http://127.0.0.1:8420",
		"::":        "http://127.0.0.1:8420",
		"10.1.2.3":  "http://10.1.2.3:8420",
	} {
		if got := server.LocalURL(&net.TCPAddr{IP: net.ParseIP(listens), Port: 8420}); got != want {
			t.Errorf("a server that listens on %s is reached at %s, want %s", listens, got, want)
		}
	}
}
