package turn

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/stream"
)

// Run works on a turn until it has ended, and then returns nil, also if it had already ended. to is the log of its
// thread. If ctx ends first and somebody wants the turn to stop, it ends as stopped; otherwise Run returns the error of
// ctx, and the next call continues the turn. For a delayed turn that is not due, the error is a [*NotDueError]; for one
// that waits for its model's provider, a [*WaitError]; for one that waits for people, [ErrAsking]. If another call
// begins the turn meanwhile, this one returns [ErrOvertaken]. Other errors come from the database, and the caller
// should repeat the call.
func (x *Runner) Run(ctx context.Context, house, id string, to stream.Ref) error {
	r := &run{Runner: x, log: x.Log, db: x.DB, model: x.Model, ref: to, reported: map[string]bool{}, done: map[int]doneStep{}}
	if begins, err := r.gate(ctx, house, id); err != nil || !begins {
		return err
	}
	err := x.DB.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) error {
		row, err := queries.BeginTurn(ctx, tx, id)
		r.turn = fromRow(row)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // it has ended, or was deleted with its thread
	} else if err != nil {
		return err
	}
	err = r.workAlone(ctx)
	// The log refuses entries of a removed bot, which may happen before ctx ends.
	if err != nil && !recorded(err) && (ctx.Err() != nil || fault.CodeOf(err) == fault.Forbidden) {
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if reloadErr := r.reload(lasting); reloadErr != nil {
			err = reloadErr
		} else if r.turn.StoppedBy == "" {
			return cmp.Or(ctx.Err(), err)
		} else {
			err = r.stop(lasting, nil)
		}
	}
	return r.settle(ctx, err)
}

// settle returns what [Runner.Run] returns when the work stopped with an error.
func (r *run) settle(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrAsking):
		return err
	case errors.Is(err, errEnded), fault.CodeOf(err) == fault.NotFound:
		return nil // the thread was deleted, or someone else ended the turn
	case fault.CodeOf(err) == fault.Precondition:
		return r.endClosed(context.WithoutCancel(ctx), err)
	}
	return err
}

// workAlone calls work. If the turn may be killing its servers, workAlone first waits until this server works on no
// other such turn. A server that returns from an unfinished turn does not count as dead. A panic counts as a death.
func (r *run) workAlone(ctx context.Context) error {
	if r.turn.Deaths == maxDeaths {
		select {
		case r.lastTry <- struct{}{}:
			defer func() { <-r.lastTry }()
		case <-ctx.Done():
			return r.leave(ctx, ctx.Err())
		}
	}
	return r.leave(ctx, r.work(ctx))
}

// recorded reports whether the turn's row already records the same as an error: that others work on it, that it has
// ended, or that it asks people.
func recorded(err error) bool {
	return errors.Is(err, ErrOvertaken) || errors.Is(err, errEnded) || errors.Is(err, ErrAsking)
}

// leave records that this server returns from the turn because of err.
func (r *run) leave(ctx context.Context, err error) error {
	if _, waits := errors.AsType[*WaitError](err); waits || err == nil || recorded(err) {
		return err
	}
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	failed := r.db.In(lasting, r.scope(), func(tx pgx.Tx) error {
		return queries.LeaveTurn(lasting, tx, r.turn.ID, int32(r.turn.Steps), int32(r.turn.Attempts))
	})
	if failed != nil {
		r.Logger.WarnContext(ctx, "a turn that this server leaves counts as one that ended it", "error", fault.From(failed).Detail())
	}
	return err
}

// survived resets the count of dead servers: they worked on tools, and not on a model's answer.
func (r *run) survived(ctx context.Context) error {
	if r.turn.Deaths <= 1 {
		return nil
	}
	return r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		return queries.SurviveTurn(ctx, tx, r.turn.ID, int32(r.turn.Steps), int32(r.turn.Attempts))
	})
}

