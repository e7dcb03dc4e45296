package local

import (
	"time"

	"github.com/arbe-dev/arbe/internal/setting"
)

// Settings returns the settings of the driver that an operator can change.
func Settings() []setting.Setting[Config] {
	return []setting.Setting[Config]{
		setting.Text("sandbox_runtime", "runc", "OCI runtime of local sandboxes", func(c *Config) *string { return &c.Runtime }),
		setting.Paths("sandbox_host_dirs", "", "further host directories that local sandboxes see read-only, separated by :; every member can read them", func(c *Config) *[]string { return &c.ReadOnly }),
		setting.Count("sandboxes_memory_mb", "", "MiB of memory of all local sandboxes together (default: by the machine)", func(c *Config) *int { return &c.Total.MemoryMB }),
		setting.Count("sandboxes_pids", "", "processes and threads of all local sandboxes together (default: by the machine)", func(c *Config) *int { return &c.Total.PIDs }),
		setting.Number("sandboxes_cpus", "", "cores of all local sandboxes together (default: by the machine)", func(c *Config) *float64 { return &c.Total.CPUs }),
		setting.Count("sandboxes_running", "64", "local sandboxes that may run at once; the one that is idle longest gives way to another", func(c *Config) *int { return &c.Running }),
		setting.Duration("sandbox_idle_stop", "30m", "when a local sandbox without a command is stopped", func(c *Config) *time.Duration { return &c.IdleStop }),
		setting.Duration("sandbox_background_stop", "12h", "the same, if background processes are still running", func(c *Config) *time.Duration { return &c.BackgroundStop }),
		setting.Duration("sandbox_grace", "10m", "how long what runs in a sandbox outlives its server, so that the next one can continue it", func(c *Config) *time.Duration { return &c.Grace }),
		setting.Names("sandbox_private_hosts", "", "hosts that sandboxes may reach at private addresses, such as a mirror of packages, separated by commas", func(c *Config) *[]string { return &c.PrivateHosts }),
		setting.Count("sandbox_free_disk_mb", "2048", "MiB of disk that local sandboxes and images leave free", func(c *Config) *int { return &c.FreeMB }),
		setting.Count("house_disk_mb", "102400", "MiB of a machine's disk that the local sandboxes and cached environments of one house may take up", func(c *Config) *int { return &c.HouseMB }),
		setting.Count("environment_cache_mb", "20480", "MiB that cached environments may take up together; they give way when the disk is short", func(c *Config) *int { return &c.Layers.SpaceMB }),
		setting.Count("environment_cache_house_mb", "8192", "MiB that the cached environments of one house may take up", func(c *Config) *int { return &c.Layers.HouseMB }),
		setting.Duration("environment_cache_age", "168h", "how long after it was built a cached environment is used", func(c *Config) *time.Duration { return &c.Layers.Age }),
		setting.Names("image_registries", "", "registries that images may come from, separated by commas (default: all)", func(c *Config) *[]string { return &c.Images.Registries }),
		setting.Names("image_private_registries", "", "registries that may be at a private address, separated by commas", func(c *Config) *[]string { return &c.Images.PrivateRegistries }),
		setting.Names("image_credentials", "", "registries that get the server's docker credentials, separated by commas", func(c *Config) *[]string { return &c.Images.Credentials }),
		setting.Count("image_space_mb", "65536", "MiB that unpacked images may take up together", func(c *Config) *int { return &c.Images.SpaceMB }),
	}
}
