package sandbox

import (
	"fmt"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Maxima are the operator's limits: no recipe and no command gets more. A zero field means no limit.
//
// A recipe that exceeds them cannot be saved. If the operator lowers a maximum later, recipes are reduced when a
// sandbox is built from them, and the thread's log says so.
type Maxima struct {
	Limits
	// CommandTime limits one command, or one step of a preparation.
	CommandTime time.Duration
	// Egress is the most permissive policy of a box. Defaults to [egress.Open].
	Egress egress.Mode
}

// egress restricts a policy to the operator's maximum.
func (m Maxima) egress(p egress.Policy) egress.Policy {
	switch {
	case m.Egress == egress.None:
		return egress.Policy{Mode: egress.None}
	case m.Egress == egress.Listed && p.Mode == egress.Open:
		return egress.Default()
	}
	return p
}

// excess is one value in a recipe that is too large.
type excess struct{ name, asked, most string }

// Bound returns limits with no field above its maximum. Zero fields stay zero.
func (m Maxima) Bound(l Limits) Limits {
	l, _ = m.bound(l)
	return l
}

// bound is like Bound, but also returns the reductions. A new field of [Limits] needs a line here; otherwise it would
// have no maximum.
func (m Maxima) bound(l Limits) (Limits, []excess) {
	var over []excess
	whole := func(name string, value *int, most int) {
		if most > 0 && *value > most {
			over = append(over, excess{name, fmt.Sprint(*value), fmt.Sprint(most)})
			*value = most
		}
	}
	whole("memory_mb", &l.MemoryMB, m.MemoryMB)
	whole("disk_mb", &l.DiskMB, m.DiskMB)
	whole("pids", &l.PIDs, m.PIDs)
	if m.CPUs > 0 && l.CPUs > m.CPUs {
		over = append(over, excess{"cpus", fmt.Sprint(l.CPUs), fmt.Sprint(m.CPUs)})
		l.CPUs = m.CPUs
	}
	return l, over
}

// reduce caps a recipe at the maxima, and returns the reductions.
func (m Maxima) reduce(r Recipe) (Recipe, []excess) {
	var over []excess
	r.Limits, over = m.bound(r.Limits)
	if most := m.time(r.CommandTimeout); r.CommandTimeout > most {
		over = append(over, excess{"command_timeout", r.CommandTimeout.String(), most.String()})
		r.CommandTimeout = most
	}
	return r, over
}

// check returns an error for a recipe that asks for too much.
func (m Maxima) check(r Recipe) error {
	_, over := m.reduce(r)
	if asked := r.egress(); len(over) == 0 && r.Egress.Mode != "" && asked.Mode != m.egress(asked).Mode {
		return fault.Newf(fault.Invalid, "use another mode, or leave it out", "config.egress.mode: the operator allows no more than %s", m.Egress)
	}
	if len(over) == 0 {
		return nil
	}
	return fault.Newf(fault.Invalid, "use a smaller value, or leave it out",
		"config.limits.%s: %s is more than the %s that the operator allows", over[0].name, over[0].asked, over[0].most)
}

// time caps d at the maximum.
func (m Maxima) time(d time.Duration) time.Duration {
	if m.CommandTime > 0 {
		return min(d, m.CommandTime)
	}
	return d
}

// timeout returns the time limit for a command: the requested one, or the recipe's if that is zero. It refuses a limit
// that is too large, because the command would end earlier than its author expects.
func (m Maxima) timeout(asked time.Duration, r Recipe) (time.Duration, error) {
	if asked == 0 {
		return m.time(r.commandTimeout()), nil
	}
	if most := m.time(asked); asked > most {
		return 0, fault.Newf(fault.Invalid, "use a smaller value, or leave it out", "timeout: %v is more than the %v that the operator allows", asked, most)
	}
	return asked, nil
}

// describe lists reductions, one per line.
func describe(over []excess) string {
	var lines []string
	for _, e := range over {
		lines = append(lines, fmt.Sprintf("%s is %s instead of %s: the operator allows no more", e.name, e.most, e.asked))
	}
	return strings.Join(lines, "\n")
}
