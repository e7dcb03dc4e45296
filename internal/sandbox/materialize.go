package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// buildsAtOnce is how many machines one server makes at the same time. Each holds a connection.
	buildsAtOnce = 16
	// settleWithin is how long a server tries to write what became of a machine while the database is away.
	settleWithin = time.Minute
)

// yard is where one server makes machines.
type yard struct {
	places chan struct{}
	mu     sync.Mutex
	builds map[string]*construction // by the sandbox's id
}

// construction is one machine being made, for everyone on this server who waits for it.
type construction struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	box     Sandbox // of done
	err     error
}

func newYard() *yard {
	return &yard{places: make(chan struct{}, buildsAtOnce), builds: map[string]*construction{}}
}

// join begins to make a machine with work, or joins who does.
func (y *yard) join(ctx context.Context, id string, work func(context.Context) (Sandbox, error)) *construction {
	y.mu.Lock()
	defer y.mu.Unlock()
	c, ok := y.builds[id]
	if !ok {
		// It goes on as long as anybody waits for it, not only who came first.
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		c = &construction{cancel: cancel, done: make(chan struct{})}
		y.builds[id] = c
		go func() {
			defer cancel()
			defer close(c.done)
			c.box, c.err = work(ctx)
			y.mu.Lock()
			defer y.mu.Unlock()
			y.forget(id, c)
		}()
	}
	c.waiting++
	return c
}

// leave is for who waits no longer; the last one ends the construction, and sees that nothing is left of it.
func (y *yard) leave(id string, c *construction) {
	y.mu.Lock()
	c.waiting--
	last := c.waiting == 0
	if last {
		y.forget(id, c)
		c.cancel()
	}
	y.mu.Unlock()
	if last {
		<-c.done
	}
}

// forget lets nobody else join. Callers hold the lock.
func (y *yard) forget(id string, c *construction) {
	if y.builds[id] == c {
		delete(y.builds, id)
	}
}

// materialize makes the machine of a pending row, once, whoever else asks for it. When the machine cannot
// be made ready, nothing of it stays, everyone who waits is told why, and the next who asks tries again.
func (r *Resolver) materialize(ctx context.Context, scope db.Scope, threadID, id string) (Sandbox, error) {
	c := r.yard.join(ctx, id, func(ctx context.Context) (Sandbox, error) { return r.make(ctx, scope, threadID, id) })
	select {
	case <-c.done:
		return c.box, c.err
	case <-ctx.Done():
		r.yard.leave(id, c)
		return Sandbox{}, ctx.Err()
	}
}

// make is materialize for the one who does it on this server; a lock in the database keeps the other
// servers waiting for the result.
func (r *Resolver) make(ctx context.Context, scope db.Scope, threadID, id string) (Sandbox, error) {
	unlock, err := r.lock(ctx, id)
	if err != nil {
		return Sandbox{}, err
	}
	defer unlock()
	box, err := r.Sandbox(ctx, scope, id)
	switch {
	case fault.CodeOf(err) == fault.NotFound || box.Status == StatusDead:
		return Sandbox{}, errOvertaken // given up by another server
	case err != nil || box.Status == StatusLive:
		return box, err
	}
	env, err := r.Environment(ctx, scope, box.Environment)
	if err != nil {
		return Sandbox{}, err
	}
	driver, err := r.driver(box.Provider)
	if err != nil {
		return Sandbox{}, err
	}
	ref, steps, err := r.build(ctx, driver, Spec{
		ID: box.ID, Image: env.Recipe.Image, Limits: env.Recipe.Limits,
		Labels: Labels{House: scope.House, Thread: threadID, Environment: env.ID},
	}, env.Recipe)
	built := err == nil
	// Whether or not anybody still waits, the row must say what became of the machine.
	ctx = context.WithoutCancel(ctx)
	box, settleErr := r.settle(ctx, scope, threadID, box, ref, steps, built)
	if built && settleErr == nil && box.Status == StatusDead {
		settleErr = fault.New(fault.Aborted, "the sandbox was destroyed while it was being made", "run the command again")
		r.demolish(ctx, driver, ref, id)
	}
	return box, errors.Join(err, settleErr)
}

