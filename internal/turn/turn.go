// Package turn lets bots answer: a turn is a bot's work on a message in a thread.
//
// A turn is a loop. It calls the bot's model with the thread's messages (transcript.go), runs the tools that the model
// calls (tool.go), and calls the model again, until the model has nothing more to do. Each step is committed before the
// next one begins: the model's answer as a pi.assistant entry before its tools run, each tool's result as a
// pi.tool_result entry, and the last answer as the bot's chat. Any server can therefore continue a turn from the log: a
// killed server loses only the call in progress.
//
// No step happens twice. The ids of a turn's entries derive from its own id, and a log stores one entry per id. A step
// is committed together with the row's count of steps, and only by the server that began the turn last. Repeating a
// tool is harmless.
//
// A bot has one turn at a time in a thread. Entries that arrive meanwhile are passed to that turn (steering), which
// reads the log again before each call, and does not end before it has read them all.
//
// This package has no queues and does not choose bots: package dispatch decides which turns begin, and runs them.
package turn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/stream"
)

var queries = query.New()

// Turn is one turn of a bot.
type Turn struct {
	ID, House, Thread string
	// Bot is the id of the bot.
	Bot string
	// Entry is the id of the entry that asked, and Asked the ids of all entries that the turn answers; AskedSeqs are
	// their positions.
	Entry     string
	Asked     []string
	AskedSeqs []int64
	// Reason is the trigger in one word, and Policy the activation policy that matched.
	Reason, Policy string
	// Tools are the names of the bot's tools that the turn may use: those of all policies that passed it an entry. Nil
	// means all.
	Tools []string
	// AskedThink is how hard the model thinks for entries of Asked, by id, as their authors requested.
	AskedThink map[string]entry.Effort
	// Chain is the number of bots' turns that led to it, one after the other, since a person spoke. If several entries
	// led to it, the longest chain counts.
	Chain int
	// Root is the entry of a person from which the turn follows; see [RootOf]. If several entries led to it, it is the
	// root of the last one by a person, or else of the first.
	Root   string
	Status Status
	// Due is the time at which a delayed turn decides whether it begins, a turn that asks people continues without an
	// answer, or a turn that waits for its model's provider asks again.
	Due time.Time
	// Steps is how many model calls are in the log.
	Steps int
	// StoppedBy is the agent that wants it to stop; empty if nobody does.
	StoppedBy string
	// Attempts is how often its next step was begun or, for a delayed turn, the decision whether it begins.
	Attempts int
	// Asks is how many of those attempts ended with a wait for people's answers. Waited is the total time of these waits.
	Asks   int
	Waited time.Duration
	// Deaths is how many servers began to work on its next step and did not return from it.
	Deaths int
	// Tries is how often the model was asked for the next step without success. FailingSince is when its provider
	// stopped answering, and Failure the reason in a few words, FailureKind in one. Waits is how often the turn was
	// left because of that.
	Tries, Waits         int
	FailingSince         time.Time
	Failure, FailureKind string
	// Fallback is the fallback model that it asks instead of its bot's; empty for the bot's own. OwnAfter is the
	// earliest time at which the bot's own provider may be asked again.
	Fallback                    string
	OwnAfter                    time.Time
	CreatedAt, StartedAt, Ended time.Time
}

// Status is the state of a turn.
type Status string

// The statuses. The first four belong to active turns.
const (
	// Delayed: the turn waits in case somebody else speaks.
	Delayed Status = "delayed"
	Queued  Status = "queued"
	Running Status = "running"
	// Asking: the turn waits until people decide whether tools may run; see [AnswerTx].
	Asking Status = "asking"
	// Answered: the bot's chat is in the log.
	Answered Status = "answered"
	// Failed, Stopped, Limited and Silent: an [entry.TurnEnded] in the log says why there is no answer.
	Failed  Status = entry.TurnFailed
	Stopped Status = entry.TurnStopped
	Limited Status = entry.TurnLimited
	Silent  Status = entry.TurnSilent
	// Skipped: a delayed turn did not begin.
	Skipped Status = "skipped"
)

