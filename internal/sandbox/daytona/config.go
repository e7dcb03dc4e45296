package daytona

import (
	"time"

	"github.com/arbe-dev/arbe/internal/setting"
)

// Config configures a driver.
type Config struct {
	// APIKey is a key of the account. Required.
	APIKey string
	// URL is the address of the API. Defaults to Daytona's own service.
	URL string
	// Target is the region in which boxes are created. Defaults to that of the account.
	Target string
	// Snapshot is the snapshot of boxes without an image. Defaults to that of the account.
	Snapshot string
	// PerHouse is how many boxes a house may have. Defaults to 20.
	PerHouse int
	// AutoStop is when Daytona stops a box that nobody uses, in case that no server is left to do so. It must be longer than
	// any run, because Daytona does not count processes as use. Defaults to 73 hours.
	AutoStop time.Duration
	// AutoDelete is when it deletes a box that it has stopped. Defaults to a week.
	AutoDelete time.Duration
	// StartLimit is how long a box may take to start, including the build of its image. Defaults to 15 minutes.
	StartLimit time.Duration
	// ThrottleLimit is how long a request waits at most when Daytona says that there are too many. Defaults to a minute.
	ThrottleLimit time.Duration
}

// The defaults of [Config].
const (
	defaultURL        = "https://app.daytona.io/api"
	defaultPerHouse   = 20
	defaultAutoStop   = 73 * time.Hour // the longest time that a coding agent may run, and an hour
	defaultAutoDelete = 7 * 24 * time.Hour
	defaultStartLimit = 15 * time.Minute
	defaultThrottle   = time.Minute
)

// Settings are what an operator can set of the driver.
func Settings() []setting.Setting[Config] {
	return []setting.Setting[Config]{
		setting.Text("daytona_api_key", "", "API key of the Daytona account whose sandboxes environments may use with the driver daytona", func(c *Config) *string { return &c.APIKey }).At("DAYTONA_API_KEY").Masked(),
		setting.Text("daytona_api_url", defaultURL, "address of Daytona's API", func(c *Config) *string { return &c.URL }).At("DAYTONA_API_URL"),
		setting.Text("daytona_target", "", "Daytona's region for sandboxes (default: the account's)", func(c *Config) *string { return &c.Target }).At("DAYTONA_TARGET"),
		setting.Text("daytona_snapshot", "", "Daytona's snapshot for environments without an image (default: the account's)", func(c *Config) *string { return &c.Snapshot }),
		setting.Count("daytona_per_house", "20", "Daytona sandboxes that one house may have", func(c *Config) *int { return &c.PerHouse }),
		setting.Duration("daytona_auto_stop", "73h", "when Daytona stops a sandbox that no server uses; longer than any run", func(c *Config) *time.Duration { return &c.AutoStop }),
		setting.Duration("daytona_auto_delete", "168h", "when Daytona deletes a sandbox that it has stopped", func(c *Config) *time.Duration { return &c.AutoDelete }),
	}
}