// lock waits until no other server makes this machine. The lock's connection is none of the pool's: it is
// held while others are needed, and those who wait for one another must not be able to take them all.
func (r *Resolver) lock(ctx context.Context, id string) (unlock func(), err error) {
	select {
	case r.yard.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	unlock = func() { <-r.yard.places }
	conn, err := pgx.ConnectConfig(ctx, r.db.Pool().Config().ConnConfig)
	if err != nil {
		unlock()
		return nil, db.Explain(err)
	}
	unlock = func() {
		conn.Close(context.WithoutCancel(ctx)) // the lock ends with it
		<-r.yard.places
	}
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtextextended('arbe.sandbox.' || $1, 0))", id); err != nil {
		unlock()
		return nil, db.Explain(err)
	}
	return unlock, nil
}

// build makes a box and makes it ready: the repository cloned, the setup script run. It returns what was
// done. When it fails, the box is destroyed.
func (r *Resolver) build(ctx context.Context, d Driver, spec Spec, recipe Recipe) (ref string, steps []entry.PreparationStep, err error) {
	// A server that was killed while it did this may have left a box in the middle of its preparation.
	left, err := d.List(ctx, Labels{House: spec.Labels.House, Environment: spec.Labels.Environment})
	if err != nil {
		return "", nil, err
	}
	for _, box := range left {
		if box.ID == spec.ID {
			if err := d.Destroy(ctx, box.Ref); err != nil {
				return "", nil, err
			}
		}
	}
	if ref, err = d.Create(ctx, spec); err != nil {
		return "", nil, err
	}
	if steps, err = r.prepare(ctx, d, ref, recipe); err != nil {
		r.demolish(ctx, d, ref, spec.ID)
	}
	return ref, steps, err
}

// demolish destroys a box that nobody will use; one that stays is found by [Resolver.Sweep].
func (r *Resolver) demolish(ctx context.Context, d Driver, ref, id string) {
	if err := d.Destroy(context.WithoutCancel(ctx), ref); err != nil {
		r.logger.Warn("cannot destroy a sandbox that will not be used", "sandbox", id, "error", err)
	}
}

// settle writes what became of a machine that was being made, tells the thread, and returns the row. It
// tries again while the database is away: a machine may have taken long to make.
func (r *Resolver) settle(ctx context.Context, scope db.Scope, threadID string, box Sandbox, ref string, steps []entry.PreparationStep, built bool) (Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for {
		settled := box
		err := r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
			if settled, err = r.settleTx(ctx, tx, box, ref, built); err != nil || len(steps) == 0 {
				return err
			}
			th, err := r.threads.GetTx(ctx, tx, threadID)
			if fault.CodeOf(err) == fault.NotFound {
				return nil // deleted meanwhile: nobody to tell
			} else if err != nil {
				return err
			}
			// The id makes it harmless to write this again.
			said := entry.NewDraft("prepared."+box.ID, "", entry.EnvironmentPrepared{SandboxID: box.ID, Steps: steps})
			_, err = r.log.AppendTx(ctx, tx, th.Stream(), said)
			return err
		})
		if fault.CodeOf(err) != fault.Unavailable {
			return settled, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return box, err
		}
	}
}

// settleTx is the row's part of settle.
func (r *Resolver) settleTx(ctx context.Context, tx pgx.Tx, box Sandbox, ref string, built bool) (Sandbox, error) {
	row, err := sandboxFrom(r.q.LockSandbox(ctx, tx, box.ID))
	if fault.CodeOf(err) == fault.NotFound || row.Status == StatusDead {
		box.Status = StatusDead // destroyed while it was being made
		return box, nil
	} else if err != nil {
		return box, err
	}
	if built {
		box.Ref, box.Status = ref, StatusLive
		return box, r.q.MarkSandboxLive(ctx, tx, ref, box.ID)
	}
	box.Status = StatusDead
	sharing, err := r.q.ThreadsOnSandbox(ctx, tx, box.ID)
	if err != nil {
		return box, err
	}
	if sharing > 1 { // they stay together, and are resumed together by the next who asks
		return box, r.q.MarkSandboxDead(ctx, tx, box.ID)
	}
	return box, r.q.DeleteSandbox(ctx, tx, box.ID) // the thread on it has none again
}
