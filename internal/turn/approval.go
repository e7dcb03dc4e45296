package turn

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// This file lets people decide which calls of tools run. A bot may have tools that it uses only with a person's yes
// ([Bot].Ask). When its model calls one, the call becomes a request for approval: a row, and an entry of the thread. The turn waits for
// the answer in the database (status [Asking]) and not on a server. An answer, the end of the time for it, or a stop of the
// turn queues it again; it then finds by the call what was decided, and goes on.
//
// What runs is what the row has, which is what people saw. A request stands until it is answered, also if the bot's settings
// change meanwhile. It is made once: the id of the call names it. A yes counts only while the person who gave it is in the
// house, the thread is open and the bot has the tool.

const (
	// maxAsked limits the arguments of a call about which people are asked, in bytes. They are to read all of it.
	maxAsked = 256 << 10
	// threadApprovals and houseApprovals are how many requests may be open in a thread and in a house, and turnApprovals
	// how many a turn may make.
	threadApprovals, houseApprovals, turnApprovals = 20, 200, 50
	// maxReason limits what a person says to their answer, in characters.
	maxReason = 2000
)

// ErrAsking reports that a turn waits until people say whether tools may run.
var ErrAsking = errors.New("the turn waits for the answers of people")

// worked returns how long the turn has taken, without what it waited for people.
func (t Turn) worked() time.Duration { return time.Since(t.StartedAt) - t.Waited }

// Approval is a call of a tool that runs only with a person's yes.
type Approval struct {
	ID, House, Thread, Turn, Bot string
	// Call is the id of the entry that will be the result of the call.
	Call string
	// Tool and Arguments are what runs.
	Tool      string
	Arguments json.RawMessage
	// State is "open", or the outcome of an [entry.PermissionAnswered].
	State              string
	AskedAt, ExpiresAt time.Time
	// AnsweredBy is the person who answered, AnsweredAt when the request ended, and Reason what they said to it.
	AnsweredBy string
	AnsweredAt time.Time
	Reason     string
	// BotName, ThreadName and AnsweredByName are the names of these; empty if they are gone.
	BotName, ThreadName, AnsweredByName string
}

// open is the state of a request that has not been answered.
const open = "open"

func approvalFromRow(r query.Approval) Approval {
	return Approval{
		ID: r.ID, House: r.HouseID, Thread: r.ThreadID, Turn: r.TurnID, Bot: r.AgentID, Call: r.CallID, Tool: r.Tool, Arguments: json.RawMessage(r.Arguments),
		State: r.State, AskedAt: r.AskedAt, ExpiresAt: r.ExpiresAt, AnsweredBy: db.Zero(r.AnsweredBy), AnsweredAt: db.Zero(r.AnsweredAt), Reason: r.Reason,
	}
}

// shortIDs has the letters and digits of the short ids of the database.
var shortIDs = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz")

// approvalID derives the id of the approval of a call from that of the call's result.
func approvalID(call string) string {
	sum := sha256.Sum256([]byte(call))
	return shortIDs.EncodeToString(sum[:])[:12]
}

// pendingApproval is the approval of a call that is pending.
type pendingApproval struct {
	Approval
	// closed: nobody works in the thread any more. due: it is too late to answer. stands: the person who answered is still in
	// the house.
	closed, due, stands bool
}

// asked returns the approvals for which some calls asked, by the ids of their results. If the thread is closed, the error ends the turn.
func (r *run) asked(ctx context.Context, calls []call) (map[string]*pendingApproval, error) {
	var ids []string
	for _, c := range calls {
		ids = append(ids, r.turn.callID(c.step, c.n))
	}
	var rows []query.ApprovalsOfRow
	err := r.db.In(ctx, r.scope(), func(tx pgx.Tx) (err error) {
		rows, err = queries.ApprovalsOf(ctx, tx, r.turn.ID, ids)
		return err
	})
	byCall := map[string]*pendingApproval{}
	for _, row := range rows {
		if row.Closed {
			return nil, fault.New(fault.Precondition, "the thread was closed while the bot waited for an answer", "reopen it")
		}
		byCall[row.Approval.CallID] = &pendingApproval{approvalFromRow(row.Approval), row.Closed, row.Due, row.Stands}
	}
	return byCall, err
}

