package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

// This file has the ways in which a turn ends: with an answer, with a failure, stopped, or at a limit.

// answer writes the bot's chat and ends the turn. Entries that were passed to the turn after its last call began get a new
// turn, because the answer does not consider them. An edit after the end of that call gets no turn: the message was
// already answered, so the edit only changes its text.
func (r *run) answer(ctx context.Context, answer model.Answer, text string, cut bool) error {
	return r.ending(ctx, Answered, func(tx pgx.Tx) error {
		ended, err := r.endTx(ctx, tx, Answered)
		if err != nil {
			return err
		}
		id := r.turn.stepID(r.turn.Steps + 1)
		if err := r.countTx(ctx, tx, id, answer); err != nil {
			return err
		}
		read, unread := ended.split(r.transcript.tail)
		if unread, err = r.stillAskTx(ctx, tx, unread); err != nil {
			return err
		}
		summary, err := r.summaryTx(ctx, tx, 1)
		if err != nil {
			return err
		}
		summary.Answers, summary.Cut, summary.Thinking = read, cut, answer.Message.Thought()
		draft := entry.NewDraft(id, r.turn.Bot, entry.Chat{Text: text, ReplyTo: r.turn.Entry, Turn: &summary})
		if err := r.appendTx(ctx, tx, draft); err != nil {
			return err
		}
		return r.askAgainTx(ctx, tx, ended, unread)
	})
}