// Active reports whether the turn has not ended.
func (s Status) Active() bool { return s == Delayed || s == Queued || s == Running || s == Asking }

func fromRow(r query.Turn) Turn {
	return Turn{
		ID: r.ID, House: r.HouseID, Thread: r.ThreadID, Bot: r.AgentID, Entry: r.EntryID, Asked: r.Asked, Reason: r.Reason,
		Policy: db.Zero(r.PolicyID), Tools: r.Tools, Chain: int(r.Chain), Root: r.Root, Status: Status(r.Status), Due: db.Zero(r.DueAt), AskedSeqs: r.AskedSeqs, AskedThink: askedThink(r.AskedThink),
		Steps: int(r.Steps), StoppedBy: db.Zero(r.StoppedBy), Attempts: int(r.Attempts), Asks: int(r.Asks), Waited: time.Duration(r.WaitedMs) * time.Millisecond, Deaths: int(r.Deaths),
		Tries: int(r.Tries), Waits: int(r.Waits), FailingSince: db.Zero(r.FailingSince), Failure: r.Failure, FailureKind: r.FailureKind,
		Fallback: r.Fallback, OwnAfter: db.Zero(r.OwnAfter),
		CreatedAt: r.CreatedAt, StartedAt: db.Zero(r.StartedAt), Ended: db.Zero(r.EndedAt),
	}
}

// The ids of a turn's entries begin with [entry.TurnPrefix] and the turn's id, so that no entry is written twice.

func (t Turn) startID() string         { return entry.TurnPrefix + t.ID + ".start" }
func (t Turn) endID() string           { return entry.TurnEndID(t.ID) }
func (t Turn) stepID(n int) string     { return entry.TurnPrefix + t.ID + "." + strconv.Itoa(n) }
func (t Turn) steerID(e string) string { return entry.TurnPrefix + t.ID + ".steer." + e }

// callID returns the id of the result of a step's n-th tool call.
func (t Turn) callID(step, n int) string { return entry.CallResultID(t.stepID(step), n) }

// Question is an entry that a turn answers.
type Question struct {
	Entry string
	Seq   int64
	// Think is how hard the model thinks for it; empty for the bot's setting.
	Think entry.Effort
}

// question returns the n-th of the entries that the turn answers.
func (t Turn) question(n int) Question {
	return Question{t.Asked[n], t.AskedSeqs[n], t.AskedThink[t.Asked[n]]}
}

// Think returns how hard the turn's model thinks, as people last requested; empty for the bot's setting.
func (t Turn) Think() entry.Effort {
	for _, id := range slices.Backward(t.Asked) {
		if e := t.AskedThink[id]; e != entry.EffortDefault {
			return e
		}
	}
	return entry.EffortDefault
}

// Questions returns the entries that the turn answers. The first is the one that asked.
func (t Turn) Questions() (list []Question) {
	for i := range t.Asked {
		list = append(list, t.question(i))
	}
	slices.SortStableFunc(list, func(a, b Question) int {
		switch t.Entry {
		case a.Entry:
			return -1
		case b.Entry:
			return 1
		}
		return 0
	})
	return list
}

// split divides the entries that the turn answers at a position: read are those up to it, unread those after it.
func (t Turn) split(tail int64) (read []string, unread []Question) {
	for i, id := range t.Asked {
		if t.AskedSeqs[i] <= tail {
			read = append(read, id)
		} else {
			unread = append(unread, t.question(i))
		}
	}
	return read, unread
}

// Request asks for a turn.
type Request struct {
	House, Thread, Bot string
	// Entry is the entry that asks, and Seq its position.
	Entry string
	Seq   int64
	// Reason, Policy, Tools, Chain and Root are as in [Turn]. Root defaults to the entry that asks.
	Reason, Policy string
	Tools          []string
	Chain          int
	Root           string
	// Think is how hard the model thinks for the entry. If set, it applies from then on in the turn that takes the
	// entry.
	Think entry.Effort
	// Delay is how long the turn waits before it begins. An [Ambient] turn waits in case somebody else speaks, and begins
	// only if the bot then has something to say. Defaults to 0: it begins at once.
	Delay time.Duration
}

