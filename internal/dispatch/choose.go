package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/policy"
	"github.com/arbe-dev/arbe/internal/turn"
)

// maxRosters limits the houses whose bots a server keeps in memory.
const maxRosters = 10_000

func (d *Dispatcher) newChooser() *chooser {
	return &chooser{
		db: d.db, rosters: d.config.Rosters, mentions: d.config.Mentions, limits: d.limits.Turns, roots: d.config.Bots.Roots, said: d.Runs.SaidTx,
		begin: d.threads.BeginWithTx, kept: map[string]known{},
	}
}

// roster returns the bots and people of a house.
func (c *chooser) roster(ctx context.Context, house string, version int64) (known, error) {
	c.mu.Lock()
	kept, ok := c.kept[house]
	c.mu.Unlock()
	if ok && kept.Version >= version {
		return kept, nil
	}
	var fresh known
	err := c.db.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) (err error) {
		if fresh.Roster, err = c.rosters.RosterTx(ctx, tx, house); err == nil && c.mentions != nil {
			fresh.people, err = c.mentions.PeopleTx(ctx, tx, house, fresh.handles())
		}
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
	chats, err := n.Chats(ctx, c.handlesFor(n, roster))
	if err != nil {
		return nil, err
	}
	matter, err := triggersOf(ctx, n, roster, chats)
	if err != nil {
		return nil, err
	}
	partner, first, err := begins(ctx, n, roster.Bots, matter)
	if err != nil {
		return nil, err
	}
	if partner != "" { // messages after the first are decided once this is settled
		n.move.upto = first.entry.Seq
		behind := func(seq int64) bool { return seq > n.move.upto }
		chats = slices.DeleteFunc(chats, func(e entry.Entry) bool { return behind(e.Seq) })
		matter = slices.DeleteFunc(matter, func(t *trigger) bool { return behind(t.entry.Seq) })
	}
	told := toldDriver(n, roster.Bots, chats)
	mentioned := roster.mentionsIn(n, chats)
	if len(matter) == 0 && told == 0 && len(mentioned) == 0 {
		return nil, nil
	}
	answer := answering{c, n, roster.Bots, matter, told, mentioned, partner}
	return answer.write, nil
}

// handlesFor returns the handles for which chats are searched; nil if all chats matter.
func (c *chooser) handlesFor(n *News, roster known) []string {
	if n.Driver == "" && len(n.People) < 2 && !policy.Listens(n.where(), roster.Bots) {
		return roster.handles()
	}
	return nil
}

// answering is what a thread's new entries ask for.
type answering struct {
	*chooser
	news      *News
	bots      []bot.Bot
	matter    []*trigger
	told      int64 // see toldDriver
	mentioned []mention
	partner   string // the bot with which a conversation begins; see begins
}

// write is a [Work].
func (a answering) write(ctx context.Context, tx pgx.Tx) (Outcome, error) {
	if a.told > 0 {
		if err := a.said(ctx, tx, a.news.Thread, a.told); err != nil {
			return Outcome{}, err
		}
	}
	for _, m := range a.mentioned {
		if err := a.mentions.MentionTx(ctx, tx, a.news.Thread, m.people, m.seq); err != nil {
			return Outcome{}, err
		}
	}
	if len(a.matter) == 0 {
		return Outcome{}, nil
	}
	if a.partner != "" {
		if err := a.begin(ctx, tx, a.news.Thread, a.partner); err != nil {
			return Outcome{}, err
		}
	}
	asks := &asking{news: a.news, triggers: a.matter}
	return asks.ask(ctx, tx, a.chooser, a.bots)
}

// asking turns the triggers among a thread's new entries into turns, in one transaction.
type asking struct {
	news     *News
	triggers []*trigger
	// states holds what the bots are doing in the thread, by their ids, including turns that were requested earlier.
	states  map[string]policy.State
	admit   *admission
	outcome Outcome
}

// statesOf returns the activity of bots in a thread, in the form that policies use.
func statesOf(state map[string]turn.State, bots []bot.Bot) map[string]policy.State {
	states, now := map[string]policy.State{}, time.Now()
	for _, b := range bots {
		s := state[b.ID]
		states[b.ID] = policy.State{LastTurn: s.Last, Active: s.Active, Waiting: s.Delayed, Now: now}
	}
	return states
}

// ask decides for each trigger which bots it asks.
func (a *asking) ask(ctx context.Context, tx pgx.Tx, c *chooser, bots []bot.Bot) (Outcome, error) {
	err := a.begin(ctx, tx, c, bots)
	for _, t := range a.triggers {
		for _, d := range policy.Select(t.Trigger, bots, a.states) {
			if err == nil {
				err = a.decide(ctx, tx, t, d)
			}
		}
	}
	return a.outcome, err
}

// begin reads the activity of the thread's bots, and how much more work may follow from the triggers.
func (a *asking) begin(ctx context.Context, tx pgx.Tx, c *chooser, bots []bot.Bot) error {
	state, err := turn.StateTx(ctx, tx, a.news.House, a.news.Thread)
	if err != nil {
		return err
	}
	a.states = statesOf(state, bots)
	for _, t := range a.triggers {
		if t.Chain, t.root, err = t.origin(ctx, tx); err != nil {
			return err
		}
	}
	a.admit, err = admissionTx(ctx, tx, a.news, a.triggers, c.limits, c.roots)
	return err
}

// decide adds a policy's decision about a trigger to the outcome.
func (a *asking) decide(ctx context.Context, tx pgx.Tx, t *trigger, d policy.Decision) error {
	if d.Action == policy.Skip {
		a.outcome.Notes = append(a.outcome.Notes, entry.NewDraft("", "", skipped(t, d, d.Reason, d.Reason.Explain())))
		return nil
	}
	r := turn.Request{
		House: a.news.House, Thread: a.news.Thread, Bot: d.Bot, Entry: t.entry.ID, Seq: t.entry.Seq, Reason: string(d.Reason), Policy: d.Policy,
		Chain: t.Chain, Tools: d.Tools, Root: t.root,
	}
	if t.AuthorKind == policy.Human { // only people decide how hard bots think
		r.Think = t.think
	}
	s := a.states[d.Bot]
	if !s.Active && !s.Waiting { // otherwise the existing turn receives the entry
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
