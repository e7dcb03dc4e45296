package sprite

import (
	"context"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Meter says whether a box runs, and what that costs.
func (p *provider) Meter(ctx context.Context, ref string) (sandbox.Meter, error) {
	if err := checkRef(ref); err != nil {
		return sandbox.Meter{}, err
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return sandbox.Meter{}, err
	}
	return p.meterOf(box.Status), nil
}

// meterOf reads the meter of a box with a status. Sprites does not charge for the processor and memory of a box that rests or sleeps.
func (p *provider) meterOf(status string) sandbox.Meter {
	m := sandbox.Meter{HourlyMicros: sandbox.HourlyPrice(p.cfg.HourlyMicros, sandbox.PriceUnknown)}
	switch status {
	case "running":
		m.Power = sandbox.PowerOn
	case "warm", "cold":
		m.Power = sandbox.PowerOff
	}
	return m
}