// Ambient is the reason of a turn that nobody requested.
const Ambient = "ambient"

// Outcome is the result of a [Request].
type Outcome int

// The outcomes.
const (
	// Began: there is a new turn, which the caller queues.
	Began Outcome = iota + 1
	// Steered: the entry was passed to the bot's active turn.
	Steered
	// Postponed: the bot has a delayed turn, which is due at [Turn].Due now. An ambient turn starts its delay again.
	Postponed
	// Hurried: the bot's delayed turn is due now; the caller makes its job due.
	Hurried
)

// RequestTx passes an entry to the bot's active turn in the thread, or else begins one, and records which in the log.
// If the bot has a delayed turn there, that one takes the entry: an ambient request restarts the delay of an ambient
// turn, any other request does not prolong the delay, and a request without a delay ends it.
func RequestTx(ctx context.Context, tx pgx.Tx, log *stream.Log, to stream.Ref, r Request) (t Turn, o Outcome, err error) {
	t = Turn{House: r.House, Thread: r.Thread, Bot: r.Bot}
	r.Root = cmp.Or(r.Root, RootOf(r.Thread, r.Entry))
	var due time.Time
	if r.Delay > 0 {
		due = time.Now().Add(r.Delay)
	}
	for range 3 { // the active turn may end between two statements
		if t.ID, t.Due, o, err = attemptTx(ctx, tx, r, due); err == nil {
			break
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return t, 0, err
		}
	}
	if err != nil {
		return t, 0, fault.New(fault.Unavailable, "the bot's turns change too quickly", "try again").Because(err)
	}
	switch {
	case o == Steered:
		_, err = log.AppendTx(ctx, tx, to, entry.NewDraft(t.steerID(r.Entry), "", entry.TurnSteered{TurnID: t.ID, AgentID: r.Bot, EntryID: r.Entry, Reason: r.Reason}))
	case r.Delay == 0:
		err = t.startTx(ctx, tx, log, to, r.Entry, r.Reason, r.Policy)
	}
	return t, o, err
}

// SteerTx passes an entry to an active turn, as [RequestTx] does, and does nothing if that turn has ended meanwhile, even if
// the bot has another one.
func SteerTx(ctx context.Context, tx pgx.Tx, log *stream.Log, to stream.Ref, t Turn, q Question) error {
	r := Request{Entry: q.Entry, Think: q.Think}
	_, err := queries.SteerTurn(ctx, tx, query.SteerTurnParams{HouseID: t.House, ThreadID: t.Thread, AgentID: t.Bot, ID: &t.ID, Seq: q.Seq, EntryID: q.Entry, Chain: int32(t.Chain), Tools: t.Tools, Root: t.Root, AskedThink: r.askedThink()})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		_, err = log.AppendTx(ctx, tx, to, entry.NewDraft(t.steerID(q.Entry), "", entry.TurnSteered{TurnID: t.ID, AgentID: t.Bot, EntryID: q.Entry, Reason: t.Reason}))
	}
	return err
}

// WithdrawTx takes entries back from a delayed turn that tx has locked; see [LockTx]. rest are the entries that still ask
// for it. They include t.Entry, which from now on asks for it because of t.Reason and t.Policy. If rest is empty, the turn
// does not begin, and the log says why.
func WithdrawTx(ctx context.Context, tx pgx.Tx, log *stream.Log, to stream.Ref, t Turn, rest []Question, why entry.Reason) error {
	if len(rest) == 0 {
		if _, err := queries.DecideTurn(ctx, tx, string(Skipped), t.ID, &t.Due); err != nil {
			return err
		}
		skipped := entry.Skipped{AgentID: t.Bot, EntryID: t.Entry, Reason: string(why), Explanation: why.Explain(), PolicyID: t.Policy}
		_, err := log.AppendTx(ctx, tx, to, entry.NewDraft(t.endID(), "", skipped))
		return err
	}
	p := query.WithdrawEntriesParams{ID: t.ID, EntryID: t.Entry, Reason: t.Reason, PolicyID: db.Null(t.Policy)}
	for _, q := range rest {
		p.Asked, p.AskedSeqs = append(p.Asked, q.Entry), append(p.AskedSeqs, q.Seq)
	}
	p.Gone = slices.DeleteFunc(slices.Clone(t.Asked), func(id string) bool { return slices.Contains(p.Asked, id) })
	return queries.WithdrawEntries(ctx, tx, p)
}

