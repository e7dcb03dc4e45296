//go:build linux

package hostbox_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest/hostbox"
)

func TestABoxIsItsOwnAndItsUserBecomesRoot(t *testing.T) {
	b, err := hostbox.New(t).Create("some-box")
	if err == nil {
		err = b.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Remove() })
	for script, want := range map[string]string{
		"id -u; sudo -n id -u": "1000\n0\n", "hostname; pwd": "some-box\n/\n", "touch /usr/x || touch /x || echo closed": "closed\n",
	} {
		cmd, err := b.Command(t.Context(), hostbox.User, "/bin/sh", "-c", script+" 2>/tmp/said; cat /tmp/said >&2")
		if err != nil {
			t.Fatal(err)
		}
		if out, err := cmd.Output(); string(out) != want || err != nil {
			t.Errorf("%s: %q, %v", script, out, err)
		}
	}
}
