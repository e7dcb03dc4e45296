package sandbox

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

// probeTime limits the probe of one box in a sweep.
const probeTime = 5 * time.Second

// confirmAbsent asks the provider about each live sandbox whose box is not in its list, and marks those that are gone as dead.
// Absence from the list proves nothing: the box may be newer than the list. A sandbox about which the provider cannot say
// anything is left alone for a while, so it does not delay the others.
func (r *Reaper) confirmAbsent(ctx context.Context, in swept, listed []Box) {
	there := make(map[string]bool, len(listed))
	for _, b := range listed {
		there[b.ID] = true
	}
	const what = "cannot find out whether a sandbox still exists"
	after := ""
	for more := true; more && ctx.Err() == nil; {
		names, err := r.liveIn(ctx, in, after)
		if err != nil {
			r.complain(ctx, in.house, "cannot look for sandboxes whose boxes are gone", err)
			return
		}
		more = len(names) == tendedMost && !in.own
		for _, name := range names {
			house, id, _ := strings.Cut(name, "/")
			if after = id; there[id] || !r.rests.over(what+id) || ctx.Err() != nil {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, probeTime)
			alive, err := r.Confirm(limited, db.Scope{House: house}, id)
			cancel()
			if err != nil {
				r.complain(ctx, id, what, err)
			}
			if alive == Unknown {
				r.rests.begin(what+id, sweepEach)
				continue
			}
			r.rests.end(what + id)
			if alive == Gone {
				r.logger.WarnContext(ctx, "the box of a sandbox is gone; its threads continue in a new one", "driver", in.name, "sandbox", id)
			}
		}
	}
}

// liveIn returns live sandboxes that are swept together, each as house/id, with ids after a given one. In a house's own account
// these are all, because a house has few.
func (r *Reaper) liveIn(ctx context.Context, in swept, after string) (names []string, err error) {
	err = r.db.In(ctx, db.Scope{House: in.house}, func(tx pgx.Tx) (err error) {
		names = nil
		if !in.own {
			names, err = r.sandboxes.q.LiveSandboxes(ctx, tx, query.LiveSandboxesParams{
				Provider: in.name, Machines: r.machines.MachineIDs(), After: after, Most: tendedMost,
			})
			return err
		}
		rows, err := r.sandboxes.q.OwnSandboxes(ctx, tx, in.house, []string{in.name}, tendedMost)
		for _, row := range rows {
			if Status(row.Status) == StatusLive {
				names = append(names, row.HouseID+"/"+row.ID)
			}
		}
		return err
	})
	return names, err
}
