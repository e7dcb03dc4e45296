package dispatch

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/policy"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// Answerer is a bot, and its reaction to a message if somebody said it now.
type Answerer struct {
	Bot bot.Bot
	policy.Decision
}

// Answerers returns the bots that would react to a message if a person said it now with [Dispatcher.Say]. It uses the code
// that decides about real messages, but writes nothing. No bot reacts to a message that is a command or delegates a task.
func (d *Dispatcher) Answerers(ctx context.Context, by Speaker, threadID string, w Message) (list []Answerer, err error) {
	if d.chooser == nil {
		return nil, nil
	}
	n, active, err := d.placeOf(ctx, by.Scope, threadID)
	if err != nil {
		return nil, err
	}
	draft := w.Chat(by.Agent)
	if !w.Literal && asksNobody(draft) {
		return nil, nil
	}
	if by.Confined {
		draft = entry.Confine(draft)
	}
	roster, err := d.chooser.roster(ctx, n.House, n.Roster)
	if err != nil {
		return nil, err
	}
	said := []entry.Entry{{Seq: 1, Author: by.Agent, Type: draft.Type, Payload: draft.Payload}}
	triggers, err := triggersOf(ctx, n, roster, said)
	if err != nil {
		return nil, err
	}
	return answerersOf(n, roster.Bots, said, triggers, active), nil
}

// asksNobody reports whether a message is a command or delegates a task.
func asksNobody(draft entry.Draft) bool {
	text, composed := composedIn(draft)
	if !composed {
		return false
	}
	_, command := entry.ParseCommand(text)
	_, _, delegation := entry.ParseDelegation(text)
	return entry.Unescaped(text) == text && (command || delegation)
}

// answerersOf returns the bots that react to what was said.
func answerersOf(n *News, of []bot.Bot, said []entry.Entry, triggers []*trigger, active map[string]turn.State) (list []Answerer) {
	bots := map[string]bot.Bot{}
	for _, b := range of {
		bots[b.ID] = b
	}
	if toldDriver(n, of, said) > 0 {
		list = append(list, Answerer{bots[n.Driver], policy.Decision{Bot: n.Driver, Action: policy.Fire, Reason: entry.ReasonDriver}})
	}
	for _, t := range triggers {
		for _, decision := range policy.Select(t.Trigger, of, statesOf(active, of)) {
			list = append(list, Answerer{bots[decision.Bot], decision})
		}
	}
	return list
}

// placeOf returns the facts about a thread that decisions use, and the activity of its bots.
func (d *Dispatcher) placeOf(ctx context.Context, scope db.Scope, threadID string) (n *News, active map[string]turn.State, err error) {
	var at query.PlaceRow
	err = d.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		if at, err = queries.Place(ctx, tx, scope.House, threadID); err == nil {
			active, err = turn.StateTx(ctx, tx, scope.House, threadID)
		}
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, fault.New(fault.NotFound, "there is no such thread", "list the house's threads")
	} else if err != nil {
		return nil, nil, err
	}
	return &News{
		House: scope.House, Thread: threadID, Direct: at.Direct, Driver: at.Driver, Answering: at.Answering, Settled: at.Settled, People: at.People, Roster: at.Roster,
		decider: &decider{db: d.db, log: d.log}, log: stream.Ref{House: scope.House, Name: thread.StreamName(threadID)}, move: move{stream: at.StreamID},
	}, active, nil
}
