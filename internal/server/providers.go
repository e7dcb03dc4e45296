package server

import (
	"context"
	"log/slog"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/setting"
)

// providers are the sandbox drivers besides the one for this machine. A driver is used if the operator has set what it needs.
// A new one is a line here.
var providers = []provider{
	rented("daytona", daytona.Settings(), daytona.Open),
}

// provider is a sandbox driver that every server of an installation reaches.
type provider struct {
	name     string
	settings []Setting
	open     func(*Config) (sandbox.Driver, error)
}

// rented returns a provider whose configuration is a C. open fails if a setting is missing that it needs, with what to set.
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

// providerSettings are those of all providers.
func providerSettings() (list []Setting) {
	for _, p := range providers {
		list = append(list, p.settings...)
	}
	return list
}

// openProviders adds the drivers of providers to those that are ready, or says why they are not. They need no start, and one
// that is not set up is nothing to warn of.
func (s *Server) openProviders(ready map[string]sandbox.Driver, unavailable map[string]error) {
	for _, p := range providers {
		driver, err := p.open(&s.cfg)
		if err != nil {
			unavailable[p.name] = err
			s.logger.Debug("sandboxes of a provider are not set up", "driver", p.name, slog.String("reason", fault.From(err).Message))
			continue
		}
		ready[p.name] = driver
		s.onStop(func(ctx context.Context) error { return driver.Close(ctx) })
	}
}
