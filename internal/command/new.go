package command

import (
	"cmp"
	"os"

	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/relay"
)

// New returns the commands of an installation, and registers them with the configuration's jobs.
func New(c Config) *Commands {
	c.SpoolDir = cmp.Or(c.SpoolDir, os.TempDir())
	d := &Commands{
		config: c, queue: Queue(c.Limits), spools: newSpoolSpace(cmp.Or(c.SpoolSize, DefaultSpoolSize)),
		refusals: newRefusals(c.Log, c.Jobs, c.Logger),
	}
	d.relay = relay.New(relay.Config[call, reply]{DB: c.DB, Jobs: c.Jobs, Logger: c.Logger, Topic: "command.call", Serve: d.serveOther, NoReply: errNoReply})
	jobs.Add(c.Jobs, jobs.Kind[jobArgs]{Queue: d.queue.Name, Attempts: 1, Unique: true, Adopted: true, Work: d.perform})
	c.Jobs.OnSweep(d.reportWaits)
	c.Boxes.OnRefusal(d.refusals.report)
	return d
}
