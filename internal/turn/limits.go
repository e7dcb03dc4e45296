package turn

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
)

// Limits restrict what a bot does. A field that is 0 has its default.
type Limits struct {
	// Steps is how many model calls a turn may have. Defaults to 40.
	Steps int
	// Tokens is how many tokens these calls may read and write, not counting reads from a cache. Defaults to 1,000,000.
	Tokens int64
	// Micros is what a turn may cost, in millionths of a US dollar. Defaults to 1 dollar.
	Micros int64
	// Time is how long a turn may take, not counting waits for people. Defaults to 30 minutes.
	Time time.Duration
	// Answer is how long a question to people waits for their answer. Defaults to 24 hours.
	Answer time.Duration
	// ThreadMicros and HouseMicros are what all turns of the thread and of the house may cost in a day (UTC), in
	// millionths of a dollar. Default to 10 and 50 dollars.
	ThreadMicros, HouseMicros int64
}

func (l Limits) withDefaults() Limits {
	if l.Steps == 0 {
		l.Steps = 40
	}
	if l.Time == 0 {
		l.Time = 30 * time.Minute
	}
	if l.Answer == 0 {
		l.Answer = 24 * time.Hour
	}
	for _, f := range []struct {
		field *int64
		value int64
	}{{&l.Tokens, 1_000_000}, {&l.Micros, 1e6}, {&l.ThreadMicros, 10e6}, {&l.HouseMicros, 50e6}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return l
}

// nearly is the share of a limit from which on an entry says that it is near.
const nearly = 0.8

// meter is one limit and how much of it is used.
type meter struct {
	name      string
	used, max float64
	// words says what is used up, and next how to continue.
	words, next string
}

// daily reports whether it is a limit per day, which all turns share.
func (m meter) daily() bool { return strings.HasSuffix(m.name, "_usd_day") }

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
	// The id makes it one entry even if another server continues the turn.
	id := entry.TurnPrefix + r.turn.ID + ".near." + m.name
	return entry.NewDraft(id, "", entry.LimitNear{TurnID: r.turn.ID, AgentID: r.turn.Bot, Limit: m.name, Used: round(m.used), Max: round(m.max)})
}

// round keeps as many digits as people read.
func round(x float64) float64 { return float64(int64(x*1e4+0.5)) / 1e4 }

// scope returns the scope of the turn's house and bot.
func (r *run) scope() db.Scope { return db.Scope{House: r.turn.House, Agent: r.turn.Bot} }
