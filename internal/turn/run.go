package turn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// endTimeout limits writing the end of a turn that was stopped, which must be written although its context ended.
	endTimeout = 20 * time.Second
	// compactRetries is how often a call is repeated, with a shorter transcript, that was too long for its model.
	compactRetries = 3
	// maxRepeats is how many steps in a row may call the same tools with the same arguments and get the same results; see
	// [run.loops].
	maxRepeats = 8
	// maxCalls is how many tools a step may call. Each call and each result is stored, and read again with each further
	// step.
	maxCalls = 128
	// maxAttempts is how often a step may be begun, whatever interrupted it. Waits for the model's provider do not
	// count.
	maxAttempts = 50
	// maxDeaths is how many servers may die while they work on a step. The model's answer may be what kills them, so
	// the last of them works on only one such turn at a time.
	maxDeaths = 3
)

// Bot is what a turn needs to know of its bot.
type Bot struct {
	Handle, Name, Instructions string
	// Model is the ref of its model; empty for the house's default.
	Model string
	// Think is how hard its model thinks, unless a question says otherwise.
	Think entry.Effort
	// Tools are the names of the tools that it may use, and Ask those of them that need a person's approval.
	Tools, Ask []string
	Limits     Limits
	// Listens holds, by the id of an activation policy, the topics on which a listening bot speaks up. Without topics
	// it speaks up whenever that helps.
	Listens map[string]string
}

// Config configures a [Runner]. The fields up to Park are required; without Bot, all turns fail.
type Config struct {
	DB     *db.DB
	Log    *stream.Log
	Logger *slog.Logger
	Model  *model.Client
	// Tools returns the tools that a bot of the scope's house can have; its settings name those that it may use. It is
	// called before each step, so a tool that it no longer returns does not run.
	Tools func(ctx context.Context, scope db.Scope, bot string) ([]Tool, error)
	// Bot returns the settings of a bot of the scope's house, or a [fault.NotFound].
	Bot func(ctx context.Context, scope db.Scope, id string) (Bot, error)
	// Endpoint returns the endpoint of a model, and the model's id there. ref is a bot's model; empty for the house's
	// default. If there is none, the error says how to set one.
	Endpoint func(ctx context.Context, scope db.Scope, ref string) (model.Endpoint, string, error)
	// Fallbacks returns the refs of the models that bots ask, in this order, while the provider of their own model does
	// not answer. Defaults to nil: there are none.
	Fallbacks func(ctx context.Context, scope db.Scope) ([]string, error)
	// Person returns an agent, or a [fault.NotFound].
	Person func(ctx context.Context, scope db.Scope, id string) (Person, error)
	// House and Setting return what bots know about the scope's house and one of its threads. Default to nil: nothing.
	House   func(ctx context.Context, scope db.Scope) (House, error)
	Setting func(ctx context.Context, scope db.Scope, thread string) (Setting, error)
	// Queue queues a turn when tx commits.
	Queue func(ctx context.Context, tx pgx.Tx, t Turn) error
	// Park leaves a turn alone until it is [Turn].Due, or somebody answers, when tx commits.
	Park func(ctx context.Context, tx pgx.Tx, t Turn) error
	// Waits say how turns wait for the providers of their models.
	Waits Waits
	// Roots limit what follows from one entry of a person. Budget limits the cost of the installation's models.
	Roots  RootLimits
	Budget Budget
	// Pace waits until a server may check the next n bytes of a model's response in a turn of a house; see [model.Request].
	// Defaults to nil: nothing waits.
	Pace func(ctx context.Context, house string, n int) (end func())
	// Files reads the files that chats name. Defaults to nil: models read only their names.
	Files Files
	// Observe is called when a turn has ended, with the time since it was requested. It must be quick. Defaults to nil.
	Observe func(outcome Status, took time.Duration)
}

// Runner runs turns. It is safe for concurrent use.
type Runner struct {
	Config
	// noSmall has the servers of models that refused their provider's small model.
	noSmall sync.Map
	// blind has the models, with their servers, that are not in the catalog and refused images.
	blind sync.Map
	// lastTry is held by a turn that may kill its last server.
	lastTry chan struct{}
	// images limits the memory for images of requests in progress.
	images *semaphore.Weighted
}

// NewRunner returns a Runner.
func NewRunner(c Config) *Runner {
	return &Runner{Config: c, lastTry: make(chan struct{}, 1), images: semaphore.NewWeighted(imageMemory)}
}

