package server

import (
	"cmp"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// local returns the configuration of the driver for this machine, as far as it is in the settings.
func (c Config) local() (local.Config, error) {
	r := reader{}
	cfg := local.Config{
		Runtime: c.SandboxRuntime,
		Images: local.Images{
			Registries: names(c.ImageRegistries), PrivateRegistries: names(c.ImagePrivateRegistries), Credentials: names(c.ImageCredentials),
			SpaceMB: r.count("image_space_mb", c.ImageSpaceMB),
		},
		ReadOnly:       paths(c.SandboxHostDirs),
		FreeMB:         r.count("sandbox_free_disk_mb", c.SandboxFreeDiskMB),
		Running:        r.count("sandboxes_running", c.SandboxesRunning),
		IdleStop:       r.duration("sandbox_idle_stop", c.SandboxIdleStop),
		BackgroundStop: r.duration("sandbox_background_stop", c.SandboxBackgroundStop),
		Grace:          cmp.Or(r.duration("sandbox_grace", c.SandboxGrace), 10*time.Minute),
		Total: sandbox.Limits{
			MemoryMB: r.count("sandboxes_memory_mb", c.SandboxesMemoryMB), PIDs: r.count("sandboxes_pids", c.SandboxesPIDs),
			CPUs: r.number("sandboxes_cpus", c.SandboxesCPUs),
		},
	}
	return cfg, r.err
}

func (c Config) machineGone() (time.Duration, error) {
	r := reader{}
	return r.duration("sandbox_machine_gone", c.SandboxMachineGone), r.err
}

// ownsDatabase reports whether the server starts its own Postgres. Such a server belongs to the person who started it:
// when it is stopped, everything that it started ends. Any other server is a service that is restarted and upgraded: what
// runs in its sandboxes continues for SandboxGrace, and the next server takes it over. After a kill both leave it running.
func (c Config) ownsDatabase() bool { return c.DatabaseURL == "" }

// maxima returns the most that a recipe or a command may have. By default one sandbox may have as much as all sandboxes
// of this machine together.
func (c Config) maxima() (sandbox.Maxima, error) {
	r := reader{}
	m := sandbox.Maxima{
		Limits: sandbox.Limits{
			MemoryMB: r.count("sandbox_max_memory_mb", c.SandboxMaxMemoryMB), DiskMB: r.count("sandbox_max_disk_mb", c.SandboxMaxDiskMB),
			PIDs: r.count("sandbox_max_pids", c.SandboxMaxPIDs), CPUs: r.number("sandbox_max_cpus", c.SandboxMaxCPUs),
		},
		CommandTime: r.duration("sandbox_max_command_time", c.SandboxMaxCommandTime),
	}
	machine := local.MachineTotal()
	if m.MemoryMB == 0 {
		m.MemoryMB = machine.MemoryMB
	}
	if m.CPUs == 0 {
		m.CPUs = float64(runtime.NumCPU())
	}
	if m.DiskMB == 0 {
		m.DiskMB = 32768
	}
	if m.PIDs == 0 {
		m.PIDs = 4096
	}
	if m.CommandTime == 0 {
		m.CommandTime = 4 * time.Hour
	}
	return m, r.err
}

// paths returns the paths in a list, such as PATH.
func paths(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == filepath.ListSeparator })
}

// names returns the names in a list that is separated by commas or spaces.
func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// privateHosts reads the setting of this name, a list of hosts.
func privateHosts(name, list string) (outbound.Hosts, error) {
	hosts, err := outbound.ParseHosts(names(list)...)
	if err != nil {
		return hosts, fault.Newf(fault.Invalid, "give hosts, or host:port, separated by commas", "%s: %v", name, err)
	}
	return hosts, nil
}

// reader reads settings that are not plain text, and keeps the first error, so that a caller checks once for all of
// them.
type reader struct{ err error }

// read returns a setting's value as parse returns it; the zero value if it is not set. A value that cannot be parsed or is
// not above zero is an error.
func read[T int | float64 | time.Duration](r *reader, name, text, example string, parse func(string) (T, error)) T {
	if text == "" {
		return 0
	}
	value, err := parse(text)
	if err == nil && value > 0 {
		return value
	}
	if r.err == nil {
		r.err = fault.Newf(fault.Invalid, "write it as "+example, "%s: %q is not a value for it", name, text)
	}
	return 0
}

// count is a whole number of at most 31 bits, because the database's integers hold no more.
func (r *reader) count(name, text string) int {
	return read(r, name, text, "4096", func(text string) (int, error) {
		n, err := strconv.ParseInt(text, 10, 32)
		return int(n), err
	})
}

func (r *reader) number(name, text string) float64 {
	return read(r, name, text, "1.5", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
}

func (r *reader) duration(name, text string) time.Duration {
	return read(r, name, text, "90m", time.ParseDuration)
}