// work makes steps until the turn has ended.
func (r *run) work(ctx context.Context) error {
	if reason, err := r.worn(); err != nil {
		return r.fail(ctx, reason, err)
	}
	r.transcript = transcript{bot: r.turn.Bot, turn: r.turn.ID, people: map[string]Person{}}
	for first := true; ; first = false {
		if ended, err := r.catchUp(ctx, first); ended || err != nil {
			return err
		}
		if calls := r.transcript.pending(r.turn); len(calls) > 0 {
			if timeUp, err := r.workOnCalls(ctx, calls); err != nil {
				return err
			} else if !timeUp {
				continue
			}
		}
		if ended, err := r.checkLimits(ctx); ended || err != nil {
			return err
		}
		timed, stop := r.timed(ctx)
		ended, err := r.step(timed)
		timeUp := ctx.Err() == nil && timed.Err() != nil
		stop()
		if timeUp && err != nil {
			continue // the limit ends the turn
		}
		if ended || err != nil {
			return err
		}
	}
}

// worn returns an error if the turn began too often without making progress, with the word for it.
func (r *run) worn() (reason string, err error) {
	if r.turn.Attempts-r.turn.Asks-r.turn.Waits > maxAttempts {
		return "attempts", fault.Newf(fault.Internal, "ask again; if it happens again, look into the server's log", "the bot began %d times without making progress", maxAttempts)
	}
	if r.turn.Deaths > maxDeaths {
		return "server_died", fault.Newf(fault.Internal, "ask again; if it happens again, use another model, and look into the server's log", "%d servers ended while the bot worked on this step", maxDeaths)
	}
	return "", nil
}

// catchUp reads what the next step needs: the turn, the bot's settings, and the thread. ended reports that the turn has
// ended.
func (r *run) catchUp(ctx context.Context, first bool) (ended bool, err error) {
	if !first { // at first, the row was just read
		if err := r.reload(ctx); err != nil {
			return false, err
		}
	}
	if r.turn.StoppedBy != "" {
		return true, r.stop(ctx, nil)
	}
	if reason, err := r.prepare(ctx); err != nil {
		return true, r.failOrReturn(ctx, reason, err)
	}
	r.transcript.sight = r.sight() // the model may have changed
	if first {
		return false, r.recall(ctx)
	}
	return false, r.follow(ctx)
}

// checkLimits ends the turn if it has reached a limit, or repeats itself.
func (r *run) checkLimits(ctx context.Context) (ended bool, err error) {
	reached, err := r.limited(ctx)
	switch {
	case err != nil:
		return false, err
	case reached != nil && reached.name == "turn_minutes":
		return true, r.timeUp(ctx, nil)
	case reached != nil:
		return true, r.end(ctx, Limited, reached.ended(), nil)
	case r.loops():
		return true, r.fail(ctx, "loop", fault.New(fault.Exhausted, "the bot repeats the same calls without making progress", "say what it should do differently"))
	}
	return false, nil
}

// workOnCalls runs calls of tools, and parks the turn if one of them asks a person. timeUp reports that the turn's time ended
// them.
func (r *run) workOnCalls(ctx context.Context, calls []call) (timeUp bool, err error) {
	if err := r.survived(ctx); err != nil {
		return false, err
	}
	timed, stop := r.timed(ctx)
	defer stop()
	asking, err := r.runCalls(timed, calls)
	over := ctx.Err() == nil && timed.Err() != nil
	switch {
	case err != nil && over:
		return true, nil
	case err == nil && asking && !over:
		return false, r.park(ctx)
	}
	return false, err
}

// timed returns a context that ends at the turn's time limit. Until stop is called, it also reports in the thread that
// the limit is near, because a single call may take that long.
func (r *run) timed(ctx context.Context) (timed context.Context, stop func()) {
	limit := r.bot.Limits.withDefaults().Time
	timed, cancel := context.WithDeadlineCause(ctx, r.deadline(), ErrTimeUp)
	m := r.timeMeter()
	if r.reported[m.name] {
		return timed, cancel
	}
	m.used = max(m.used, nearly*m.max)
	draft := r.near(m) // now, because a step changes the turn meanwhile
	over := make(chan struct{})
	timer := time.AfterFunc(time.Until(r.turn.StartedAt.Add(r.turn.Waited+time.Duration(nearly*float64(limit)))), func() {
		defer close(over)
		if _, err := r.log.Append(timed, r.ref, draft); err == nil {
			r.reported[m.name] = true
		} else if timed.Err() == nil {
			r.Logger.WarnContext(ctx, "cannot say in the thread that a bot is near a limit", "limit", m.name, "error", fault.From(err).Detail())
		}
	})
	return timed, func() {
		cancel()
		if !timer.Stop() {
			<-over
		}
	}
}

