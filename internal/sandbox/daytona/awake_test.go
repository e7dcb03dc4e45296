//go:build linux

package daytona_test

import (
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona/daytonatest"
)

// Daytona stops a box whose last activity is too long ago, whatever runs in it.
func TestABoxIsKeptAwakeByActivity(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	d := open(t, account)
	ref := create(t, d, "awake")
	for _, least := range []time.Duration{0, 30 * time.Minute} {
		if err := d.KeepAwake(t.Context(), ref, least); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		told := len(account.Calls("^POST .*/" + ref + "/last-activity$"))
		if want := min(int(least), 1); told != want {
			t.Errorf("to keep it awake for %v, Daytona is told %d times of activity", least, told)
		}
	}
	if got := account.Field(ref, "autoStopInterval"); got != 60 {
		t.Errorf("without activity it is stopped after %v minutes", got)
	}
	if err := d.KeepAwake(t.Context(), "gone", time.Minute); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a box that is gone: %v", err)
	}
}