// permit returns the arguments with which a call runs. If it may not run, refused is what the model reads instead of a
// result. failed is [ErrAsking] if people have not answered, and otherwise an error of the database.
func (r *run) permit(ctx context.Context, id string, tool Tool, c call, q *pendingApproval) (arguments json.RawMessage, refused, failed error) {
	if q == nil {
		if !slices.Contains(r.bot.Ask, tool.Name) {
			return c.Arguments, nil, nil
		}
		refused, failed := r.askPeople(ctx, id, tool, c)
		return nil, refused, failed
	}
	switch {
	case q.State == open && q.due:
		if err := r.expire(ctx, q.Call); err != nil {
			return nil, nil, err
		}
		return nil, errExpired, nil
	case q.State == open:
		return nil, nil, ErrAsking
	case q.State == entry.Approved && !q.stands:
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

// errExpired is what a model reads if nobody answered.
var errExpired = fault.New(fault.Forbidden, "nobody said in time whether this call may run, so it was not run", "go on without it, or say what you need")

// denied is what a model reads if a person said no.
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
	arguments, err := canonical(c.Arguments)
	if err != nil {
		return fault.New(fault.Invalid, "the arguments are not a JSON object", "see the tool's schema"), nil
	}
	if len(arguments) > maxAsked {
		return fault.Newf(fault.Exhausted, "do it in smaller parts, which a person can read",
			"this call needs a person's yes, its arguments have %d bytes, and people are asked about at most %d", len(arguments), maxAsked), nil
	}
	expires := time.Now().Add(r.bot.Limits.withDefaults().Answer)
	failed = r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		refused = nil
		if _, err := queries.LockAttempt(ctx, tx, r.turn.ID, int32(r.turn.Steps), int32(r.turn.Attempts)); errors.Is(err, pgx.ErrNoRows) {
			return ErrOvertaken
		} else if err != nil {
			return err
		}
		if err := queries.LockApprovals(ctx, tx, r.turn.House); err != nil {
			return err
		}
		load, err := queries.ApprovalLoad(ctx, tx, query.ApprovalLoadParams{
			HouseID: r.turn.House, ThreadID: r.turn.Thread, TurnID: r.turn.ID, Tool: tool.Name, Arguments: string(arguments),
		})
		if err != nil {
			return err
		}
		if refused = tooMuch(load); refused != nil {
			return nil
		}
		row, err := queries.InsertApproval(ctx, tx, query.InsertApprovalParams{
			HouseID: r.turn.House, ID: approvalID(id), ThreadID: r.turn.Thread, TurnID: r.turn.ID, AgentID: r.turn.Bot, CallID: id,
			Tool: tool.Name, Arguments: string(arguments), ExpiresAt: expires,
		})
		if err != nil {
			return err
		}
		return r.appendTx(ctx, tx, entry.NewDraft(entry.AskedID(id), "", entry.PermissionAsked{
			ApprovalID: row.ID, TurnID: r.turn.ID, AgentID: r.turn.Bot, CallID: id, Tool: tool.Name, Arguments: arguments, ExpiresMS: row.ExpiresAt.UnixMilli(),
		}))
	})
	if failed == nil && refused == nil {
		failed = ErrAsking
	}
	return refused, failed
}

// tooMuch returns why people are not asked once more; nil if they are.
func tooMuch(load query.ApprovalLoadRow) error {
	switch {
	case load.Refused:
		return fault.New(fault.Forbidden, "this turn has asked for exactly this call before, and was not given a yes, so nobody is asked again", "go on without it, or say what you need")
	case load.OfTurn >= turnApprovals:
		return fault.Newf(fault.Exhausted, "go on without it, or say what you need", "this turn has asked people %d times, and may not ask more", turnApprovals)
	case load.OfThread >= threadApprovals:
		return fault.Newf(fault.Exhausted, "say what you need, and go on when people have answered", "%d calls in this thread wait for a person's yes already", threadApprovals)
	case load.OfHouse >= houseApprovals:
		return fault.Newf(fault.Exhausted, "say what you need, and go on when people have answered", "%d calls in this house wait for a person's yes already", houseApprovals)
	}
	return nil
}