// AskedTx returns the bots that were asked about entries of a thread. It leaves out bots that only listen and have not begun
// to answer.
func AskedTx(ctx context.Context, tx pgx.Tx, house, thread string, seqs []int64) (bots []string, err error) {
	return queries.TurnsAbout(ctx, tx, house, thread, seqs)
}

// ForgetTx deletes the summaries of a thread that may include the entry at a position. Bots then read the end of the thread,
// without the entries that the summary replaced.
func ForgetTx(ctx context.Context, tx pgx.Tx, house, thread string, seq int64) error {
	return queries.ForgetSummaries(ctx, tx, house, thread, seq)
}

// startTx records in the log that a turn begins.
func (t Turn) startTx(ctx context.Context, tx pgx.Tx, log *stream.Log, to stream.Ref, asks, reason, policy string) error {
	_, err := log.AppendTx(ctx, tx, to, entry.NewDraft(t.startID(), "", entry.TurnStarted{TurnID: t.ID, AgentID: t.Bot, EntryID: asks, Reason: reason, PolicyID: policy}))
	return err
}

// askedThink returns the stored form of how hard the model thinks for a request.
func (r Request) askedThink() json.RawMessage {
	said := map[string]entry.Effort{}
	if r.Think != entry.EffortDefault {
		said[r.Entry] = r.Think
	}
	text, _ := json.Marshal(said) // cannot fail for strings
	return text
}

// askedThink parses the stored form.
func askedThink(text []byte) (said map[string]entry.Effort) {
	_ = json.Unmarshal(text, &said) // only this package writes it
	return said
}

// attemptTx changes the row of the bot's active turn, or inserts one, and returns when it is due; zero if it is not delayed.
// If that turn ends meanwhile, the error is [pgx.ErrNoRows].
func attemptTx(ctx context.Context, tx pgx.Tx, r Request, due time.Time) (id string, at time.Time, o Outcome, err error) {
	fresh := r.Chain == 0 || r.Reason == Retried // a person requests the turn
	steer := query.SteerTurnParams{HouseID: r.House, ThreadID: r.Thread, AgentID: r.Bot, Seq: r.Seq, EntryID: r.Entry, Chain: int32(r.Chain), Tools: r.Tools, Root: r.Root, Fresh: fresh, AskedThink: r.askedThink()}
	if id, err = queries.SteerTurn(ctx, tx, steer); !errors.Is(err, pgx.ErrNoRows) {
		return id, at, Steered, err
	}
	begin := query.InsertTurnParams{
		HouseID: r.House, ThreadID: r.Thread, AgentID: r.Bot, EntryID: r.Entry, Reason: r.Reason, PolicyID: db.Null(r.Policy), Tools: r.Tools,
		Chain: int32(r.Chain), Root: r.Root, Status: string(Queued), Seq: r.Seq, AskedThink: r.askedThink(),
	}
	if r.Delay > 0 {
		row, err := queries.PostponeTurn(ctx, tx, query.PostponeTurnParams{
			DueAt: &due, Reason: r.Reason, PolicyID: begin.PolicyID, Tools: r.Tools, Chain: int32(r.Chain), Root: r.Root, Fresh: fresh, AskedThink: r.askedThink(), EntryID: r.Entry, Seq: r.Seq,
			HouseID: r.House, ThreadID: r.Thread, AgentID: r.Bot,
		})
		if !errors.Is(err, pgx.ErrNoRows) {
			return row.ID, db.Zero(row.DueAt), Postponed, err
		}
		begin.Status, begin.DueAt, at = string(Delayed), &due, due
	} else {
		id, err = queries.HurryTurn(ctx, tx, query.HurryTurnParams{
			EntryID: r.Entry, Reason: r.Reason, PolicyID: begin.PolicyID, Tools: r.Tools, Chain: begin.Chain, Root: r.Root, Fresh: fresh, AskedThink: r.askedThink(), Seq: r.Seq, HouseID: r.House, ThreadID: r.Thread, AgentID: r.Bot,
		})
		if !errors.Is(err, pgx.ErrNoRows) {
			return id, at, Hurried, err
		}
	}
	id, err = queries.InsertTurn(ctx, tx, begin)
	return id, at, Began, err
}

