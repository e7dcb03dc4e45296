package turn

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

// This file waits for providers of models. A provider that is overloaded, unreachable, silent or breaks off is asked
// again, with growing pauses, as long as the turn has time. Nothing of a broken answer is kept. Errors that waiting
// cannot fix end the turn at once.
//
// Only short pauses occupy a worker. For a longer one, the worker leaves the turn: the row says why it waits and when
// it is due ([WaitError]). It therefore waits through restarts and takes no worker from others.

// WaitError reports that a turn was left because it waits for the provider of its model. The next call of [Runner.Run]
// after Until continues it. An earlier call returns this error again, unless the turn must stop.
type WaitError struct{ Until time.Time }

func (e *WaitError) Error() string {
	return "the turn waits for its model until " + e.Until.Format(time.RFC3339)
}

// deadline returns when the turn reaches its time limit.
func (r *run) deadline() time.Time {
	return r.turn.StartedAt.Add(r.bot.Limits.withDefaults().Time + r.turn.Waited)
}

// unanswered is the reason why a model did not answer.
type unanswered struct {
	// kind is the kind of the error in one word, and brief describes it in a few words.
	kind, brief string
	// after is the pause that the provider asks for; 0 if it does not.
	after time.Duration
	// lasting reports that waiting does not help, and only another model does.
	lasting bool
	err     error
}

func unansweredBy(failed *model.Error) unanswered {
	return unanswered{string(failed.Kind), failed.Brief(), failed.RetryAfter, !failed.Passing(), failed}
}

// wait waits after a transient failure, and returns when it is time to ask a model again: the same one, or a fallback
// of the house. since is the time of the model's last sign of life. If the turn has no time for the pause, wait ends
// the turn. If the pause is long, the error is a [*WaitError].
//
// A fallback is asked after a wait of [Waits].Fallback. If it answers, it is used for the rest of the turn. If no
// fallback answers either, a pause follows, and the bot's own model is next.
func (r *run) wait(ctx context.Context, failed unanswered, since time.Time) (ended bool, err error) {
	waits := r.Waits.withDefaults()
	now, own := time.Now(), r.turn.Fallback == ""
	r.failing(since, now, failed.after)
	w := r.waiting(failed.kind, failed.brief, 0)
	w.Tries++
	p := query.WaitTurnParams{
		Tries: int32(w.Tries), Since: &r.turn.FailingSince, Failure: w.Provider + ": " + w.Message, FailureKind: failed.kind, OwnAfter: db.Null(r.turn.OwnAfter),
		ID: r.turn.ID, Steps: int32(r.turn.Steps), Attempts: int32(r.turn.Attempts),
	}
	p.Fallback = r.turn.Fallback
	due := now.Add(waits.pause(w.Tries, failed.after))
	if failed.lasting || now.Sub(r.turn.FailingSince) >= waits.Fallback || failed.after > waits.Fallback || due.After(r.deadline()) {
		next, n, err := r.fallback(ctx)
		if err != nil {
			return false, err
		}
		if p.Fallback = next; next != "" {
			fell := entry.TurnFellBack{TurnID: r.turn.ID, AgentID: r.turn.Bot, Model: r.modelRef(), Fallback: next, Reason: failed.kind, Message: w.Message}
			id := entry.TurnPrefix + r.turn.ID + ".fell" + strconv.Itoa(r.turn.Steps) + "." + strconv.Itoa(n)
			return false, r.record(ctx, p, entry.NewDraft(id, "", fell))
		}
		if !own {
			if due = now.Add(waits.pause(w.Tries, 0)); r.turn.OwnAfter.After(due) {
				due = r.turn.OwnAfter
			}
		}
	}
	return r.pause(ctx, failed, w, p, due)
}

// failing records since when models fail, and when the provider of the bot's own model allows the next call.
func (r *run) failing(since, now time.Time, after time.Duration) {
	if r.turn.FailingSince.IsZero() {
		r.turn.FailingSince = since
	}
	if r.turn.Fallback != "" {
		return
	}
	r.turn.OwnAfter = time.Time{}
	if after > 0 {
		r.turn.OwnAfter = now.Add(after)
	}
}

// pause waits until due, or ends the turn if it has no time for that.
func (r *run) pause(ctx context.Context, failed unanswered, w entry.TurnWaiting, p query.WaitTurnParams, due time.Time) (ended bool, err error) {
	waits := r.Waits.withDefaults()
	pause := time.Until(due)
	if due.After(r.deadline()) {
		return true, r.end(ctx, Failed, r.givenUp(failed, w.Tries, pause), nil)
	}
	if w.DelayMS = pause.Milliseconds(); pause > waits.Hold {
		p.DueAt = &due
	}
	var drafts []entry.Draft
	if due.Sub(r.turn.FailingSince) >= waits.Brief {
		drafts = append(drafts, r.waitDraft(w, r.turn.FailingSince))
	}
	if err := r.record(ctx, p, drafts...); err != nil {
		return false, err
	}
	r.publisher(ctx).wait(w)
	if p.DueAt != nil {
		return false, &WaitError{due}
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// record stores that a model did not answer, and appends the entries about it.
func (r *run) record(ctx context.Context, p query.WaitTurnParams, drafts ...entry.Draft) error {
	return r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		moved, err := queries.WaitTurn(ctx, tx, p)
		if err != nil || moved == 0 {
			return cmp.Or(err, ErrOvertaken)
		}
		if len(drafts) > 0 {
			_, err = r.log.AppendTx(ctx, tx, r.ref, drafts...)
		}
		return err
	})
}