// run is the work on one turn on this server.
type run struct {
	*Runner
	turn  Turn
	log   *stream.Log
	db    *db.DB
	ref   stream.Ref
	model *model.Client

	bot   Bot
	tools []Tool
	// surroundings is where the turn is; nil until that is known.
	surroundings *surroundings
	// instructed reports that the model has, or was just given, the instructions of the workspace.
	instructed atomic.Bool
	// called are the calls that were begun here, by tool.
	callsMu  sync.Mutex
	called   map[string]map[string]bool
	endpoint model.Endpoint
	modelID  string
	window   int64
	// largest is the largest context that the model is known to accept, if that is less than the catalog says.
	largest int64
	// redactor removes the key of the endpoint, which is key.
	redactor *secret.Redactor
	key      string

	transcript transcript
	used       query.TurnUsedRow
	reported   map[string]bool
	// last is the last answer that was to be written.
	last *model.Answer
	// done are the turn's steps by number, including those that a summary replaced in the transcript.
	done map[int]doneStep
	// calls counts the model calls on this server, whose ids must differ.
	calls int
	// fitted reports that the transcript was shortened to the size at which a turn begins.
	fitted bool
}

// ErrOvertaken reports that another server has begun the turn again, so that this one may write nothing for it.
var ErrOvertaken = errors.New("another server works on the turn")

// errEnded reports that someone else has ended the turn.
var errEnded = errors.New("the turn has ended")

// Run works on a turn until it has ended, and then returns nil, even if it had ended before. to is the log of its
// thread. If ctx ends first, the turn ends as stopped if somebody wants that; otherwise Run returns the error of ctx,
// and the next call continues the turn. A delayed turn that is not due is a [*NotDueError], one that waits for its
// model's provider a [*WaitError], and one that waits for people is [ErrAsking]. If another call begins the turn while
// this one works on it, this one returns [ErrOvertaken]. Other errors are those of the database: the call should be
// repeated.
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
	// The log refuses what a removed bot writes, which may be noticed before ctx ends.
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

// ErrTimeUp is the cause with which the context of a tool ends when its turn has reached its time limit.
var ErrTimeUp = errors.New("the turn has taken as long as it may")

// workAlone calls work. If the turn may be what kills its servers, workAlone first waits until this server works on no
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

// recorded reports whether the turn's row already says the same as an error: that others work on it, that it has ended,
// or that it asks.
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