// askAgainTx requests a turn for the entries that a turn passes on when it ends.
func (r *run) askAgainTx(ctx context.Context, tx pgx.Tx, ended Turn, unread []Question) error {
	next := Request{House: r.turn.House, Thread: r.turn.Thread, Bot: r.turn.Bot, Reason: r.turn.Reason, Policy: r.turn.Policy, Tools: ended.Tools, Chain: ended.Chain, Root: ended.Root}
	for _, u := range unread {
		next.Entry, next.Seq, next.Think = u.Entry, u.Seq, u.Think
		t, outcome, err := RequestTx(ctx, tx, r.log, r.ref, next)
		if err == nil && outcome == Began {
			err = r.Queue(ctx, tx, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stillAskTx returns the entries that ask for another turn after the answer.
func (r *run) stillAskTx(ctx context.Context, tx pgx.Tx, unread []Question) ([]Question, error) {
	if len(unread) == 0 {
		return nil, nil
	}
	p := query.LateEditsParams{HouseID: r.ref.House, Stream: r.ref.Name, After: r.heard}
	for _, u := range unread {
		p.Seqs = append(p.Seqs, u.Seq)
	}
	late, err := queries.LateEdits(ctx, tx, p)
	return slices.DeleteFunc(unread, func(u Question) bool { return slices.Contains(late, u.Seq) }), err
}

// ending commits what ends the turn.
func (r *run) ending(ctx context.Context, s Status, do func(pgx.Tx) error) error {
	err := r.db.In(ctx, r.scope(), do)
	if err == nil && r.Observe != nil {
		r.Observe(s, time.Since(r.turn.CreatedAt))
	}
	return err
}

// endTx ends the turn's row, and returns it with all entries that were passed to the turn. No entry can be passed to it
// later.
func (r *run) endTx(ctx context.Context, tx pgx.Tx, s Status) (Turn, error) {
	row, err := queries.EndTurn(ctx, tx, query.EndTurnParams{Status: string(s), ID: r.turn.ID, Steps: int32(r.turn.Steps), Attempts: int32(r.turn.Attempts)})
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrOvertaken // or it has ended, as the next attempt will find
	}
	if err == nil {
		err = r.withdrawTx(ctx, tx)
	}
	return fromRow(row), err
}

// end ends the turn without an answer, for all entries that were passed to it. It keeps the model's last answer as a
// step.
func (r *run) end(ctx context.Context, s Status, e entry.TurnEnded, last *model.Answer) error {
	e.TurnID, e.AgentID, e.EntryID, e.Outcome = r.turn.ID, r.turn.Bot, r.turn.Entry, string(s)
	return r.ending(ctx, s, func(tx pgx.Tx) error {
		ended, err := r.endTx(ctx, tx, s)
		if err != nil {
			return err
		}
		extra := 0
		if last != nil && (len(last.Message.Content) > 0 || last.Usage.Total() > 0) {
			extra = 1
			if !r.storable(*last) || len(last.Message.Calls()) > maxCalls {
				last.Message.Content = []entry.PiBlock{entry.PiText(entry.Clip(last.Message.Text(), oldResult))}
			}
			if err := r.writeStep(ctx, tx, *last); err != nil {
				return err
			}
		}
		summary, err := r.summaryTx(ctx, tx, extra)
		if err != nil {
			return err
		}
		summary.Answers = ended.Asked
		e.Summary = &summary
		return r.appendTx(ctx, tx, entry.NewDraft(r.turn.endID(), "", e))
	})
}

// endClosed ends the turn in a closed thread, whose log takes no more chats. It keeps the model's answer as a step.
func (r *run) endClosed(ctx context.Context, refused error) error {
	r.Logger.InfoContext(ctx, "a bot's turn ends because its thread takes no answer", "turn", r.turn.ID, "error", fault.From(refused).Detail())
	closed := fault.New(fault.Precondition, "the thread was closed before the bot answered", "reopen it, and let the bot try again")
	err := r.end(ctx, Failed, failure("thread_closed", closed), r.last)
	if fault.CodeOf(err) == fault.Precondition {
		return r.abandon(ctx)
	}
	return err
}

// abandon ends the turn without an entry, because its log accepts no more.
func (r *run) abandon(ctx context.Context) error {
	return r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		if err := queries.AbandonTurn(ctx, tx, r.turn.ID); err != nil {
			return err
		}
		_, err := approval.EndTx(ctx, tx, approval.End{By: r.turn.asker(), Outcome: entry.Withdrawn})
		return err
	})
}

// fail ends the turn because of an error.
func (r *run) fail(ctx context.Context, reason string, err error) error {
	r.Logger.InfoContext(ctx, "a bot's turn failed", "turn", r.turn.ID, "reason", reason, "error", fault.From(err).Detail())
	return r.end(ctx, Failed, failure(reason, err), nil)
}

// failure returns the entry that ends a turn because of an error.
func failure(reason string, err error) entry.TurnEnded {
	f := fault.From(err)
	return entry.TurnEnded{Reason: reason, Message: f.Message, Next: f.Next}
}

// interrupted keeps the partial answer if someone stopped the turn or its time is up. Otherwise the server is stopping,
// and the next one repeats the call.
func (r *run) interrupted(ctx context.Context, answer model.Answer) error {
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := r.reload(lasting); errors.Is(err, ErrOvertaken) {
		return cmp.Or(r.countLost(lasting, answer), err)
	} else if err != nil {
		return err
	}
	if errors.Is(context.Cause(ctx), ErrTimeUp) {
		return r.timeUp(lasting, &answer)
	}
	if r.turn.StoppedBy == "" {
		if err := r.countLost(lasting, answer); err != nil {
			return err
		}
		return ctx.Err()
	}
	return r.stop(lasting, &answer)
}

// stop ends the turn because someone asked for that or removed the bot. It keeps the model's last answer as a step,
// unless the bot was removed: only a member can be the author of an entry.
func (r *run) stop(ctx context.Context, last *model.Answer) error {
	if r.Bot != nil {
		if _, err := r.Bot(ctx, r.scope(), r.turn.Bot); fault.CodeOf(err) == fault.NotFound {
			if last != nil {
				if err := r.count(ctx, r.turn.stepID(r.turn.Steps+1)+".removed", *last); err != nil {
					return err
				}
			}
			e := failure(reasonRemoved, errRemoved)
			e.StoppedBy = r.turn.StoppedBy
			return r.end(ctx, Failed, e, nil)
		} else if err != nil {
			return err
		}
	}
	return r.end(ctx, Stopped, entry.TurnEnded{StoppedBy: r.turn.StoppedBy, Message: "the bot was stopped"}, last)
}

// summaryTx returns the turn's work and usage; steps is the number of steps that tx writes.
func (r *run) summaryTx(ctx context.Context, tx pgx.Tx, steps int) (s entry.TurnSummary, err error) {
	used, err := queries.TurnUsed(ctx, tx, r.turn.ID)
	if err != nil {
		return s, err
	}
	s = entry.TurnSummary{
		TurnID: r.turn.ID, Model: model.Ref{Endpoint: r.endpoint.Name, Model: r.modelID}.String(), Steps: r.turn.Steps + steps,
		DurationMS: r.turn.worked().Milliseconds(),
		Usage: entry.TurnUsage{
			Input: used.Input, Output: used.Output, CacheRead: used.CacheRead, CacheWrite: used.CacheWrite,
			CostMicros: used.CostMicros, CostUnknown: used.CostUnknown,
		},
	}
	if r.endpoint.Name == "" && r.endpoint.Provider != "" {
		s.Model = string(r.endpoint.Provider) + "/" + r.modelID
	}
	r.remember()
	for _, step := range r.done {
		s.Commands += step.commands
	}
	return s, nil
}

// timeUp ends the turn at its time limit: as failed if its model's provider has not answered, and otherwise as limited.
func (r *run) timeUp(ctx context.Context, last *model.Answer) error {
	if r.turn.FailureKind == "" {
		return r.end(ctx, Limited, r.timeMeter().ended(), last)
	}
	e := entry.TurnEnded{Reason: r.turn.FailureKind, Message: r.turn.Failure + r.asks(r.turn.Tries), Next: "try again later, or choose another model"}
	return r.end(ctx, Failed, e, nil)
}

// asks says how often and for how long a provider was asked without an answer.
func (r *run) asks(tries int) string {
	if tries < 2 {
		return ""
	}
	return fmt.Sprintf(". It was asked %d times in %s", tries, entry.Approximately(time.Since(r.turn.FailingSince)))
}
