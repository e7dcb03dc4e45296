package bot

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/etag"
	"github.com/arbe-dev/arbe/internal/fault"
)

// CreatePolicy gives a bot of the scope's house another policy. Its ID is ignored.
func (b *Bots) CreatePolicy(ctx context.Context, scope db.Scope, p Policy) (made Policy, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		of, err := b.lockTx(ctx, tx, scope.House, p.Bot)
		if err != nil {
			return err
		}
		if len(of.Policies) >= MaxPolicies {
			return fault.Newf(fault.Exhausted, "delete one of them", "the bot already has %d policies", MaxPolicies)
		}
		if made, err = b.insertPolicy(ctx, tx, scope.House, p); err != nil {
			return err
		}
		return b.recordChangeTx(ctx, tx, scope, of, []string{"policy " + made.Name + " (added)"})
	})
	return made, err
}

// EditPolicy changes a policy of the scope's house and returns it.
func (b *Bots) EditPolicy(ctx context.Context, scope db.Scope, id string, c PolicyChange) (changed Policy, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		was, err := b.lockPolicyTx(ctx, tx, scope.House, id)
		if err != nil {
			return err
		}
		if err := etag.Check(c.ETag, was.ETag(), "this policy"); err != nil {
			return err
		}
		now := was.apply(c)
		if now.Trigger != was.Trigger {
			if err := checkTrigger(now.Trigger); err != nil {
				return err
			}
		}
		if err := now.clean(); err != nil {
			return err
		}
		r, err := b.q.UpdatePolicy(ctx, tx, query.UpdatePolicyParams{ID: id, HouseID: scope.House, Name: now.Name, Trigger: now.Trigger, Config: now.Config,
			ResourceIds: now.Resources, ToolIds: now.Tools, Enabled: now.Enabled})
		if err != nil {
			return err
		}
		if changed = policyFromRow(r); was.same(changed) {
			return nil
		}
		of, err := b.GetTx(ctx, tx, scope.House, was.Bot)
		if err != nil {
			return err
		}
		what := "policy " + changed.Name
		if was.Enabled != changed.Enabled {
			what += map[bool]string{true: " (on)", false: " (off)"}[changed.Enabled]
		}
		return b.recordChangeTx(ctx, tx, scope, of, []string{what})
	})
	return changed, err
}

// DeletePolicy deletes a policy of the scope's house. Deleting one that does not exist succeeds.
func (b *Bots) DeletePolicy(ctx context.Context, scope db.Scope, id string) error {
	return b.db.In(ctx, scope, func(tx pgx.Tx) error {
		was, err := b.lockPolicyTx(ctx, tx, scope.House, id)
		if fault.CodeOf(err) == fault.NotFound {
			return nil
		} else if err != nil {
			return err
		}
		of, err := b.GetTx(ctx, tx, scope.House, was.Bot)
		if err != nil {
			return err
		}
		if err := b.q.DeletePolicy(ctx, tx, id, scope.House); err != nil {
			return err
		}
		return b.recordChangeTx(ctx, tx, scope, of, []string{"policy " + was.Name + " (deleted)"})
	})
}

func (b *Bots) lockPolicyTx(ctx context.Context, tx pgx.Tx, house, id string) (Policy, error) {
	var r query.ActivationPolicy
	of, err := b.q.PolicyBot(ctx, tx, id, house)
	if err == nil {
		err = b.q.LockBotMember(ctx, tx, house, of)
	}
	if err == nil {
		r, err = b.q.LockPolicy(ctx, tx, id, house)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return Policy{}, fault.New(fault.NotFound, "there is no such policy in this house", "show the bot with: arbe bot show")
	}
	return policyFromRow(r), err
}

func (b *Bots) insertPolicy(ctx context.Context, tx pgx.Tx, house string, p Policy) (Policy, error) {
	if err := checkTrigger(p.Trigger); err != nil {
		return Policy{}, err
	}
	if err := p.clean(); err != nil {
		return Policy{}, err
	}
	r, err := b.q.InsertPolicy(ctx, tx, query.InsertPolicyParams{HouseID: house, AgentID: p.Bot, Name: p.Name, Trigger: p.Trigger, Config: p.Config,
		ResourceIds: p.Resources, ToolIds: p.Tools, Enabled: p.Enabled})
	return policyFromRow(r), err
}
