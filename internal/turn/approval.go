package turn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// This file lets people decide which calls of tools run. A bot may have tools that it uses only with a person's approval
// ([Bot].Ask). When its model calls one, the call becomes a request for approval: a row, and an entry of the thread. The
// turn waits for the answer in the database (status [Asking]) and not on a server. An answer, its deadline, or a stop of the
// turn queues the turn again. The turn then looks up the decision about the call, and continues.
//
// An approval is valid only while the person who gave it is in the house, the thread is open and the bot has the tool.

// ErrAsking reports that a turn waits until people say whether tools may run.
var ErrAsking = errors.New("the turn waits for the answers of people")

// asked returns the approvals that some calls asked for, by the ids of the calls' results. If the thread is closed, the
// error ends the turn.
func (r *run) asked(ctx context.Context, calls []call) (byCall map[string]*approval.Pending, err error) {
	var ids []string
	for _, c := range calls {
		ids = append(ids, r.turn.callID(c.step, c.n))
	}
	err = r.db.In(ctx, r.scope(), func(tx pgx.Tx) (err error) {
		byCall, err = approval.OfTurnTx(ctx, tx, r.turn.ID, ids)
		return err
	})
	for _, q := range byCall {
		if q.Closed {
			return nil, fault.New(fault.Precondition, "the thread was closed while the bot waited for an answer", "reopen it")
		}
	}
	return byCall, err
}

// permit returns the arguments with which to run a call. If the call may not run, the model reads refused instead of a
// result. failed is [ErrAsking] if people have not answered, or an error of the database.
func (r *run) permit(ctx context.Context, id string, tool Tool, c call, q *approval.Pending) (arguments json.RawMessage, refused, failed error) {
	if q == nil {
		if !slices.Contains(r.bot.Ask, tool.Name) {
			return c.Arguments, nil, nil
		}
		refused, failed := r.askPeople(ctx, id, tool, c)
		return nil, refused, failed
	}
	switch {
	case q.State == approval.Open && q.Due:
		if err := r.expire(ctx, q.Call); err != nil {
			return nil, nil, err
		}
		return nil, errExpired, nil
	case q.State == approval.Open:
		return nil, nil, ErrAsking
	case q.State == entry.Approved && !q.Stands:
		return nil, fault.New(fault.Forbidden, "the person who said yes to this call has left the house, so it was not run", "say what you need, and go on without it"), nil
	case q.State == entry.Approved && q.Tool == tool.Name:
		return q.Arguments, nil, nil
	case q.State == entry.Denied:
		who, err := r.Person(ctx, r.scope(), q.AnsweredBy)
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			return nil, nil, err
		}
		return nil, denied(who.Name, q.Reason), nil
	case q.State == entry.Expired:
		return nil, errExpired, nil
	}
	return nil, fault.New(fault.Precondition, "nobody can approve this call any more, so it was not run", "say what you need"), nil
}

// errExpired is the result that a model reads if nobody answered in time.
var errExpired = fault.New(fault.Forbidden, "nobody said in time whether this call may run, so it was not run", "go on without it, or say what you need")

// denied returns the result that a model reads if a person denied the call.
func denied(name, reason string) error {
	what := "“" + Name(cmp.Or(name, "someone who left")) + "” said no to this call, so it was not run"
	next := "do not try it again; go on without it, or say what you need"
	if reason != "" {
		next += ". Their reason:\n" + Quote(reason)
	}
	return fault.New(fault.Forbidden, what, next)
}

// askPeople asks people about a call.
func (r *run) askPeople(ctx context.Context, id string, tool Tool, c call) (refused, failed error) {
	expires := time.Now().Add(r.bot.Limits.withDefaults().Answer)
	failed = r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		refused = nil
		if _, err := queries.LockAttempt(ctx, tx, r.turn.ID, int32(r.turn.Steps), int32(r.turn.Attempts)); errors.Is(err, pgx.ErrNoRows) {
			return ErrOvertaken
		} else if err != nil {
			return err
		}
		asked, no, err := approval.AskTx(ctx, tx, approval.Request{By: r.turn.asker(), Bot: r.turn.Bot, Call: id, Tool: tool.Name, Arguments: c.Arguments, Expires: expires})
		if refused = no; err != nil || asked == nil {
			return err
		}
		return r.appendTx(ctx, tx, *asked)
	})
	if failed == nil && refused == nil {
		failed = ErrAsking
	}
	return refused, failed
}

