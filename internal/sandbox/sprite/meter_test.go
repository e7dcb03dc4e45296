//go:build linux

package sprite_test

import (
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite/spritetest"
)

// Sprites charges for use that it does not tell, so there is no price unless the operator sets one.
func TestAMeterSaysWhetherABoxRuns(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	price := int64(500_000)
	for want, d := range map[int64]sandbox.Metered{
		sandbox.PriceUnknown: open(t, account),
		price:                open(t, account, func(c *sprite.Config) { c.HourlyMicros = &price }),
	} {
		expect := func(ref string, power sandbox.Power) {
			t.Helper()
			got, err := d.Meter(t.Context(), ref)
			if want := (sandbox.Meter{Power: power, HourlyMicros: want}); got != want || err != nil {
				t.Errorf("it says %+v, %v, want %+v", got, err, want)
			}
			list, err := d.List(t.Context(), sandbox.Labels{})
			if err != nil || len(list) != 1 || list[0].Meter != got {
				t.Errorf("the list says %+v, %v", list, err)
			}
		}
		ref := create(t, d, "box")
		expect(ref, sandbox.PowerOn)
		account.Rest(ref, time.Now())
		expect(ref, sandbox.PowerOff)
		account.Sleep(ref)
		expect(ref, sandbox.PowerOff)
		if err := d.Destroy(t.Context(), ref); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if _, err := d.Meter(t.Context(), ref); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("of one that is gone: %v", err)
		}
	}
}
