package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/policy"
	"github.com/arbe-dev/arbe/internal/turn"
)

// Rosters returns the bots of a house; see [bot.Bots.RosterTx].
type Rosters interface {
	RosterTx(ctx context.Context, tx pgx.Tx, house string) (bot.Roster, error)
}

// maxRosters is how many houses' bots a server keeps in memory.
const maxRosters = 10_000

// chooser selects the turns that chats ask for, by the activation policies of the house's bots. Most chats ask for none,
// which it finds out from memory alone: each round of decisions reads which version of its roster a house has, so that
// an outdated one is never used.
type chooser struct {
	db      *db.DB
	rosters Rosters
	limits  jobs.Limits
	roots   turn.RootLimits
	// said asks for the next run of a driven thread; see [run.Runs.SaidTx].
	said func(ctx context.Context, tx pgx.Tx, thread string, seq int64) error

	mu   sync.Mutex
	kept map[string]bot.Roster // by house
}

func newChooser(d *db.DB, r Rosters, l jobs.Limits, roots turn.RootLimits, said func(context.Context, pgx.Tx, string, int64) error) *chooser {
	return &chooser{db: d, rosters: r, limits: l, roots: roots, said: said, kept: map[string]bot.Roster{}}
}

// roster returns the bots of a house.
func (c *chooser) roster(ctx context.Context, house string, version int64) (bot.Roster, error) {
	c.mu.Lock()
	kept, ok := c.kept[house]
	c.mu.Unlock()
	if ok && kept.Version >= version {
		return kept, nil
	}
	var fresh bot.Roster
	err := c.db.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) (err error) {
		fresh, err = c.rosters.RosterTx(ctx, tx, house)
		return err
	})
	if err != nil {
		return fresh, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= maxRosters {
		clear(c.kept)
	}
	c.kept[house] = fresh
	return fresh, nil
}

// choose is a [Selector].
func (c *chooser) choose(ctx context.Context, n *News) (Work, error) {
	roster, err := c.roster(ctx, n.House, n.Roster)
	if err != nil {
		return nil, err
	}
	var handles []string
	if n.Driver == "" && !policy.Listens(n.Thread, n.Direct, roster.Bots) {
		handles = []string{}
		for _, b := range roster.Bots {
			handles = append(handles, b.Handle)
		}
	}
	chats, err := n.Chats(ctx, handles)
	if err != nil {
		return nil, err
	}
	matter, told := triggersOf(n, roster.Bots, chats), toldDriver(n, roster.Bots, chats)
	if len(matter) == 0 && told == 0 {
		return nil, nil
	}
	return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
		if told > 0 {
			if err := c.said(ctx, tx, n.Thread, told); err != nil {
				return Outcome{}, err
			}
		}
		a := &asking{news: n, triggers: matter}
		err := a.begin(ctx, tx, c, roster.Bots)
		for _, t := range matter {
			for _, d := range policy.Select(t.Trigger, roster.Bots, a.states) {
				if err == nil {
					err = a.decide(ctx, tx, t, d)
				}
			}
		}
		return a.outcome, err
	}, nil
}

// asking is how the triggers among a thread's new entries become the turns that they ask for, in one transaction.
type asking struct {
	news     *News
	triggers []*trigger
	// states are what the bots do in the thread, by their ids, with the turns that were asked for before.
	states  map[string]policy.State
	admit   *admission
	outcome Outcome
}

// begin reads what the bots do in the thread, and what may follow from the triggers.
func (a *asking) begin(ctx context.Context, tx pgx.Tx, c *chooser, bots []bot.Bot) error {
	state, err := turn.StateTx(ctx, tx, a.news.House, a.news.Thread)
	if err != nil {
		return err
	}
	a.states = map[string]policy.State{}
	now := time.Now()
	for _, b := range bots {
		s := state[b.ID]
		a.states[b.ID] = policy.State{LastTurn: s.Last, Active: s.Active, Waiting: s.Delayed, Now: now}
	}
	for _, t := range a.triggers {
		if t.Chain, t.root, err = t.origin(ctx, tx); err != nil {
			return err
		}
	}
	a.admit, err = c.admissionTx(ctx, tx, a.news, a.triggers)
	return err
}

// decide adds to the outcome what a policy decided about a trigger.
func (a *asking) decide(ctx context.Context, tx pgx.Tx, t *trigger, d policy.Decision) error {
	if d.Action == policy.Skip {
		a.outcome.Notes = append(a.outcome.Notes, entry.NewDraft("", "", entry.Skipped{
			AgentID: d.Bot, EntryID: t.entry.ID, Reason: string(d.Reason), Explanation: d.Reason.Explain(), PolicyID: d.Policy,
		}))
		return nil
	}
	r := turn.Request{
		House: a.news.House, Thread: a.news.Thread, Bot: d.Bot, Entry: t.entry.ID, Seq: t.entry.Seq, Reason: string(d.Reason), Policy: d.Policy,
		Chain: t.Chain, Tools: d.Tools, Root: t.root,
	}
	if t.AuthorKind == policy.Human { // bots say nothing about how hard others think
		r.Think = t.think
	}
	s := a.states[d.Bot]
	if !s.Active && !s.Waiting { // otherwise the entry is passed to the turn that there is
		refused, err := a.admit.begin(ctx, tx, t, d)
		if err != nil {
			return err
		} else if refused != nil {
			a.outcome.Notes = append(a.outcome.Notes, *refused)
			return nil
		}
	}
	if d.Action == policy.Delay {
		r.Delay, s.Waiting = d.After, true
	} else {
		s.Active = true
	}
	a.states[d.Bot] = s
	a.outcome.Turns = append(a.outcome.Turns, r)
	return nil
}