// GetTx returns a turn of the transaction's house, or a [fault.NotFound].
func GetTx(ctx context.Context, tx pgx.Tx, id string) (Turn, error) {
	row, err := queries.GetTurn(ctx, tx, id)
	return found(row, err)
}

// LockTx returns a turn of the transaction's house, which does not change until tx ends, or a [fault.NotFound].
func LockTx(ctx context.Context, tx pgx.Tx, id string) (Turn, error) {
	row, err := queries.LockTurn(ctx, tx, id)
	return found(row, err)
}

// found returns the turn of a row, or the error of its lookup.
func found(row query.Turn, err error) (Turn, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return Turn{}, fault.New(fault.NotFound, "there is no such turn", "see the thread's entries for the turns of its bots")
	}
	return fromRow(row), err
}

// ActiveTx returns the active turns of a thread, oldest first.
func ActiveTx(ctx context.Context, tx pgx.Tx, house, thread string) (list []Turn, err error) {
	rows, err := queries.ActiveTurns(ctx, tx, house, thread)
	for _, r := range rows {
		list = append(list, fromRow(r))
	}
	return list, err
}

// OverdueTx returns the active turns of all houses that are overdue by at least since. Only the fields ID, House, Thread and
// Due are set.
func OverdueTx(ctx context.Context, tx pgx.Tx, since time.Duration) ([]Turn, error) {
	rows, err := tx.Query(ctx, "select id, house_id, thread_id, due_at from active_turns($1)", since)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Turn, err error) {
		var due *time.Time
		if err = row.Scan(&t.ID, &t.House, &t.Thread, &due); due != nil {
			t.Due = *due
		}
		return t, err
	})
}

// ActiveOfTx returns the active turns of a bot in all threads of its house, oldest first.
func ActiveOfTx(ctx context.Context, tx pgx.Tx, house, bot string) (list []Turn, err error) {
	rows, err := queries.ActiveTurnsOf(ctx, tx, house, bot)
	for _, r := range rows {
		list = append(list, fromRow(r))
	}
	return list, err
}

// StopTx records that an agent wants a turn to stop. ok is false if the turn has ended. The caller cancels its job, and
// the server that works on the turn ends it.
func StopTx(ctx context.Context, tx pgx.Tx, id, by string) (t Turn, ok bool, err error) {
	row, err := queries.RequestStop(ctx, tx, &by, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Turn{}, false, nil
	}
	return fromRow(row), err == nil, err
}

// State is a bot's activity in a thread.
type State struct {
	// Active reports that one of its turns is queued or running, Delayed that one waits in case somebody else speaks.
	Active, Delayed bool
	// Last is when its last turn ended; zero if it had none within a day.
	Last time.Time
}

// StateTx returns the states of the bots in a thread, by their ids. A bot without a state has done nothing there
// recently.
func StateTx(ctx context.Context, tx pgx.Tx, house, thread string) (map[string]State, error) {
	rows, err := queries.LastTurns(ctx, tx, house, thread)
	states := map[string]State{}
	for _, r := range rows {
		states[r.AgentID] = State{Active: r.Active, Delayed: r.Delayed, Last: r.Last}
	}
	return states, err
}

