package daytona

import (
	"context"
	"math"

	api "github.com/daytonaio/daytona/libs/api-client-go"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// What Daytona's own service asks for an hour of a running box, in US dollars: for each virtual CPU, and for each GiB of memory and
// disk. A stopped box costs its disk only, which is not counted.
const (
	cpuPrice    = 0.0504
	memoryPrice = 0.0162
	diskPrice   = 0.000108
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
	return p.meterOf(box), nil
}

// meterOf reads the meter of a box. It says nothing about a box that is changing.
func (p *provider) meterOf(box *api.Sandbox) sandbox.Meter {
	m := sandbox.Meter{HourlyMicros: sandbox.HourlyPrice(p.cfg.HourlyMicros, sandbox.PriceUnknown)}
	if p.cfg.HourlyMicros == nil && p.cfg.URL == defaultURL && box.Gpu == 0 {
		m.HourlyMicros = int64(math.Round(1e6 * (float64(box.Cpu)*cpuPrice + float64(box.Memory)*memoryPrice + float64(box.Disk)*diskPrice)))
	}
	switch {
	case box.GetState() == api.SANDBOXSTATE_STARTED:
		m.Power = sandbox.PowerOn
	case stopped(box), box.GetState() == api.SANDBOXSTATE_ARCHIVING:
		m.Power = sandbox.PowerOff
	}
	return m
}