// modelRef returns the ref of the model that the turn currently uses.
func (r *run) modelRef() string {
	return model.Ref{Endpoint: r.endpoint.Name, Model: r.modelID}.String()
}

// fallback returns the next fallback model of the house after the current one, and its index in the list; empty if
// there is none. It skips models that the house cannot use, and the bot's own.
func (r *run) fallback(ctx context.Context) (ref string, n int, err error) {
	if r.Fallbacks == nil {
		return "", 0, nil
	}
	list, err := r.Fallbacks(ctx, r.scope())
	if err != nil {
		return "", 0, err
	}
	own, ownID, err := r.Endpoint(ctx, r.scope(), r.bot.Model)
	if err != nil && !fixable(err) {
		return "", 0, err
	}
	for n = slices.Index(list, r.turn.Fallback) + 1; n < len(list); n++ { // from the first one if none is in use
		e, id, err := r.Endpoint(ctx, r.scope(), list[n])
		switch {
		case err != nil && !fixable(err):
			return "", 0, err
		case err == nil && (e.Name != own.Name || id != ownID):
			return list[n], n, nil
		}
	}
	return "", 0, nil
}

// givenUp returns the entry that ends a turn without time to wait longer.
func (r *run) givenUp(failed unanswered, tries int, pause time.Duration) entry.TurnEnded {
	e := failure(failed.kind, failed.err)
	if failed.after > 0 && pause > r.Waits.withDefaults().Max {
		e.Message += ". It wants to be asked again in " + entry.Approximately(failed.after)
	}
	e.Message += r.asks(tries)
	return e
}

// waiting returns the entry that says that the turn waits.
func (r *run) waiting(reason, message string, delay time.Duration) entry.TurnWaiting {
	return entry.TurnWaiting{
		TurnID: r.turn.ID, AgentID: r.turn.Bot, Provider: r.endpoint.Title(), Reason: reason, Message: r.redactor.String(message), DelayMS: delay.Milliseconds(), Tries: r.turn.Tries,
	}
}

// waitDraft returns the draft of an entry about a wait. Its id allows one entry in the first minute, one in the second, and
// then one each time the wait has doubled.
func (r *run) waitDraft(w entry.TurnWaiting, since time.Time) entry.Draft {
	doublings := bits.Len64(uint64(time.Since(since) / time.Minute))
	return entry.NewDraft(entry.TurnPrefix+r.turn.ID+".wait"+strconv.Itoa(r.turn.Steps)+"."+strconv.Itoa(doublings), "", w)
}

// wait sends the thread's tails a notice of the wait.
func (p *publisher) wait(w entry.TurnWaiting) {
	p.send(entry.PiChunk{Kind: "retry", Text: w.Plain(), DelayMS: w.DelayMS})
}

// lifeline watches a call of a model, and says in the thread when the model writes nothing.
type lifeline struct {
	run       *run
	ctx       context.Context
	publisher *publisher
	silence   time.Duration
	timer     *time.Timer
	last      atomic.Int64
	begun     atomic.Bool
	// mu is held while the entry is written. over is set when the call has ended.
	mu   sync.Mutex
	over bool
}

// watch begins to watch a call. The caller calls end after the call, before it changes the run.
func (r *run) watch(ctx context.Context, p *publisher) *lifeline {
	l := &lifeline{run: r, ctx: ctx, publisher: p, silence: r.Waits.withDefaults().Silence}
	l.last.Store(time.Now().UnixNano())
	if r.turn.Failure != "" {
		p.send(entry.PiChunk{Kind: "retry", Text: "waiting for " + r.turn.Failure + "; asking again"})
	}
	l.timer = time.AfterFunc(l.silence, l.report)
	return l
}

// heard records a sign of life.
func (l *lifeline) heard() {
	l.last.Store(time.Now().UnixNano())
	l.begun.Store(true)
	l.timer.Reset(l.silence)
}

// end ends the watch and returns the time of the last sign of life, or the beginning of the call if there was none.
func (l *lifeline) end() time.Time {
	l.timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	return time.Unix(0, l.last.Load())
}

func (l *lifeline) report() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	r := l.run
	w := r.waiting(string(model.Idle), "no answer for "+entry.Approximately(l.silence), r.model.Patience(l.begun.Load())-l.silence)
	l.publisher.wait(w)
	since := r.turn.FailingSince
	if since.IsZero() {
		since = time.Unix(0, l.last.Load())
	}
	ctx, cancel := context.WithTimeout(l.ctx, endTimeout)
	defer cancel()
	if _, err := r.log.Append(ctx, r.ref, r.waitDraft(w, since)); err != nil && l.ctx.Err() == nil {
		r.Logger.WarnContext(l.ctx, "cannot say in the thread that a bot waits", "error", fault.From(err).Detail())
	}
}
