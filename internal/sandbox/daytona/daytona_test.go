//go:build linux

package daytona_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona/daytonatest"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

// open returns a driver for a double's account.
func open(t testing.TB, d *daytonatest.Double, change ...func(*daytona.Config)) *remote.Driver {
	t.Helper()
	cfg := daytona.Config{APIKey: daytonatest.Key, URL: d.URL}
	for _, c := range change {
		c(&cfg)
	}
	driver, err := daytona.Open(cfg)
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return driver
}

func TestConformance(t *testing.T) {
	d := daytonatest.New(t)
	sandboxtest.Run(t, false, func(t *testing.T) sandbox.Driver { return open(t, d) })
}

func TestWhatRunsOutlivesItsDriver(t *testing.T) {
	d := daytonatest.New(t)
	sandboxtest.RunSurvival(t, func(t *testing.T) sandbox.Driver { return open(t, d) })
}

func TestLaunchedCommands(t *testing.T) {
	d := daytonatest.New(t)
	sandboxtest.RunLaunches(t, func(t *testing.T) sandbox.Launcher { return open(t, d) })
}

func TestTerminals(t *testing.T) {
	d := daytonatest.New(t)
	sandboxtest.RunTerminals(t, func(t *testing.T) sandbox.Terminals { return open(t, d) })
}

func TestAStoppedBoxIsAsleep(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	ref := create(t, open(t, account), "box")
	d := open(t, account) // has not just used the box, so it asks Daytona
	for state, want := range map[string]bool{"started": false, "stopped": true, "archived": true, "stopping": true, "starting": false} {
		account.SetState(ref, state, nil)
		if asleep, err := d.Asleep(t.Context(), ref); asleep != want || err != nil {
			t.Errorf("a box that is %s is asleep: %v, %v", state, asleep, err)
		}
	}
	if calls := account.Calls(" /api/sandbox/.*/start$"); len(calls) != 0 {
		t.Errorf("asking starts it: %v", calls)
	}
	account.SetState(ref, "destroyed", nil)
	if _, err := d.Asleep(t.Context(), ref); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of one that is gone: %v", err)
	}
}

func TestTheDoorIsReachedFromInside(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	sandboxtest.RunDoor(t, func(t *testing.T) sandbox.Driver { return open(t, account) })
}
