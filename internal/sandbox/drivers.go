package sandbox

import (
	"maps"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// drivers are the drivers of this server by name. They do not change.
type drivers struct {
	ready map[string]Driver
	// unavailable are the drivers that this server cannot use, and why. Another server may, or this one after its next
	// start.
	unavailable map[string]error
}

// get returns a driver, or an error that says why there is none.
func (d drivers) get(name string) (Driver, error) {
	if driver, ok := d.ready[name]; ok {
		return driver, nil
	}
	if err, ok := d.unavailable[name]; ok {
		return nil, err
	}
	known := strings.Join(slices.Sorted(maps.Keys(d.ready)), ", ")
	return nil, fault.Newf(fault.Precondition, "use one of: "+known, "there is no sandbox driver %q on this server", name)
}

// known returns nil if a driver is ready or unavailable, and otherwise the error of get. An unavailable one is enough
// for a recipe, because another server may run it.
func (d drivers) known(name string) error {
	if _, ok := d.unavailable[name]; ok {
		return nil
	}
	_, err := d.get(name)
	return err
}

// machine returns the machine to which a driver's sandboxes are bound; see [Bound]. It is empty if every server reaches
// them, or if the driver is not ready.
func (d drivers) machine(name string) string {
	if b, ok := d.ready[name].(Bound); ok {
		return b.Machine()
	}
	return ""
}

// machines returns the machines whose sandboxes this server reaches, sorted.
func (d drivers) machines() (ids []string) {
	for name := range d.ready {
		if id := d.machine(name); id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