// Used is the usage of a house.
type Used struct {
	// CostMicros is the cost, in millionths of a US dollar. Calls of models whose price is unknown count at the price of
	// [Budget] if they used a key of the installation, and otherwise count nothing.
	CostMicros int64
	// CostUnknown reports that there were such calls. Calls counts all.
	CostUnknown bool
	Calls       int64
	// ChargedMicros is the part of it that was spent with keys of the installation. PersonMicros is that of all houses of
	// the person to whom the house belongs, and InstallationMicros that of all houses.
	ChargedMicros, PersonMicros, InstallationMicros int64
	// MemberMicros is the part of CostMicros that follows from the messages and tasks of one person.
	MemberMicros int64
}

// UsedTodayTx returns the usage of a house's turns and runs since midnight UTC, including those in deleted threads, and a
// person's part of it.
func UsedTodayTx(ctx context.Context, tx pgx.Tx, house, person string) (u Used, err error) {
	row, err := queries.DayUsed(ctx, tx, "", house, "")
	if err != nil {
		return u, err
	}
	if person != "" {
		if u.MemberMicros, err = queries.MemberUsed(ctx, tx, house, person); err != nil {
			return u, err
		}
	}
	all, err := queries.ChargedToday(ctx, tx)
	return Used{
		CostMicros: row.House, CostUnknown: row.CostUnknown, Calls: row.Calls, ChargedMicros: row.Charged, PersonMicros: all.Person, InstallationMicros: all.Installation,
		MemberMicros: u.MemberMicros,
	}, err
}

// ThreadUsed is the usage of a thread.
type ThreadUsed struct {
	// CostMicros and CostUnknown are as in [TreeCostTx], and Calls is the number of model calls.
	CostMicros  int64
	CostUnknown bool
	Calls       int64
	// Model is the model that a turn of the thread asked last; empty if none has. Tokens is how many tokens it read, of at
	// most Window, which is 0 if it is not known.
	Model          string
	Tokens, Window int64
}

// TreeCostTx returns the cost of the models of a thread and of all threads below it, in millionths of a US dollar. unknown
// reports that the sum leaves out calls of models whose price is unknown.
func TreeCostTx(ctx context.Context, tx pgx.Tx, house, thread string) (micros int64, unknown bool, err error) {
	row, err := queries.TreeSpent(ctx, tx, house, thread)
	return row.CostMicros, row.CostUnknown, err
}

// ThreadUsedTx returns the usage of a thread.
func ThreadUsedTx(ctx context.Context, tx pgx.Tx, house, thread string) (u ThreadUsed, err error) {
	cost, err := queries.TreeSpent(ctx, tx, house, thread)
	if err != nil {
		return u, err
	}
	u = ThreadUsed{CostMicros: cost.CostMicros, CostUnknown: cost.CostUnknown, Calls: cost.Calls}
	last, err := queries.LastModelCall(ctx, tx, house, thread)
	if errors.Is(err, pgx.ErrNoRows) {
		return u, nil
	}
	u.Model, u.Tokens = last.Model, last.Tokens
	provider, id, _ := strings.Cut(last.Model, "/")
	if info := model.Lookup(model.Provider(provider), id); info.Known {
		u.Window = info.ContextWindow
	}
	return u, err
}

// ChainTx returns the chain and the root of a turn. The error is [pgx.ErrNoRows] if there is no such turn.
func ChainTx(ctx context.Context, tx pgx.Tx, id string) (chain int, root string, err error) {
	row, err := queries.ChainOf(ctx, tx, id)
	return int(row.Chain), row.Root, err
}

// worked returns how long the turn has taken, without its waits for people.
func (t Turn) worked() time.Duration { return time.Since(t.StartedAt) - t.Waited }

// Retried is the reason of a turn that a person has retried. It has a new root.
const Retried = "retry"

// RootOf returns the root that an entry of a person begins.
func RootOf(thread, entry string) string { return thread + "/" + entry }