// failOrReturn ends the turn if people can fix the error, and otherwise returns it.
func (r *run) failOrReturn(ctx context.Context, reason string, err error) error {
	if ctx.Err() != nil || !fixable(err) {
		return err
	}
	return r.fail(ctx, reason, err)
}

// step calls the model once and commits the result. ended reports that the turn has ended.
func (r *run) step(ctx context.Context) (ended bool, err error) {
	if err := r.introduce(ctx); err != nil {
		return false, err
	}
	silent := false
	for compactions := 0; ; {
		request := r.stepRequest(silent)
		if r.long(request) && compactions < compactRetries {
			compactions++
			err := r.compact(ctx)
			if err == nil {
				continue
			}
			if over, ended, err := r.notShortened(ctx, err); over {
				return ended, err
			}
		}
		answer, alive, err := r.publish(ctx, request)
		leaks := r.redact(&answer)
		answer.Message.Turn = r.turn.ID
		switch {
		case err == nil && r.turn.Steps > 0 && !silent && answer.Message.StopReason == entry.PiStopped && r.text(answer) == "":
			silent = true // some models end without a text after tool calls
			if err := r.count(ctx, r.turn.stepID(r.turn.Steps+1)+".silent"+entry.StepCall(r.turn.Attempts, r.calls), answer); err != nil {
				return false, err
			}
		case err == nil:
			return r.commitOnce(ctx, answer, leaks)
		case isOverflow(err) && ctx.Err() == nil && compactions < compactRetries:
			compactions++
			if shorter, ended, err := r.overflowed(ctx, request, answer); !shorter {
				return ended, err
			}
		default:
			return r.unanswered(ctx, answer, alive, err)
		}
	}
}

// stepRequest returns the request of a step. silent reports that the model gave no answer to the last one.
func (r *run) stepRequest(silent bool) model.Request {
	var once []entry.PiMessage
	if silent {
		once = append(once, note("you gave no answer. Say now what came of it."))
	}
	return r.request(r.transcript.messages(), once...)
}

func isOverflow(err error) bool {
	failed, isModel := errors.AsType[*model.Error](err)
	return isModel && failed.Kind == model.Overflow
}

// unanswered ends the turn, or waits, after a call without a complete answer.
func (r *run) unanswered(ctx context.Context, answer model.Answer, alive time.Time, err error) (ended bool, _ error) {
	spent, isSpent := errors.AsType[*spentError](err)
	failed, isModel := errors.AsType[*model.Error](err)
	switch {
	case isSpent && r.turn.Fallback != "":
		return r.wait(ctx, unanswered{kind: spent.name, brief: spent.words, lasting: true, err: spent}, alive)
	case isSpent:
		return true, r.end(ctx, Limited, spent.ended(), nil)
	case ctx.Err() != nil:
		return true, r.interrupted(ctx, answer)
	case isModel && (failed.Passing() || r.turn.Fallback != "" && failed.Kind != model.Refusal && failed.Kind != model.Overflow):
		return r.broken(ctx, answer, failed, alive)
	case isModel:
		return true, r.end(ctx, Failed, failure(string(failed.Kind), err), &answer)
	}
	return true, r.failOrReturn(ctx, "request", err)
}

// commitOnce commits an answer, or counts it if another server was faster.
func (r *run) commitOnce(ctx context.Context, answer model.Answer, leaks []int) (ended bool, err error) {
	if ended, err = r.commit(ctx, answer, leaks); errors.Is(err, ErrOvertaken) {
		err = cmp.Or(r.countLost(ctx, answer), err)
	}
	return ended, err
}

// broken counts an answer that broke off, and waits.
func (r *run) broken(ctx context.Context, answer model.Answer, failed *model.Error, alive time.Time) (ended bool, err error) {
	// The partial answer has no effect, because tools run only when an answer is complete.
	if err := r.count(ctx, r.turn.stepID(r.turn.Steps+1)+".cut"+entry.StepCall(r.turn.Attempts, r.calls), answer); err != nil {
		return false, err
	}
	return r.wait(ctx, unansweredBy(failed), alive)
}

// publish sends a request, and publishes the answer while it grows. alive is the time of its last sign of life.
func (r *run) publish(ctx context.Context, request model.Request) (answer model.Answer, alive time.Time, err error) {
	p := r.publisher(ctx)
	life := r.watch(ctx, p)
	answer, err = r.stream(ctx, r.modelID, request, func(d model.Delta) {
		life.heard()
		p.delta(d)
	})
	r.heard = time.Now()
	alive = life.end()
	p.flush()
	return answer, alive, err
}

