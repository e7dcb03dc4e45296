package server

import (
	"cmp"
	"runtime"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/setting"
)

// ownsDatabase reports whether the server starts its own Postgres. Such a server belongs to the person who started it:
// when it is stopped, everything that it started ends. Any other server is a service that is restarted and upgraded: what
// runs in its sandboxes continues for its grace, and the next server takes it over. After a kill both leave it running.
func (c Config) ownsDatabase() bool { return c.DatabaseURL == "" }

// maxima returns the most that a recipe or a command may have.
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
