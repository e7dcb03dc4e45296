//go:build linux

package daytona_test

import (
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona/daytonatest"
)

// Daytona stops a box whose last activity is too long ago, whatever runs in it. A run goes on for three days without servers.
func TestABoxInUseIsKeptAwake(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	d := open(t, account)
	ref := create(t, d, "awake")
	for i, use := range []struct {
		least     time.Duration
		told      int // requests that tell of activity
		stopAfter int // in minutes
	}{{0, 0, 60}, {30 * time.Minute, 1, 73 * 60}, {30 * time.Minute, 2, 73 * 60}, {0, 2, 60}} {
		if err := d.KeepAwake(t.Context(), ref, use.least); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if told := len(account.Calls("^POST .*/" + ref + "/last-activity$")); told != use.told {
			t.Errorf("%d: Daytona was told %d times of activity, want %d", i, told, use.told)
		}
		if after := account.Field(ref, "autoStopInterval"); after != use.stopAfter {
			t.Errorf("%d: it is stopped after %v minutes, want %d", i, after, use.stopAfter)
		}
	}
	if err := d.KeepAwake(t.Context(), "gone", time.Minute); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a box that is gone: %v", err)
	}
}
