package turn

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
)

// timeMeter returns the limit of the turn's time.
func (r *run) timeMeter() meter {
	limit := r.bot.Limits.withDefaults().Time
	return r.turnMeter("turn_minutes", r.turn.worked().Minutes(), limit.Minutes(), fmt.Sprintf("the turn has taken %s, which is its limit", limit))
}

// turnMeter returns a limit of one turn.
func (r *run) turnMeter(name string, used, limit float64, words string) meter {
	return meter{name, used, limit, words, "let it try again, which begins a new turn, or have an owner raise " + limitOfBot(r.bot.Handle, name)}
}

// meters returns all limits of the turn.
func (r *run) meters(ctx context.Context) (list []meter, err error) {
	var used query.TurnUsedRow
	var shared []meter
	err = r.db.In(ctx, r.scope(), func(tx pgx.Tx) (err error) {
		if used, err = queries.TurnUsed(ctx, tx, r.turn.ID); err == nil {
			shared, err = r.spender().metersTx(ctx, tx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.used = used
	l := r.bot.Limits.withDefaults()
	return append([]meter{
		r.turnMeter("turn_steps", float64(r.turn.Steps), float64(l.Steps), fmt.Sprintf("the bot called its model %d times without coming to an end", l.Steps)),
		r.turnMeter("turn_tokens", float64(used.Input+used.Output+used.CacheWrite), float64(l.Tokens), fmt.Sprintf("the turn has used all of its %d tokens", l.Tokens)),
		r.turnMeter("turn_usd", dollars(used.CostMicros), dollars(l.Micros), fmt.Sprintf("a turn of this bot may cost $%.2f, and that is spent", dollars(l.Micros))),
		r.timeMeter(),
	}, shared...), nil
}

// spender returns the turn's Spender.
func (r *run) spender() Spender {
	return Spender{House: r.turn.House, Thread: r.turn.Thread, Root: r.turn.Root, Bot: r.bot.Handle, Limits: r.bot.Limits, Roots: r.Roots}
}

// limited returns a limit that is reached; nil if none is. It reports limits that are near, once each.
func (r *run) limited(ctx context.Context) (*meter, error) {
	list, err := r.meters(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if m.used >= m.max {
			return &m, nil
		}
	}
	for _, m := range list {
		if m.used < nearly*m.max || r.reported[m.name] {
			continue
		}
		if _, err := r.log.Append(ctx, r.ref, r.near(m)); err != nil {
			return nil, err
		}
		r.reported[m.name] = true
	}
	return nil, nil
}

// near returns the entry that says that a limit is near.
func (r *run) near(m meter) entry.Draft {
	// With this id there is only one such entry, even if another server continues the turn.
	id := entry.TurnPrefix + r.turn.ID + ".near." + m.name
	return entry.NewDraft(id, "", entry.LimitNear{TurnID: r.turn.ID, AgentID: r.turn.Bot, Limit: m.name, Used: round(m.used), Max: round(m.max)})
}
