package sandbox

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// attend prepares a sandbox for a use that begins or continues. Only a box that is gone is an error.
func (r *Resolver) attend(ctx context.Context, p Handle) error {
	if r.awake.due(p.House, p.ID) {
		return r.keep(ctx, p)
	}
	return r.git.refresh(ctx, p)
}

// keep makes the provider keep a box awake, and replaces its git token if that is old. Only a box that is gone is an error.
func (r *Resolver) keep(ctx context.Context, p Handle) error {
	if err := r.awake.ask(ctx, p); err != nil {
		return err
	}
	return r.git.refresh(ctx, p)
}

// KeepAwake keeps the boxes awake on which a thread runs, or in which something ran lately, and lets the others rest. [Resolver.Tend]
// calls it regularly.
func (r *Resolver) KeepAwake(ctx context.Context) {
	began := time.Now()
	var names []string
	err := r.db.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
		names, err = r.Sandboxes.q.BusySandboxes(ctx, tx, query.BusySandboxesParams{
			Providers: r.drivers.resting(), Machines: r.MachineIDs(), Quiet: r.Reaper.quiet.Seconds(), Most: tendedMost,
		})
		return err
	})
	if err != nil {
		r.Reaper.complain(ctx, "", "cannot look for the sandboxes in use", err)
		return
	}
	inUse := map[string]bool{}
	var work sync.WaitGroup
	each := func(house, id string, do func(context.Context, Handle) error) {
		work.Go(func() {
			release, err := r.awake.slots.acquire(ctx, house)
			if err != nil {
				return
			}
			defer release()
			limited, cancel := context.WithTimeout(ctx, 2*awakeTime)
			defer cancel()
			p, err := r.Handle(limited, db.Scope{House: house}, id)
			if err == nil {
				err = do(limited, p)
			}
			if err != nil {
				r.awake.failed(id)
				r.logger.DebugContext(ctx, "a sandbox in use cannot be attended to", "sandbox", id, "error", fault.From(err).Detail())
			}
		})
	}
	for _, name := range names {
		house, id, _ := strings.Cut(name, "/")
		if inUse[id] = true; r.awake.due(house, id) {
			each(house, id, r.keep)
		}
	}
	for id, h := range r.awake.unused(inUse, began) {
		if time.Since(h.asked) < awakeFor { // otherwise it may be asleep, and would be woken
			each(h.house, id, r.awake.rest)
		}
	}
	r.git.forget()
	work.Wait()
}