// overflowed shortens the transcript after the model has rejected a request as too long. If it cannot, the other results
// say how the step ends.
func (r *run) overflowed(ctx context.Context, request model.Request, answer model.Answer) (shorter, ended bool, err error) {
	// The catalog's window is wrong for this endpoint: it is smaller than what was just sent.
	r.largest = min(r.window, request.Estimate()) * 3 / 4
	r.window = r.largest
	if err := r.count(ctx, r.turn.stepID(r.turn.Steps+1)+".overflow"+entry.StepCall(r.turn.Attempts, r.calls), answer); err != nil {
		return false, false, err
	}
	if err := r.compact(ctx); err != nil {
		if failed, isModel := errors.AsType[*model.Error](err); isModel && failed.Passing() {
			ended, err = r.wait(ctx, unansweredBy(failed), time.Now())
			return false, ended, err
		}
		return false, true, r.fail(ctx, string(model.Overflow), err)
	}
	return true, false, nil
}

// notShortened handles a request that is too long and could not be shortened. over reports that the step ends with the
// other results; otherwise the request is sent unchanged.
func (r *run) notShortened(ctx context.Context, err error) (over, ended bool, _ error) {
	if ctx.Err() != nil {
		return true, false, ctx.Err()
	}
	failed, isModel := errors.AsType[*model.Error](err)
	switch {
	case isModel && failed.Passing():
		ended, err = r.wait(ctx, unansweredBy(failed), time.Now())
		return true, ended, err
	case isModel && failed.Kind != model.Overflow:
		return true, true, r.fail(ctx, string(failed.Kind), err)
	}
	return false, false, nil
}

// commit writes a complete answer: a step if it calls tools, otherwise the bot's chat, which ends the turn. leaks are
// the calls that must not be run; see redact.
func (r *run) commit(ctx context.Context, answer model.Answer, leaks []int) (ended bool, err error) {
	m := answer.Message
	calls := len(m.Calls())
	r.last = &answer
	if m.StopReason == entry.PiToolUse && calls > maxCalls {
		what := fault.Newf(fault.Exhausted, "ask for less at once, or use another model", "the model called %d tools at once, and may call %d", calls, maxCalls)
		return true, r.end(ctx, Failed, failure("too_many_calls", what), &answer)
	}
	if !r.storable(answer) && m.StopReason == entry.PiToolUse {
		what := fault.New(fault.Exhausted, "the model wrote more than an entry can hold", "ask for less at once, or use another model")
		return true, r.end(ctx, Failed, failure("too_long", what), &answer)
	}
	if m.StopReason == entry.PiToolUse && calls > 0 {
		return false, r.commitStep(ctx, answer, leaks)
	}
	text := r.text(answer)
	if text == "" {
		what := fault.New(fault.Unavailable, "the model gave no answer", "ask again")
		if m.StopReason == entry.PiLength {
			what = fault.New(fault.Exhausted, "the model wrote as much as it may before it said anything", "ask for less at once, or use another model")
		}
		return true, r.end(ctx, Silent, failure("silent", what), &answer)
	}
	cut := m.StopReason == entry.PiLength
	if len(text) > entry.MaxText {
		text, cut = entry.Clip(text, entry.MaxText-len("…")), true
	}
	return true, r.answer(ctx, answer, text, cut)
}

// commitStep writes an answer that calls tools.
func (r *run) commitStep(ctx context.Context, answer model.Answer, leaks []int) error {
	calls := answer.Message.Calls()
	err := r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		moved, err := queries.StepTurn(ctx, tx, r.turn.ID, int32(r.turn.Steps), int32(r.turn.Attempts))
		if err != nil || moved == 0 {
			return cmp.Or(err, ErrOvertaken)
		}
		if err := r.writeStep(ctx, tx, answer); err != nil {
			return err
		}
		for _, n := range leaks { // in this transaction, so that no server runs them
			if err := r.appendTx(ctx, tx, entry.NewDraft(r.turn.callID(r.turn.Steps+1, n), r.turn.Bot, r.refused(calls[n]))); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		r.turn.Steps, r.turn.Attempts, r.turn.Deaths = r.turn.Steps+1, 0, 1
	}
	return err
}
