package dispatch

import (
	"context"
	"errors"
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

	mu   sync.Mutex
	kept map[string]bot.Roster // by house
}

func newChooser(d *db.DB, r Rosters, l jobs.Limits, roots turn.RootLimits) *chooser {
	return &chooser{db: d, rosters: r, limits: l, roots: roots, kept: map[string]bot.Roster{}}
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
	if !policy.Listens(n.Thread, n.Direct, roster.Bots) {
		handles = []string{}
		for _, b := range roster.Bots {
			handles = append(handles, b.Handle)
		}
	}
	chats, err := n.Chats(ctx, handles)
	if err != nil {
		return nil, err
	}
	var triggers []trigger
	for _, e := range chats {
		if said, ok := chatOf(e); ok {
			triggers = append(triggers, trigger{entry: e, said: said, Trigger: policy.Trigger{
				Thread: n.Thread, Author: e.Author, AuthorKind: policy.Human, Mentions: entry.Mentions(said.Text), Direct: n.Direct, Confined: said.Confined,
			}})
		}
	}
	var matter []*trigger
	for i := range triggers {
		t := &triggers[i]
		for _, b := range roster.Bots {
			if b.ID == t.entry.Author {
				t.AuthorKind = policy.Bot
			}
		}
		if len(policy.Select(t.Trigger, roster.Bots, nil)) > 0 {
			matter = append(matter, t)
		}
	}
	if len(matter) == 0 {
		return nil, nil
	}
	return func(ctx context.Context, tx pgx.Tx) (o Outcome, err error) {
		state, err := turn.StateTx(ctx, tx, n.House, n.Thread)
		if err != nil {
			return o, err
		}
		states := map[string]policy.State{}
		now := time.Now()
		for _, b := range roster.Bots {
			s := state[b.ID]
			states[b.ID] = policy.State{LastTurn: s.Last, Active: s.Active, Waiting: s.Delayed, Now: now}
		}
		for _, t := range matter {
			if t.Chain, t.root, err = t.origin(ctx, tx); err != nil {
				return o, err
			}
		}
		admit, err := c.admissionTx(ctx, tx, n, matter)
		if err != nil {
			return o, err
		}
		for _, t := range matter {
			for _, d := range policy.Select(t.Trigger, roster.Bots, states) {
				if d.Action == policy.Skip {
					o.Notes = append(o.Notes, entry.NewDraft("", "", entry.Skipped{
						AgentID: d.Bot, EntryID: t.entry.ID, Reason: string(d.Reason), Explanation: d.Reason.Explain(), PolicyID: d.Policy,
					}))
					continue
				}
				r := turn.Request{
					House: n.House, Thread: n.Thread, Bot: d.Bot, Entry: t.entry.ID, Seq: t.entry.Seq, Reason: string(d.Reason), Policy: d.Policy, Chain: t.Chain,
					Tools: d.Tools, Root: t.root,
				}
				if t.AuthorKind == policy.Human { // bots say nothing about how hard others think
					r.Think = t.said.Think
				}
				s := states[d.Bot]
				if !s.Active && !s.Waiting { // otherwise the entry is passed to the turn that there is
					refused, err := admit.begin(ctx, tx, t, d)
					if err != nil {
						return o, err
					} else if refused != nil {
						o.Notes = append(o.Notes, *refused)
						continue
					}
				}
				if d.Action == policy.Delay {
					r.Delay, s.Waiting = d.After, true
				} else {
					s.Active = true
				}
				states[d.Bot] = s
				o.Turns = append(o.Turns, r)
			}
		}
		return o, nil
	}, nil
}

// trigger is a chat that may ask for turns.
type trigger struct {
	entry entry.Entry
	said  entry.Chat
	policy.Trigger
	// root is the entry of a person from which it follows; see [turn.RootOf].
	root string
}

// chatOf returns an entry's chat, if somebody said one.
func chatOf(e entry.Entry) (entry.Chat, bool) {
	if e.Author == "" || e.Type != (entry.Chat{}).Type() {
		return entry.Chat{}, false
	}
	return entry.As[entry.Chat](e)
}

// origin returns how many answers of bots led to the chat, one by one, since a person spoke, and what that person said.
func (t trigger) origin(ctx context.Context, tx pgx.Tx) (chain int, root string, err error) {
	itself := turn.RootOf(t.Thread, t.entry.ID)
	switch {
	case t.AuthorKind == policy.Human:
		return 0, itself, nil
	case t.said.Turn == nil: // said by a program with the bot's key
		return 1, itself, nil
	}
	before, root, err := turn.ChainTx(ctx, tx, t.said.Turn.TurnID)
	if errors.Is(err, pgx.ErrNoRows) {
		return 1, itself, nil
	}
	return before + 1, root, err
}
