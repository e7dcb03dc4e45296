package daytona

import (
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/setting"
)

// Config configures a driver.
type Config struct {
	// APIKey is a key of the account. Required.
	APIKey string
	// URL is the address of the API. Defaults to Daytona's own service.
	URL string
	// Target is the region in which boxes are created. Defaults to the account's.
	Target string
	// Snapshot is used for boxes without an image. Defaults to the account's.
	Snapshot string
	// PerHouse limits the boxes of a house; [remote.Unlimited] means no limit. Defaults to 20.
	PerHouse int
	// Foreign means that the account is not the operator's. Its owner may choose the hosts at which its boxes take commands, so the
	// driver connects only to public addresses and to the API. Defaults to false.
	Foreign bool
	// AutoStop is how long a box may be unused before Daytona stops it. A box on which a thread runs is stopped later; see
	// KeepAwake. Defaults to an hour.
	AutoStop time.Duration
	// AutoDelete is how long Daytona keeps a stopped box before deleting it. Defaults to a week.
	AutoDelete time.Duration
	// HourlyMicros is what an hour of a running box costs, in millionths of a US dollar. Defaults to what Daytona's own service asks
	// for a box of its size; for another service, the price is unknown.
	HourlyMicros *int64
	// StartLimit limits how long a box takes to start, including building its image. Defaults to 15 minutes.
	StartLimit time.Duration
	// ThrottleLimit limits how long a request waits when Daytona says that there are too many. Defaults to a minute.
	ThrottleLimit time.Duration
}

// The defaults of [Config].
const (
	defaultURL        = "https://app.daytona.io/api"
	defaultPerHouse   = 20
	defaultAutoStop   = time.Hour
	defaultAutoDelete = 7 * 24 * time.Hour
	defaultStartLimit = 15 * time.Minute
	defaultThrottle   = time.Minute
)

// Account is how houses use Daytona with keys of their own. It drops the operator's region, snapshot and price, which another
// account does not share.
var Account = &remote.Account[Config]{Secret: "DAYTONA_API_KEY", Configure: func(operator Config, key string) Config {
	operator.APIKey, operator.Foreign, operator.PerHouse = key, true, remote.Unlimited
	operator.Target, operator.Snapshot, operator.HourlyMicros = "", "", nil
	return operator
}}

// Settings returns the driver's settings for operators.
func Settings() []setting.Setting[Config] {
	return []setting.Setting[Config]{
		setting.Text("daytona_api_key", "", "API key of the Daytona account whose sandboxes environments may use with the driver daytona", func(c *Config) *string { return &c.APIKey }).At("DAYTONA_API_KEY").Masked(),
		setting.Text("daytona_api_url", defaultURL, "address of Daytona's API", func(c *Config) *string { return &c.URL }).At("DAYTONA_API_URL"),
		setting.Text("daytona_target", "", "Daytona's region for sandboxes (default: the account's)", func(c *Config) *string { return &c.Target }).At("DAYTONA_TARGET"),
		setting.Text("daytona_snapshot", "", "Daytona's snapshot for environments without an image (default: the account's)", func(c *Config) *string { return &c.Snapshot }),
		setting.Count("daytona_per_house", "20", "Daytona sandboxes that one house may have", func(c *Config) *int { return &c.PerHouse }),
		setting.Duration("daytona_auto_stop", "1h", "how long a sandbox may be unused before Daytona stops it; one on which a thread runs is stopped only if no server has answered for 73 hours", func(c *Config) *time.Duration { return &c.AutoStop }),
		setting.Duration("daytona_auto_delete", "168h", "how long Daytona keeps a stopped sandbox before deleting it", func(c *Config) *time.Duration { return &c.AutoDelete }),
		setting.MicrosIfSet("daytona_price_per_hour", "price of an hour of a running Daytona sandbox, in US dollars; 0 shows no cost (default: what Daytona's own service asks for its CPUs, memory and disk)", func(c *Config) **int64 { return &c.HourlyMicros }),
	}
}
