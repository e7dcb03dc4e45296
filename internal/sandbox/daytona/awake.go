package daytona

import (
	"context"
	"time"
)

// KeepAwake tells Daytona that a box is used. Daytona stops a box that nobody has used for [Config.AutoStop], whatever runs in it.
// So the box runs for that long, which must be longer than what is asked for, and there is nothing to take back.
func (p *provider) KeepAwake(ctx context.Context, ref string, least time.Duration) error {
	if err := checkRef(ref); err != nil {
		return err
	}
	if least == 0 {
		return nil
	}
	response, err := p.api.UpdateLastActivity(ctx, ref).Execute()
	return answerError(ctx, response, err)
}
