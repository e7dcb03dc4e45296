package server

import (
	"context"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/run"
)

// runs returns what runs of coding agents need from the packages that they do not know.
func (p *starting) runs() run.Config {
	return run.Config{
		Bots: p.bots, Limits: p.cfg.Runs, StreamURL: "http://" + egress.DoorHost + "/api/stream",
		Token: func(ctx context.Context, house, thread, bot string, epoch int64) (string, error) {
			t, err := p.auth.CreateRunToken(ctx, house, thread, bot, epoch)
			return t.Token, err
		},
		Program: func(arch string) ([]byte, error) {
			return nil, fault.Newf(fault.Unimplemented, "use another machine", "there is no runner for %s", arch)
		},
	}
}
