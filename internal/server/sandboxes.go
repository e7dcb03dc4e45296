package server

import (
	"cmp"
	"runtime"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/setting"
)

// ownsDatabase reports whether the server starts its own Postgres. Such a server belongs to the person who started it, and
// stopping it ends everything that it started. Any other server is a service that is restarted and upgraded. Work in its
// sandboxes continues for its grace period, and the next server takes the work over. In both cases, a kill leaves the work
// running.
func (c Config) ownsDatabase() bool { return c.DatabaseURL == "" }

// maxima returns the limits of recipes and commands.
func (c Config) maxima() sandbox.Maxima {
	machine, byDefault := local.MachineTotal(), setting.Defaults(Settings).Maxima
	return sandbox.Maxima{
		Limits: sandbox.Limits{
			MemoryMB: cmp.Or(c.Maxima.MemoryMB, machine.MemoryMB), CPUs: cmp.Or(c.Maxima.CPUs, float64(runtime.NumCPU())),
			DiskMB: cmp.Or(c.Maxima.DiskMB, byDefault.DiskMB), PIDs: cmp.Or(c.Maxima.PIDs, byDefault.PIDs),
		},
		CommandTime: cmp.Or(c.Maxima.CommandTime, byDefault.CommandTime), Egress: cmp.Or(c.Maxima.Egress, byDefault.Egress),
	}
}
