//go:build linux

package sprite_test

import (
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite/spritetest"
)

// A task keeps a box awake as long as it is asked for, and no longer than Sprites allows.
func TestABoxIsKeptAwakeByATask(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	d := open(t, account)
	ref := create(t, d, "awake")
	status := func(after time.Duration) string {
		t.Helper()
		account.Rest(ref, time.Now().Add(after))
		return account.Boxes()[ref].Status
	}
	keep := func(least time.Duration) {
		t.Helper()
		if err := d.KeepAwake(t.Context(), ref, least); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}
	keep(0) // repeating it, and taking back nothing, is harmless
	if got := status(0); got != "warm" {
		t.Errorf("a box without a task is %s", got)
	}
	keep(30 * time.Minute)
	if got := status(29 * time.Minute); got != "running" {
		t.Errorf("before its task ends, a box is %s", got)
	}
	keep(2 * time.Hour)
	if got := status(59 * time.Minute); got != "running" {
		t.Errorf("a box that is to be kept awake for longer than a task lasts is %s", got)
	}
	if got := status(61 * time.Minute); got != "warm" {
		t.Errorf("after its task has ended, a box is %s", got)
	}
	keep(30 * time.Minute)
	keep(0)
	if got := status(0); got != "warm" || len(account.Tasks(ref)) != 0 {
		t.Errorf("a box whose task was taken away is %s", got)
	}
}
