package sandbox

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// drivers are this server's drivers by name. It is safe for concurrent use.
type drivers struct {
	mu    sync.RWMutex
	ready map[string]Driver
	// unavailable are the drivers that this server cannot use, with the reasons. Another server may have them, or
	// this one later.
	unavailable map[string]error
	// wanted is called with the name of an unavailable driver that somebody wants to use.
	wanted func(name string)
	// accounts are the houses' own accounts.
	accounts *accounts
}

// all returns the drivers that are ready.
func (d *drivers) all() map[string]Driver {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return maps.Clone(d.ready)
}

// add makes a driver ready, or records why it still is not.
func (d *drivers) add(name string, driver Driver, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.unavailable[name] = err
		return
	}
	d.ready[name] = driver
	delete(d.unavailable, name)
}

// get returns a driver, or an error that says why there is none.
func (d *drivers) get(name string) (Driver, error) {
	d.mu.RLock()
	driver, ready := d.ready[name]
	err, unavailable := d.unavailable[name]
	known := strings.Join(slices.Sorted(maps.Keys(d.ready)), ", ")
	d.mu.RUnlock()
	switch {
	case ready:
		return driver, nil
	case unavailable:
		if d.wanted != nil {
			d.wanted(name)
		}
		return nil, err
	}
	return nil, fault.Newf(fault.Precondition, "use one of: "+known, "there is no sandbox driver %q on this server", name)
}

// known returns nil if a driver is ready or unavailable, and otherwise the error of get. An unavailable one is enough
// for a recipe, because another server may run it.
func (d *drivers) known(name string) error {
	d.mu.RLock()
	_, unavailable := d.unavailable[name]
	d.mu.RUnlock()
	if unavailable {
		return nil
	}
	_, err := d.get(name)
	return err
}

// checkSecretFiles refuses a recipe that binds a secret as a file if its driver states that it has no such files. A
// driver that is not ready says so itself when a command begins.
func (d *drivers) checkSecretFiles(r Recipe) error {
	d.mu.RLock()
	driver := d.ready[r.driver()]
	d.mu.RUnlock()
	s, states := driver.(Stating)
	if !states || s.Guarantees().SecretFiles {
		return nil
	}
	for _, b := range r.Secrets {
		if b.File != "" {
			return fault.Newf(fault.Invalid, "leave out the file, so that commands receive it as an environment variable, or use another driver",
				"secrets: sandboxes of the driver %s cannot have %s as a file", r.driver(), b.Name)
		}
	}
	return nil
}

// machine returns the machine to which a driver's sandboxes are bound; see [Bound]. It is empty if every server reaches
// them, or if the driver is not ready.
func (d *drivers) machine(name string) string {
	d.mu.RLock()
	driver := d.ready[name]
	d.mu.RUnlock()
	if b, ok := driver.(Bound); ok {
		return b.Machine()
	}
	return ""
}

// withoutTerminals reports whether a driver has no terminals; false if it is not ready.
func (d *drivers) withoutTerminals(name string) bool {
	d.mu.RLock()
	driver, ready := d.ready[name]
	d.mu.RUnlock()
	t, ok := driver.(Terminals)
	return ready && !(ok && t.Launches())
}

// machines returns the machines whose sandboxes this server reaches, sorted.
func (d *drivers) machines() (ids []string) {
	for name := range d.all() {
		if id := d.machine(name); id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// egress returns the policy of a recipe. An empty policy has a default. A driver that does not limit boxes to hosts
// cannot enforce it: its boxes reach whatever the provider allows.
func (d *drivers) egress(r Recipe) egress.Policy {
	d.mu.RLock()
	driver, ready := d.ready[r.driver()]
	d.mu.RUnlock()
	if _, rented := d.accounts.of[r.driver()]; rented && !ready {
		ready = true // for houses with accounts of their own
	}
	if _, gated := driver.(Gated); ready && !gated && r.Egress.Equal(egress.Policy{}) {
		return egress.Policy{Mode: egress.Open}
	}
	return r.egress()
}

// Account describes how a house brings its own key to a driver's provider. A house that has the secret has its boxes
// in its own account, instead of the operator's. A key is tried by listing the boxes of its account.
type Account struct {
	// Secret is the name of the secret with the key, such as DAYTONA_API_KEY.
	Secret string
	// Open returns a driver for the account of a key. It does not ask the provider. The driver connects only to the
	// operator's address or to public addresses, never to a host in the operator's network that the account names. It
	// is not [Gated], and its boxes are not bound to a machine.
	Open func(key string) (Driver, error)
}

// accounts are the houses' own accounts at providers. The key is read for each use, so a new key works at once, and a
// deleted one is not kept. It is safe for concurrent use.
type accounts struct {
	of      map[string]Account // by the driver's name
	secrets *secret.Secrets

	mu     sync.Mutex
	opened map[accountKey]openedAccount
}

type accountKey struct{ house, driver string }

type openedAccount struct {
	revision int64 // of the secret
	driver   Driver
}