// survived forgets the servers that died, because they worked on tools and not on a model's answer.
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
	if r.turn.Attempts-r.turn.Asks-r.turn.Waits > maxAttempts {
		return r.fail(ctx, "attempts", fault.Newf(fault.Internal, "ask again; if it happens again, look into the server's log", "the bot began %d times without making progress", maxAttempts))
	}
	if r.turn.Deaths > maxDeaths {
		return r.fail(ctx, "server_died", fault.Newf(fault.Internal, "ask again; if it happens again, use another model, and look into the server's log", "%d servers ended while the bot worked on this step", maxDeaths))
	}
	r.transcript = transcript{bot: r.turn.Bot, turn: r.turn.ID, people: map[string]Person{}}
	for first := true; ; first = false {
		if !first { // at first, the row was just read
			if err := r.reload(ctx); err != nil {
				return err
			}
		}
		if r.turn.StoppedBy != "" {
			return r.stop(ctx, nil)
		}
		if reason, err := r.prepare(ctx); err != nil {
			return r.failOrReturn(ctx, reason, err)
		}
		r.transcript.sight = r.sight() // the model may have changed
		var err error
		if first {
			err = r.recall(ctx)
		} else {
			err = r.follow(ctx)
		}
		if err != nil {
			return err
		}
		if calls := r.transcript.pending(r.turn); len(calls) > 0 {
			if timeUp, err := r.workOnCalls(ctx, calls); err != nil {
				return err
			} else if !timeUp {
				continue
			}
		}
		if reached, err := r.limited(ctx); err != nil {
			return err
		} else if reached != nil && reached.name == "turn_minutes" {
			return r.timeUp(ctx, nil)
		} else if reached != nil {
			return r.end(ctx, Limited, reached.ended(), nil)
		}
		if r.loops() {
			return r.fail(ctx, "loop", fault.New(fault.Exhausted, "the bot repeats the same calls without making progress", "say what it should do differently"))
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

// reload reads the turn's row again.
func (r *run) reload(ctx context.Context) error {
	var t Turn
	err := r.db.In(ctx, r.scope(), func(tx pgx.Tx) (err error) {
		t, err = GetTx(ctx, tx, r.turn.ID)
		return err
	})
	switch {
	case err != nil:
		return err
	case !t.Status.Active():
		return errEnded
	case t.Steps != r.turn.Steps || t.Attempts != r.turn.Attempts:
		return ErrOvertaken
	}
	r.turn = t
	return nil
}

// prepare reads the bot's settings, which may have changed since the last step. reason is the word for an error that ends
// the turn.
func (r *run) prepare(ctx context.Context) (reason string, err error) {
	if r.Bot == nil {
		return "no_bots", fault.New(fault.Precondition, "this server has no bots", "")
	}
	if r.bot, err = r.Bot(ctx, r.scope(), r.turn.Bot); fault.CodeOf(err) == fault.NotFound {
		return reasonRemoved, errRemoved
	} else if err != nil {
		return "bot", err
	}
	tools, err := r.Tools(ctx, r.scope(), r.turn.Bot)
	if err != nil {
		return "tools", err
	}
	if r.tools = offered(tools, r.bot.Tools); r.turn.Tools != nil {
		r.tools = offered(r.tools, r.turn.Tools)
	}
	if r.endpoint, r.modelID, err = r.Endpoint(ctx, r.scope(), cmp.Or(r.turn.Fallback, r.bot.Model)); r.turn.Fallback != "" && err != nil && fixable(err) {
		r.turn.Fallback = "" // the house may no longer use it
		r.endpoint, r.modelID, err = r.Endpoint(ctx, r.scope(), r.bot.Model)
	}
	if err != nil {
		if fault.CodeOf(err) == fault.NotFound {
			err = fault.New(fault.Precondition, fault.From(err).Message, fault.From(err).Next)
		}
		return "no_model", err
	}
	if err := r.locate(ctx); err != nil {
		return "setting", err
	}
	r.receive()
	r.window = model.Lookup(r.endpoint.Provider, r.modelID).ContextWindow
	if r.largest > 0 {
		r.window = min(r.window, r.largest)
	}
	return "", nil
}

// introduce looks up the names of the authors.
func (r *run) introduce(ctx context.Context) error {
	for id := range r.transcript.authors() {
		if _, known := r.transcript.people[id]; known {
			continue
		}
		p, err := r.Person(ctx, r.scope(), id)
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			return err
		}
		r.transcript.people[id] = p
	}
	return nil
}

// step calls the model once and commits the result. ended reports that the turn has ended.
func (r *run) step(ctx context.Context) (ended bool, err error) {
	if err := r.introduce(ctx); err != nil {
		return false, err
	}
	silent := false
	for compactions := 0; ; {
		var once []entry.PiMessage
		if silent {
			once = append(once, note("you gave no answer. Say now what came of it."))
		}
		request := r.request(r.transcript.messages(), once...)
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
		p := r.publisher(ctx)
		life := r.watch(ctx, p)
		answer, err := r.stream(ctx, r.modelID, request, func(d model.Delta) {
			life.heard()
			p.delta(d)
		})
		alive := life.end()
		p.flush()
		if spent, ok := errors.AsType[*spentError](err); ok && r.turn.Fallback != "" {
			return r.wait(ctx, unanswered{kind: spent.name, brief: spent.words, lasting: true, err: spent}, alive)
		} else if ok {
			return true, r.end(ctx, Limited, spent.ended(), nil)
		}
		leaks := r.redact(&answer)
		answer.Message.Turn = r.turn.ID
		failed, isModel := errors.AsType[*model.Error](err)
		switch {
		case err == nil && r.turn.Steps > 0 && !silent && answer.Message.StopReason == entry.PiStopped && r.text(answer) == "":
			silent = true // after tools, some models end without a text
			if err := r.count(ctx, r.turn.stepID(r.turn.Steps+1)+".silent"+entry.StepCall(r.turn.Attempts, r.calls), answer); err != nil {
				return false, err
			}
		case err == nil:
			if ended, err = r.commit(ctx, answer, leaks); errors.Is(err, ErrOvertaken) {
				err = cmp.Or(r.countLost(ctx, answer), err)
			}
			return ended, err
		case ctx.Err() != nil:
			return true, r.interrupted(ctx, answer)
		case isModel && failed.Kind == model.Overflow && compactions < compactRetries:
			compactions++
			// The catalog's window is wrong for this endpoint: it is smaller than what was just sent.
			r.largest = min(r.window, request.Estimate()) * 3 / 4
			r.window = r.largest
			if err := r.count(ctx, r.turn.stepID(r.turn.Steps+1)+".overflow"+entry.StepCall(r.turn.Attempts, r.calls), answer); err != nil {
				return false, err
			}
			if err := r.compact(ctx); err != nil {
				if failed, isModel := errors.AsType[*model.Error](err); isModel && failed.Passing() {
					return r.wait(ctx, unansweredBy(failed), time.Now())
				}
				return true, r.fail(ctx, string(model.Overflow), err)
			}
		case isModel && (failed.Passing() || r.turn.Fallback != "" && failed.Kind != model.Refusal && failed.Kind != model.Overflow):
			// The partial answer has no effect, because tools run only when an answer is complete.
			if err := r.count(ctx, r.turn.stepID(r.turn.Steps+1)+".cut"+entry.StepCall(r.turn.Attempts, r.calls), answer); err != nil {
				return false, err
			}
			return r.wait(ctx, unansweredBy(failed), alive)
		case isModel:
			return true, r.end(ctx, Failed, failure(string(failed.Kind), err), &answer)
		default:
			return true, r.failOrReturn(ctx, "request", err)
		}
	}
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

// errRemoved ends the turns of a bot that is no longer in the house, and reasonRemoved is its word.
var errRemoved = fault.New(fault.Precondition, "the bot was removed", "ask another one")

const reasonRemoved = "bot_removed"

// text returns the text of an answer.
func (r *run) text(answer model.Answer) string {
	return strings.TrimSpace(strings.Map(printable, strings.ToValidUTF8(r.redactor.String(answer.Message.Text()), "\uFFFD")))
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
		err := r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
			moved, err := queries.StepTurn(ctx, tx, r.turn.ID, int32(r.turn.Steps), int32(r.turn.Attempts))
			if err != nil || moved == 0 {
				return cmp.Or(err, ErrOvertaken)
			}
			if err := r.writeStep(ctx, tx, answer); err != nil {
				return err
			}
			for _, n := range leaks { // in this transaction, so that no server runs them
				if err := r.appendTx(ctx, tx, entry.NewDraft(r.turn.callID(r.turn.Steps+1, n), r.turn.Bot, r.refused(m.Calls()[n]))); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			r.turn.Steps, r.turn.Attempts, r.turn.Deaths = r.turn.Steps+1, 0, 1
		}
		return false, err
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

// printable returns -1 for control characters, which nobody can read. What remains of an escape sequence are its
// letters, which are harmless without the escape.
func printable(c rune) rune {
	if c < ' ' && c != '\n' && c != '\t' && c != '\x1b' || c == 0x7f {
		return -1
	}
	return c
}

// storable reports whether an entry can hold an answer.
func (r *run) storable(answer model.Answer) bool {
	return len(entry.NewDraft("", r.turn.Bot, answer.Message).Payload) <= entry.MaxPayload
}

// writeStep writes an answer as a step, and counts it.
func (r *run) writeStep(ctx context.Context, tx pgx.Tx, answer model.Answer) error {
	id := r.turn.stepID(r.turn.Steps + 1)
	if err := r.countTx(ctx, tx, id, answer); err != nil {
		return err
	}
	return r.appendTx(ctx, tx, entry.NewDraft(id, r.turn.Bot, answer.Message))
}

// appendTx appends an entry, whose id must be new.
func (r *run) appendTx(ctx context.Context, tx pgx.Tx, d entry.Draft) error {
	entries, err := r.log.AppendTx(ctx, tx, r.ref, d)
	if err == nil && !bytes.Equal(entries[0].Payload, d.Payload) {
		err = ErrOvertaken
	}
	return err
}

// countLost records the usage of a call whose answer this attempt cannot write.
func (r *run) countLost(ctx context.Context, answer model.Answer) error {
	return r.count(ctx, r.turn.stepID(r.turn.Steps+1)+".lost"+strconv.Itoa(r.turn.Attempts), answer)
}

// count records the usage of a call whose answer is discarded.
func (r *run) count(ctx context.Context, id string, answer model.Answer) error {
	if answer.Usage.Total() == 0 {
		return nil
	}
	return r.db.In(ctx, r.scope(), func(tx pgx.Tx) error { return r.countTx(ctx, tx, id, answer) })
}

func (r *run) countTx(ctx context.Context, tx pgx.Tx, id string, answer model.Answer) error {
	u := answer.Usage
	return queries.InsertModelCall(ctx, tx, query.InsertModelCallParams{
		HouseID: r.turn.House, ThreadID: r.turn.Thread, TurnID: r.turn.ID, ID: id, AgentID: r.turn.Bot, Model: r.endpoint.Name + "/" + r.modelID,
		Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
		CostMicros: answer.Cost.Micros(), CostKnown: answer.CostKnown, Estimated: answer.Estimated, ChargedMicros: r.Budget.Charged(r.endpoint, u, answer.Cost, answer.CostKnown), Own: !r.endpoint.Shared,
	})
}
