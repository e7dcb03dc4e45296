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
// settings that it needs. A new driver is a line here.
var providers = []provider{
	rented("daytona", daytona.Settings(), daytona.Open, daytona.Account),
	rented("sprite", sprite.Settings(), sprite.Open, sprite.Account),
	rented("docker", docker.Settings(), docker.Open, nil),
}

// provider is a sandbox driver whose boxes run outside this program.
type provider struct {
	name     string
	settings []Setting
	open     func(*Config) (sandbox.Driver, error)
	// account says how houses use the driver with their own keys. It is nil if they cannot.
	account func(*Config) sandbox.Account
}

// rented returns a provider whose configuration is a C. open fails if a setting that it needs is missing, with an error that
// says what to set. It fails with a [fault.Unavailable] if it may work later. account says how houses use the provider with
// their own keys. It is nil if they cannot.
func rented[C any](name string, settings []setting.Setting[C], open func(C) (*remote.Driver, error), account *remote.Account[C]) provider {
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
	opened := func(c C) (sandbox.Driver, error) {
		driver, err := open(c)
		if err != nil {
			return nil, err // return a nil interface, not an interface with a nil *remote.Driver
		}
		return driver, nil
	}
	p := provider{name: name, settings: setting.Within(of, settings...), open: func(c *Config) (sandbox.Driver, error) { return opened(*of(c)) }}
	if account != nil {
		p.account = func(c *Config) sandbox.Account {
			operator := *of(c)
			return sandbox.Account{Secret: account.Secret, Open: func(key string) (sandbox.Driver, error) { return opened(account.Configure(operator, key)) }}
		}
	}
	return p
}

// houseAccounts are the accounts that houses may bring, by the names of drivers.
func houseAccounts(c *Config) map[string]sandbox.Account {
	of := map[string]sandbox.Account{}
	for _, p := range providers {
		if p.account != nil {
			of[p.name] = p.account(c)
		}
	}
	return of
}

// providerSettings returns the settings of all providers.
func providerSettings() (list []Setting) {
	for _, p := range providers {
		list = append(list, p.settings...)
	}
	return list
}
