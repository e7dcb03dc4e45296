//go:build linux

package sprite_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite/spritetest"
)

// open returns a driver for a double's organization.
func open(t testing.TB, d *spritetest.Double, change ...func(*sprite.Config)) *remote.Driver {
	t.Helper()
	cfg := sprite.Config{Token: spritetest.Token, URL: d.URL}
	for _, c := range change {
		c(&cfg)
	}
	driver, err := sprite.Open(cfg)
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return driver
}

func TestConformance(t *testing.T) {
	d := spritetest.New(t)
	sandboxtest.Run(t, false, func(t *testing.T) sandbox.Driver { return open(t, d) })
}

func TestWhatRunsOutlivesItsDriver(t *testing.T) {
	d := spritetest.New(t)
	sandboxtest.RunSurvival(t, func(t *testing.T) sandbox.Driver { return open(t, d) })
}

func TestLaunchedCommands(t *testing.T) {
	d := spritetest.New(t)
	sandboxtest.RunLaunches(t, func(t *testing.T) sandbox.Launcher { return open(t, d) })
}

func TestTerminals(t *testing.T) {
	d := spritetest.New(t)
	sandboxtest.RunTerminals(t, func(t *testing.T) sandbox.Terminals { return open(t, d) })
}

func TestABoxThatHasLostWhatRanIsAsleep(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	ref := create(t, open(t, account), "box")
	d := open(t, account) // has not just used the box, so it asks Sprites
	for _, want := range []bool{false, true} {
		if asleep, err := d.Asleep(t.Context(), ref); asleep != want || err != nil {
			t.Errorf("it is asleep: %v, %v, want %v", asleep, err, want)
		}
		account.Sleep(ref)
	}
	if got := account.Boxes()[ref].Status; got != "cold" {
		t.Errorf("asking has woken it: %s", got)
	}
}

func TestTheDoorIsReachedFromInside(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	sandboxtest.RunDoor(t, func(t *testing.T) sandbox.Driver { return open(t, account) })
}