// canonical returns a JSON object that every reader reads alike: each name once, in order. Of several equal names the last
// counts, as for the tools. Nothing, and null, are the object without fields.
func canonical(text json.RawMessage) (json.RawMessage, error) {
	var fields map[string]any
	if len(bytes.TrimSpace(text)) > 0 {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&fields); err != nil {
			return nil, err
		}
		if _, err := d.Token(); err != io.EOF {
			return nil, errors.New("there is more than one JSON value")
		}
	}
	if fields == nil {
		fields = map[string]any{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(fields)
	return bytes.TrimSpace(b.Bytes()), err
}

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
	rows, err := queries.EndApprovals(ctx, tx, outcome, r.turn.ID, call)
	for _, row := range rows {
		if err == nil {
			err = r.appendTx(ctx, tx, entry.NewDraft(entry.AnsweredID(row.CallID), "", entry.PermissionAnswered{
				ApprovalID: row.ID, TurnID: row.TurnID, AgentID: row.AgentID, Outcome: outcome,
			}))
		}
	}
	return err
}

// park leaves the turn to wait for people, and returns [ErrAsking]. If they have answered or stopped it meanwhile, it
// returns nil, and the turn goes on here.
func (r *run) park(ctx context.Context) error {
	parked := false
	err := r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		// The lock comes first: who answers has it, too, so that an answer is seen below or finds the turn waiting.
		if _, err := queries.LockAttempt(ctx, tx, r.turn.ID, int32(r.turn.Steps), int32(r.turn.Attempts)); errors.Is(err, pgx.ErrNoRows) {
			return ErrOvertaken
		} else if err != nil {
			return err
		}
		open, err := queries.FirstExpiry(ctx, tx, r.turn.ID)
		if err != nil || open.Open == 0 {
			return err
		}
		row, err := queries.ParkTurn(ctx, tx, query.ParkTurnParams{DueAt: open.ExpiresAt, ID: r.turn.ID, Steps: int32(r.turn.Steps), Attempts: int32(r.turn.Attempts)})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // somebody stops it
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

// Answer is what a person says to a request for approval.
type Answer struct {
	// House and Thread are those of the request, and Approval its id.
	House, Thread, Approval string
	Approve                 bool
	// Reason is what they say to it, which the bot reads if the answer is no. It may be empty.
	Reason string
}

// AnswerTx answers a request in the name of the transaction's agent, and records it in the log. resume is the turn that
// the caller queues again; empty if it goes on by itself.
//
// To repeat an answer is harmless. Errors: [fault.NotFound] (the thread has no such request), [fault.Forbidden] (the agent
// is not a person of the house), [fault.Invalid] (the reason), [fault.Precondition] (it is over: the error says who
// answered it and how, or what else ended it).
func AnswerTx(ctx context.Context, tx pgx.Tx, log *stream.Log, to stream.Ref, agent string, a Answer) (q Approval, resume string, err error) {
	a.Reason = strings.TrimSpace(a.Reason)
	if !utf8.ValidString(a.Reason) || strings.ContainsRune(a.Reason, 0) || utf8.RuneCountInString(a.Reason) > maxReason {
		return q, "", fault.Newf(fault.Invalid, "shorten it", "reason: it must be text of at most %d characters", maxReason)
	}
	person, err := queries.MayAnswer(ctx, tx, a.House)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !person {
		return q, "", fault.New(fault.Forbidden, "only a person of the house may approve what a bot does", "ask a person of the house")
	} else if err != nil {
		return q, "", err
	}
	if q, err = GetApprovalTx(ctx, tx, a.House, a.Approval); err == nil && q.Thread != a.Thread {
		err = errNoApproval
	}
	if err != nil {
		return Approval{}, "", err
	}
	t, err := queries.LockTurn(ctx, tx, q.Turn) // before the request, as whoever works on the turn does
	if err != nil {
		return q, "", err
	}
	if q, err = GetApprovalTx(ctx, tx, a.House, a.Approval); err != nil {
		return Approval{}, "", err
	}
	outcome := entry.Denied
	if a.Approve {
		outcome = entry.Approved
	}
	switch {
	case q.State == outcome && q.AnsweredBy == agent:
		return q, "", nil
	case q.State != open:
		return q, "", q.over()
	case t.EndedAt != nil || t.StoppedBy != nil:
		return q, "", fault.New(fault.Precondition, "the bot's turn was stopped, so there is nothing to approve", "let the bot try again")
	}
	row, err := queries.AnswerApproval(ctx, tx, query.AnswerApprovalParams{State: outcome, AnsweredBy: agent, Reason: a.Reason, HouseID: a.House, ID: q.ID})
	if errors.Is(err, pgx.ErrNoRows) {
		q.State = entry.Expired
		return q, "", q.over()
	} else if err != nil {
		return q, "", err
	}
	_, err = log.AppendTx(ctx, tx, to, entry.NewDraft(entry.AnsweredID(q.Call), agent, entry.PermissionAnswered{
		ApprovalID: q.ID, TurnID: q.Turn, AgentID: q.Bot, Outcome: outcome, AnsweredBy: agent, Reason: a.Reason,
	}))
	if err != nil {
		return q, "", err
	}
	if resume, err = queries.UnparkTurn(ctx, tx, q.Turn); errors.Is(err, pgx.ErrNoRows) {
		err = nil // whoever works on it finds the answer
	}
	names := q
	q = approvalFromRow(row)
	q.BotName, q.ThreadName = names.BotName, names.ThreadName
	return q, resume, err
}

// over returns the error for answering a request that is over.
func (q Approval) over() error {
	who, next := cmp.Or(q.AnsweredByName, "someone who left the house"), "see the thread's entries for what came of it"
	switch q.State {
	case entry.Approved, entry.Denied:
		return fault.Newf(fault.Precondition, next, "this was already answered: %s said %s at %s",
			who, map[string]string{entry.Approved: "yes", entry.Denied: "no"}[q.State], q.AnsweredAt.UTC().Format("15:04:05 on 2006-01-02 (UTC)"))
	case entry.Expired:
		return fault.Newf(fault.Precondition, "let the bot try again, which asks again", "this has expired: the bot waited until %s", q.ExpiresAt.UTC().Format("15:04 on 2006-01-02 (UTC)"))
	}
	return fault.New(fault.Precondition, "the bot's turn has ended, so there is nothing to approve", "let the bot try again, which asks again")
}

var errNoApproval = fault.New(fault.NotFound, "there is no such request for approval in this thread", "list those that wait with: arbe approval list")

// GetApprovalTx returns an approval of a house, or a [fault.NotFound].
func GetApprovalTx(ctx context.Context, tx pgx.Tx, house, id string) (Approval, error) {
	row, err := queries.GetApproval(ctx, tx, house, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Approval{}, errNoApproval
	}
	q := approvalFromRow(row.Approval)
	q.BotName, q.ThreadName, q.AnsweredByName = row.BotName, row.ThreadName, row.AnsweredByName
	return q, err
}

// OpenApprovalsTx returns up to limit open requests of a house after a cursor, the oldest first; with a thread, only its.
func OpenApprovalsTx(ctx context.Context, tx pgx.Tx, house, thread string, after db.Cursor, limit int) (list []Approval, err error) {
	rows, err := queries.ListApprovals(ctx, tx, query.ListApprovalsParams{HouseID: house, ThreadID: thread, AfterTime: after.Time, AfterID: after.ID, MaxRows: int32(limit)})
	for _, row := range rows {
		q := approvalFromRow(row.Approval)
		q.BotName, q.ThreadName = row.BotName, row.ThreadName
		list = append(list, q)
	}
	return list, err
}

// AskingTx returns the ids of the turns of a thread that wait for people.
func AskingTx(ctx context.Context, tx pgx.Tx, house, thread string) ([]string, error) {
	return queries.AskingTurns(ctx, tx, house, thread)
}
