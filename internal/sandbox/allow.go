package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// OnRefusal makes the resolver call f with each refused connection of a launched command on this machine, from any
// goroutine. f must return quickly. Refused connections of a box that is being prepared are in the output of the
// preparation.
func (r *Resolver) OnRefusal(f func(Refusal)) {
	r.refusals.mu.Lock()
	defer r.refusals.mu.Unlock()
	r.refusals.to = f
}

// AllowHosts lets the sandboxes of an environment reach further hosts, written as in [egress.Policy].Hosts. On this
// machine this applies at once, elsewhere from the next command on. If a thread is given, its log says who allowed
// them.
func (r *Resolver) AllowHosts(ctx context.Context, scope db.Scope, id string, hosts []string, threadID string) (env Environment, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		if env, err = environmentFrom(r.Environments.q.LockEnvironment(ctx, tx, id)); err != nil {
			return err
		}
		var drafts []entry.Draft
		for _, host := range hosts {
			env.Recipe.Egress = env.Recipe.Egress.With(host)
			// The id is derived, so the thread gets the entry once, however often the call is repeated.
			sum := sha256.Sum256([]byte(id + "\x00" + host))
			drafts = append(drafts, entry.NewDraft("allowed."+hex.EncodeToString(sum[:16]), scope.Agent, entry.HostAllowed{EnvironmentID: id, Host: host}))
		}
		var config json.RawMessage
		if config, _, err = r.checked(env.Recipe); err != nil {
			return err
		}
		if env, err = environmentFrom(r.Environments.q.UpdateEnvironment(ctx, tx, query.UpdateEnvironmentParams{Config: config, ID: id})); err != nil || threadID == "" {
			return err
		}
		th, err := r.threads.GetTx(ctx, tx, threadID)
		if err == nil {
			_, err = r.log.AppendTx(ctx, tx, th.Stream(), drafts...)
		}
		return err
	})
	if err != nil {
		return Environment{}, err
	}
	r.ApplyEgress(ctx, scope, env)
	return env, nil
}

// ApplyEgress applies an environment's policy at once to its live sandboxes on this machine. All others, and those for
// which this fails, get it with their next command.
func (r *Resolver) ApplyEgress(ctx context.Context, scope db.Scope, env Environment) {
	var rows []query.Sandbox
	err := r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		rows, err = r.Environments.q.LiveSandboxesOf(ctx, tx, env.ID)
		return err
	})
	for _, row := range rows {
		box, failed := sandboxFrom(row, nil)
		if failed != nil || r.Sandboxes.elsewhere(box) {
			continue
		}
		if _, failed := r.gated(ctx, box, env); failed != nil {
			err = failed
		}
	}
	if err != nil {
		r.logger.WarnContext(ctx, "sandboxes that run reach what their environment allows only from their next command on", "environment", env.ID, "error", fault.From(err).Detail())
	}
}
