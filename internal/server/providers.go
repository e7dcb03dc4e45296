package server

import (
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona"
	"github.com/arbe-dev/arbe/internal/sandbox/docker"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite"
	"github.com/arbe-dev/arbe/internal/setting"
)

// providers lists the sandbox drivers other than the one for this machine. A driver is used if the operator has set the
// settings that it needs. A new one is a line here.
var providers = []provider{
	rented("daytona", daytona.Settings(), daytona.Open),
	rented("sprite", sprite.Settings(), sprite.Open),
	rented("docker", docker.Settings(), docker.Open),
}

// provider is a sandbox driver whose boxes run outside this program.
type provider struct {
	name     string
	settings []Setting
	open     func(*Config) (sandbox.Driver, error)
}

// rented returns a provider whose configuration is a C. open fails with advice if a required setting is missing, and with a
// [fault.Unavailable] if it may work later.
func rented[C any](name string, settings []setting.Setting[C], open func(C) (*remote.Driver, error)) provider {
	of := func(c *Config) *C {
		if kept, ok := c.Providers[name].(*C); ok {
			return kept
		}
		if c.Providers == nil {
			c.Providers = map[string]any{}
		}
		kept := new(C)
		c.Providers[name] = kept
		return kept
	}
	return provider{name, setting.Within(of, settings...), func(c *Config) (sandbox.Driver, error) {
		driver, err := open(*of(c))
		if err != nil {
			return nil, err // and not a nil *remote.Driver in an interface
		}
		return driver, nil
	}}
}

// providerSettings returns the settings of all providers.
func providerSettings() (list []Setting) {
	for _, p := range providers {
		list = append(list, p.settings...)
	}
	return list
}