// asker identifies the turn as the asker of requests.
func (t Turn) asker() approval.By { return approval.By{House: t.House, Thread: t.Thread, Turn: t.ID} }

// expire ends a request that nobody answered in time.
func (r *run) expire(ctx context.Context, call string) error {
	return r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		if _, err := queries.LockAttempt(ctx, tx, r.turn.ID, int32(r.turn.Steps), int32(r.turn.Attempts)); errors.Is(err, pgx.ErrNoRows) {
			return ErrOvertaken
		} else if err != nil {
			return err
		}
		return r.endApprovalsTx(ctx, tx, entry.Expired, call)
	})
}

// withdrawTx ends all requests of a turn that ends. The turn's row is locked.
func (r *run) withdrawTx(ctx context.Context, tx pgx.Tx) error {
	return r.endApprovalsTx(ctx, tx, entry.Withdrawn, "")
}

func (r *run) endApprovalsTx(ctx context.Context, tx pgx.Tx, outcome, call string) error {
	ended, err := approval.EndTx(ctx, tx, approval.End{By: r.turn.asker(), Call: call, Outcome: outcome})
	for _, d := range ended {
		if err == nil {
			err = r.appendTx(ctx, tx, d)
		}
	}
	return err
}

// park leaves the turn waiting for people, and returns [ErrAsking]. If they have answered or stopped it meanwhile, it
// returns nil, and the turn continues here.
func (r *run) park(ctx context.Context) error {
	parked := false
	err := r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		// The lock comes first. Answers take it too, so either the check below sees an answer, or the answer finds the turn
		// waiting.
		if _, err := queries.LockAttempt(ctx, tx, r.turn.ID, int32(r.turn.Steps), int32(r.turn.Attempts)); errors.Is(err, pgx.ErrNoRows) {
			return ErrOvertaken
		} else if err != nil {
			return err
		}
		open, expires, err := approval.FirstExpiryTx(ctx, tx, r.turn.ID)
		if err != nil || open == 0 {
			return err
		}
		row, err := queries.ParkTurn(ctx, tx, query.ParkTurnParams{DueAt: expires, ID: r.turn.ID, Steps: int32(r.turn.Steps), Attempts: int32(r.turn.Attempts)})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // somebody is stopping it
		} else if err != nil {
			return err
		}
		parked = true
		return r.Park(ctx, tx, fromRow(row))
	})
	if err == nil && parked {
		return ErrAsking
	}
	return err
}

// AnswerTx answers a request of a turn in the name of the transaction's agent, and records it in the log. resume is the
// turn that the caller must queue again; empty if it continues by itself.
//
// Repeating an answer is harmless. Errors: those of [approval.AnswerTx].
func AnswerTx(ctx context.Context, tx pgx.Tx, log *stream.Log, to stream.Ref, agent string, a approval.Answer) (q approval.Approval, resume string, err error) {
	q, answered, err := approval.AnswerTx(ctx, tx, agent, a, func(by approval.By) (waits bool, err error) {
		t, err := queries.LockTurn(ctx, tx, by.Turn)
		return t.EndedAt == nil && t.StoppedBy == nil, err
	})
	if err != nil || answered == nil {
		return q, "", err
	}
	if _, err = log.AppendTx(ctx, tx, to, *answered); err != nil {
		return q, "", err
	}
	if resume, err = queries.UnparkTurn(ctx, tx, q.Turn); errors.Is(err, pgx.ErrNoRows) {
		err = nil // the server that works on it finds the answer
	}
	return q, resume, err
}

// AskingTx returns the ids of the turns of a thread that wait for people.
func AskingTx(ctx context.Context, tx pgx.Tx, house, thread string) ([]string, error) {
	return queries.AskingTurns(ctx, tx, house, thread)
}
