//go:build linux

package daytona_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona/daytonatest"
)

func TestAMeterSaysWhetherABoxRuns(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	price := int64(70_000)
	d := open(t, account, func(c *daytona.Config) { c.HourlyMicros = &price })
	ref := create(t, d, "box")
	for state, want := range map[string]sandbox.Power{
		"started": sandbox.PowerOn, "stopped": sandbox.PowerOff, "archived": sandbox.PowerOff, "archiving": sandbox.PowerOff,
		"starting": "", "stopping": "", "something new": "",
	} {
		account.SetState(ref, state, nil)
		got, err := d.Meter(t.Context(), ref)
		if want := (sandbox.Meter{Power: want, HourlyMicros: price}); got != want || err != nil {
			t.Errorf("of a box that is %s it says %+v, %v", state, got, err)
		}
		list, err := d.List(t.Context(), sandbox.Labels{})
		if err != nil || len(list) != 1 || list[0].Meter != got {
			t.Errorf("of a box that is %s, the list says %+v, %v", state, list, err)
		}
	}
	if calls := account.Calls(" /api/sandbox/.*/start$"); len(calls) != 0 {
		t.Errorf("asking starts it: %v", calls)
	}
	if _, err := d.Meter(t.Context(), "gone"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of one that is gone: %v", err)
	}
}

func TestThePriceOfABoxIsWhatDaytonaAsksForItsSize(t *testing.T) {
	t.Parallel()
	for _, box := range []struct {
		url                      string
		cpus, memory, disk, gpus float32
		want                     int64
	}{
		{daytona.DefaultURL, 1, 1, 3, 0, 66_924},
		{daytona.DefaultURL, 4, 8, 10, 0, 332_280},
		{daytona.DefaultURL, 4, 8, 10, 1, sandbox.PriceUnknown},
		{"https://daytona.example.com/api", 1, 1, 3, 0, sandbox.PriceUnknown},
	} {
		if got := daytona.PriceAt(box.url, box.cpus, box.memory, box.disk, box.gpus); got != box.want {
			t.Errorf("an hour of %+v costs %d millionths of a dollar", box, got)
		}
	}
}

// The operator's price is not that of another account.
func TestAHousesOwnAccountHasThePublishedPrice(t *testing.T) {
	t.Parallel()
	price := int64(1)
	if own := daytona.Account.Configure(daytona.Config{HourlyMicros: &price}, "dtn_theirs"); own.HourlyMicros != nil {
		t.Errorf("its price is %d", *own.HourlyMicros)
	}
}
