package run

import (
	"cmp"
	"math"
	"time"

	"github.com/arbe-dev/arbe/internal/jobs"
)

// Queue returns the queue of runs.
func Queue(l jobs.Limits) jobs.Queue {
	return jobs.Queue{Name: queue, Workers: workers, Limits: l, Poll: time.Second}
}

// New returns the runs of an installation. It registers the launch job with c.Jobs.
func New(c Config) *Runs {
	c.Limits = c.Limits.withDefaults()
	c.RootMost = cmp.Or(c.RootMost, math.MaxInt32)
	r := &Runs{config: c, posts: posts{byThread: map[string]*posting{}}, sights: sights{byThread: map[string]sight{}}}
	jobs.Add(c.Jobs, jobs.Kind[launchArgs]{Queue: queue, Attempts: 1, Unique: true, Adopted: true, Work: r.work})
	return r
}
