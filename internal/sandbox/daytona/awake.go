package daytona

import (
	"context"
	"time"
)

// runStop is how long a box that was in use runs without servers, so that a run outlives them (001, "box lifecycle"). It is the
// longest time that a run may take by 001, and a buffer.
const runStop = 73 * time.Hour

// KeepAwake tells Daytona that a box is used, and to stop it only after runStop; with zero, after [Config.AutoStop] again. Daytona
// does not count processes as use, and stops a box after that time whatever runs in it.
func (p *provider) KeepAwake(ctx context.Context, ref string, least time.Duration) error {
	if err := checkRef(ref); err != nil {
		return err
	}
	after := p.cfg.AutoStop
	if least > 0 {
		after = max(after, runStop)
	}
	_, response, err := p.api.SetAutostopInterval(ctx, ref, float32(minutes(after))).Execute()
	if err := answerError(ctx, response, err); err != nil || least == 0 {
		return err
	}
	response, err = p.api.UpdateLastActivity(ctx, ref).Execute()
	return answerError(ctx, response, err)
}
