package command

import (
	"cmp"
	"os"

	"github.com/arbe-dev/arbe/internal/jobs"
)

// New returns the commands of an installation, and registers them with the configuration's jobs.
func New(c Config) *Commands {
	c.SpoolDir = cmp.Or(c.SpoolDir, os.TempDir())
	d := &Commands{
		config: c, queue: Queue(c.Limits), spools: newSpoolRoom(cmp.Or(c.SpoolSize, DefaultSpoolSize)),
		refusals: newRefusals(c.Log, c.Jobs, c.Logger),
	}
	d.relay = &relay{db: c.DB, jobs: c.Jobs, logger: c.Logger, serve: d.serveOther}
	jobs.Add(c.Jobs, jobs.Kind[jobArgs]{Queue: d.queue.Name, Attempts: 1, Unique: true, Adopted: true, Work: d.perform})
	c.Jobs.OnSweep(d.reportWaits)
	c.Jobs.OnNotice(relayTopic, d.relay.noticed)
	c.Boxes.OnRefusal(d.refusals.report)
	return d
}
