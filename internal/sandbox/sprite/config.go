package sprite

import (
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/setting"
)

// Config configures a driver.
type Config struct {
	// Token is a token of the organization. Required.
	Token string
	// URL is the address of the API. Defaults to the service's own.
	URL string
	// PerHouse limits the boxes of a house; [remote.Unlimited] means no limit. Defaults to 20.
	PerHouse int
	// HourlyMicros is what an hour of a running box costs, in millionths of a US dollar. Defaults to unknown: Sprites charges for the
	// processor time and the memory that a box uses, and does not tell them.
	HourlyMicros *int64
	// StartLimit limits how long a box takes to run its first program. Defaults to 3 minutes.
	StartLimit time.Duration
	// ThrottleLimit limits how long a request waits when the service says that there are too many. Defaults to a minute.
	ThrottleLimit time.Duration
}

// The defaults of [Config].
const (
	defaultURL        = "https://api.sprites.dev"
	defaultPerHouse   = 20
	defaultStartLimit = 3 * time.Minute
	defaultThrottle   = time.Minute
)

// Account is how houses use Sprites with tokens of their own. The driver connects only to the API's host, which the operator
// chooses.
var Account = &remote.Account[Config]{Secret: "SPRITES_TOKEN", Configure: func(operator Config, key string) Config {
	operator.Token, operator.PerHouse, operator.HourlyMicros = key, remote.Unlimited, nil
	return operator
}}

// Settings returns the driver's settings for operators.
func Settings() []setting.Setting[Config] {
	return []setting.Setting[Config]{
		setting.Text("sprite_token", "", "token of the Sprites organization whose sandboxes environments may use with the driver sprite", func(c *Config) *string { return &c.Token }).At("SPRITES_TOKEN").Masked(),
		setting.Text("sprite_api_url", defaultURL, "address of the Sprites API", func(c *Config) *string { return &c.URL }),
		setting.Count("sprite_per_house", "20", "Sprites that one house may have", func(c *Config) *int { return &c.PerHouse }),
		setting.MicrosIfSet("sprite_price_per_hour", "price of an hour of a running Sprite, in US dollars; 0 shows no cost (default: unknown, because Sprites charges for use that it does not tell)", func(c *Config) **int64 { return &c.HourlyMicros }),
	}
}
