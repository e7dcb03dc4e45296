// Package approval keeps the requests of bots to people: for approval of a tool call, or with a question. A bot's turn or a
// run of a coding agent asks. Each request is a row and an entry of the thread. It ends once, in the same row and with a
// second entry: with a person's first answer, when its time is over, or when the turn or run that asked ends.
//
// An approved call runs exactly as it is in the row, which is what the person saw. A request stays open even if the bot's
// settings change. Repeating a request does nothing, because its id is derived from the call.
package approval

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

var queries = query.New()

const (
	// threadMost and houseMost limit the open requests of a thread and of a house, and turnMost and runMost the requests that
	// a turn and a run may make.
	threadMost, houseMost, turnMost, runMost = 20, 200, 50, 500
	// maxReason limits the reason that a person gives with an answer, in characters.
	maxReason = 2000
)

// By identifies the asker: a turn, or the run of a thread with this epoch.
type By struct {
	House, Thread, Turn string
	Epoch               int64
}

// Approval is a call of a tool that runs only with a person's approval, or a question.
type Approval struct {
	By
	ID, Bot string
	// Call is the id of the entry that will be the result of the call.
	Call string
	// Tool runs with Arguments if the answer is yes.
	Tool      string
	Arguments json.RawMessage
	// Question means that people answer in words, which come as the reason of an approval.
	Question bool
	// State is "open", or the outcome of an [entry.PermissionAnswered].
	State              string
	AskedAt, ExpiresAt time.Time
	// AnsweredBy is the person who answered, AnsweredAt when the request ended, and Reason what the person said.
	AnsweredBy string
	AnsweredAt time.Time
	Reason     string
	// BotName, ThreadName and AnsweredByName are the names of the bot, the thread and the person who answered; empty if they
	// are gone.
	BotName, ThreadName, AnsweredByName string
}

// Open is the state of a request that has not been answered.
const Open = "open"

// Pending is the approval of a pending call.
type Pending struct {
	Approval
	// Closed means that the thread is closed, Due that it is too late to answer, and Stands that the person who answered
	// is still in the house.
	Closed, Due, Stands bool
}

// OfTurnTx returns the approvals of some calls of a turn, by the ids of the calls' results.
func OfTurnTx(ctx context.Context, tx pgx.Tx, turn string, calls []string) (map[string]*Pending, error) {
	rows, err := queries.ApprovalsOf(ctx, tx, &turn, calls)
	byCall := map[string]*Pending{}
	for _, row := range rows {
		byCall[row.Approval.CallID] = &Pending{fromRow(row.Approval), row.Closed, row.Due, row.Stands}
	}
	return byCall, err
}

// FirstExpiryTx returns how many approvals of a turn are open, and when the first of them expires.
func FirstExpiryTx(ctx context.Context, tx pgx.Tx, turn string) (open int, at time.Time, err error) {
	row, err := queries.FirstExpiry(ctx, tx, &turn)
	return int(row.Open), row.ExpiresAt, err
}

// Request describes a request to make.
type Request struct {
	By
	Bot, Call, Tool string
	Arguments       json.RawMessage
	Question        bool
	Expires         time.Time
}

// AskTx asks people, and returns the entry for the caller to append. If it does not, refused is the reason for the model. If
// the same request was made before, both are nil.
func AskTx(ctx context.Context, tx pgx.Tx, q Request) (asked *entry.Draft, refused, err error) {
	arguments, err := canonical(q.Arguments)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the arguments are not a JSON object", "see the tool's schema"), nil
	}
	if len(arguments) > entry.MaxAsked {
		return nil, fault.Newf(fault.Exhausted, "do it in smaller parts, which a person can read",
			"this call needs a person's approval, but its arguments have %d bytes, and at most %d can be shown to people", len(arguments), entry.MaxAsked), nil
	}
	if err := queries.LockApprovals(ctx, tx, q.House); err != nil {
		return nil, nil, err
	}
	load, err := queries.ApprovalLoad(ctx, tx, query.ApprovalLoadParams{
		HouseID: q.House, ThreadID: q.Thread, TurnID: orNull(q.Turn), Epoch: orNull(q.Epoch), Tool: q.Tool, Arguments: string(arguments),
	})
	if err != nil {
		return nil, nil, err
	}
	if refused := q.tooMuch(load); refused != nil {
		return nil, refused, nil
	}
	row, err := queries.InsertApproval(ctx, tx, query.InsertApprovalParams{
		HouseID: q.House, ID: q.id(), ThreadID: q.Thread, TurnID: orNull(q.Turn), Epoch: orNull(q.Epoch), AgentID: q.Bot, CallID: q.Call,
		Tool: q.Tool, Arguments: string(arguments), Question: q.Question, ExpiresAt: q.Expires,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	author := ""
	if q.Turn == "" {
		author = q.Bot // the bot's runner asked
	}
	d := entry.NewDraft(entry.AskedID(q.Call), author, entry.PermissionAsked{
		ApprovalID: row.ID, TurnID: q.Turn, Epoch: q.Epoch, AgentID: q.Bot, CallID: q.Call, Tool: q.Tool, Arguments: arguments,
		Question: q.Question, ExpiresMS: row.ExpiresAt.UnixMilli(),
	})
	return &d, nil, nil
}

// orNull returns nil for a zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// shortIDs has the letters and digits of the short ids of the database.
var shortIDs = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz")

// id derives the id of a request from its call. The id of a turn's call contains the turn's id and is unique. The id of a
// run's call contains only the epoch, so the thread is added.
func (q Request) id() string {
	call := q.Call
	if q.Turn == "" {
		call = q.Thread + "/" + call
	}
	sum := sha256.Sum256([]byte(call))
	return shortIDs.EncodeToString(sum[:])[:12]
}

// tooMuch returns an error if the request would exceed a limit.
func (q Request) tooMuch(load query.ApprovalLoadRow) error {
	who, most := "turn", int32(turnMost)
	if q.Turn == "" {
		who, most = "run", runMost
	}
	switch {
	case load.Refused:
		return fault.Newf(fault.Forbidden, "go on without it, or say what you need", "this %s has asked for exactly this call before and was denied, so nobody is asked again", who)
	case load.OfOwn >= most:
		return fault.Newf(fault.Exhausted, "go on without it, or say what you need", "this %s has asked people %d times, and may not ask again", who, most)
	case load.OfThread >= threadMost:
		return fault.Newf(fault.Exhausted, "say what you need, and go on when people have answered", "%d calls in this thread wait for a person's approval already", threadMost).WithReason(fault.LimitReached)
	case load.OfHouse >= houseMost:
		return fault.Newf(fault.Exhausted, "say what you need, and go on when people have answered", "%d calls in this house wait for a person's approval already", houseMost).WithReason(fault.LimitReached)
	}
	return nil
}

// canonical returns a JSON object in a form that all parsers read alike: each name once, in order. If a name occurs several
// times, the last one counts, as it does for the tools. No text, and null, become the empty object.
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

// DueTx reports whether a run has a request that nobody has answered in time.
func DueTx(ctx context.Context, tx pgx.Tx, run By) (bool, error) {
	return queries.IsDueOfRun(ctx, tx, run.House, run.Thread, run.Epoch)
}

// End selects the open requests that end without an answer.
type End struct {
	By
	// Call selects the request of this call; empty selects all.
	Call string
	// Outcome is [entry.Expired] or [entry.Withdrawn]. Due selects only requests whose time is over.
	Outcome string
	Due     bool
}

// EndTx ends requests, and returns the entries for the caller to append. The caller has locked the asker.
func EndTx(ctx context.Context, tx pgx.Tx, e End) (ended []entry.Draft, err error) {
	rows, err := queries.EndApprovals(ctx, tx, query.EndApprovalsParams{
		State: e.Outcome, HouseID: e.House, ThreadID: e.Thread, TurnID: orNull(e.Turn), Epoch: orNull(e.Epoch), CallID: e.Call, Due: e.Due,
	})
	for _, row := range rows {
		q := fromRow(row)
		ended = append(ended, entry.NewDraft(entry.AnsweredID(q.Call), "", entry.PermissionAnswered{
			ApprovalID: q.ID, TurnID: q.Turn, Epoch: q.Epoch, AgentID: q.Bot, Outcome: e.Outcome,
		}))
	}
	return ended, err
}

// Answer is a person's answer to a request.
type Answer struct {
	// House and Thread are the request's, and Approval is its id.
	House, Thread, Approval string
	Approve                 bool
	// Reason is the person's comment. The bot reads it if the answer is no, or if the bot asked a question. It may be empty.
	Reason string
}

// AnswerTx answers a request in the name of the transaction's agent, and returns the entry for the caller to append; nil if
// the agent has given the same answer before. lock locks the asker, and reports whether it still waits.
//
// Errors: [fault.NotFound] (the thread has no such request), [fault.Forbidden] (the agent is not a person of the house),
// [fault.Invalid] (the reason), [fault.Precondition] (the request has ended: the error says who answered it and how, or what
// else ended it).
func AnswerTx(ctx context.Context, tx pgx.Tx, agent string, a Answer, lock func(By) (waits bool, err error)) (q Approval, answered *entry.Draft, err error) {
	a.Reason = strings.TrimSpace(a.Reason)
	if !utf8.ValidString(a.Reason) || strings.ContainsRune(a.Reason, 0) || utf8.RuneCountInString(a.Reason) > maxReason {
		return q, nil, fault.Newf(fault.Invalid, "shorten it", "reason: it must be text of at most %d characters", maxReason)
	}
	person, err := queries.MayAnswer(ctx, tx, a.House)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !person {
		return q, nil, fault.New(fault.Forbidden, "only a person of the house may approve what a bot does", "ask a person of the house")
	} else if err != nil {
		return q, nil, err
	}
	if q, err = GetTx(ctx, tx, a.House, a.Approval); err == nil && q.Thread != a.Thread {
		err = errNone
	}
	if err != nil {
		return Approval{}, nil, err
	}
	waits, err := lock(q.By) // lock the asker before the request, as everything that works on the turn does
	if err != nil {
		return q, nil, err
	}
	if q, err = GetTx(ctx, tx, a.House, a.Approval); err != nil {
		return Approval{}, nil, err
	}
	outcome := entry.Denied
	if a.Approve {
		outcome = entry.Approved
	}
	switch {
	case q.State == outcome && q.AnsweredBy == agent:
		return q, nil, nil
	case q.State != Open:
		return q, nil, q.over()
	case !waits:
		return q, nil, fault.Newf(fault.Precondition, "let the bot try again", "the bot's %s was stopped or has ended, so there is nothing to approve", q.what()).WithReason(fault.ApprovalEnded)
	case q.Question && a.Approve && a.Reason == "":
		return q, nil, fault.New(fault.Invalid, "reason: this is a question, and the answer is empty", "say the answer, or say no")
	}
	row, err := queries.AnswerApproval(ctx, tx, query.AnswerApprovalParams{State: outcome, AnsweredBy: agent, Reason: a.Reason, HouseID: a.House, ID: q.ID})
	if errors.Is(err, pgx.ErrNoRows) {
		q.State = entry.Expired
		return q, nil, q.over()
	} else if err != nil {
		return q, nil, err
	}
	d := entry.NewDraft(entry.AnsweredID(q.Call), agent, entry.PermissionAnswered{
		ApprovalID: q.ID, TurnID: q.Turn, Epoch: q.Epoch, AgentID: q.Bot, Outcome: outcome, AnsweredBy: agent, Reason: a.Reason,
	})
	names := q
	q = fromRow(row)
	q.BotName, q.ThreadName = names.BotName, names.ThreadName
	return q, &d, nil
}

// what returns "turn" or "run".
func (b By) what() string {
	if b.Turn == "" {
		return "run"
	}
	return "turn"
}

// over returns the error for an answer to a request that has ended.
func (q Approval) over() error {
	who, next := cmp.Or(q.AnsweredByName, "someone who left the house"), "see the thread's entries for the outcome"
	switch q.State {
	case entry.Approved, entry.Denied:
		return fault.Newf(fault.Precondition, next, "this was already answered: %s said %s at %s",
			who, map[string]string{entry.Approved: "yes", entry.Denied: "no"}[q.State], q.AnsweredAt.UTC().Format("15:04:05 on 2006-01-02 (UTC)")).WithReason(fault.ApprovalEnded)
	case entry.Expired:
		return fault.Newf(fault.Precondition, "let the bot try again; it then asks again", "this has expired: the bot waited until %s", q.ExpiresAt.UTC().Format("15:04 on 2006-01-02 (UTC)")).WithReason(fault.ApprovalEnded)
	}
	return fault.Newf(fault.Precondition, "let the bot try again; it then asks again", "the bot's %s has ended, so there is nothing to approve", q.what()).WithReason(fault.ApprovalEnded)
}

var errNone = fault.New(fault.NotFound, "there is no such request for approval in this thread", "list those that wait with: arbe approval list")

// GetTx returns an approval of a house, or a [fault.NotFound].
func GetTx(ctx context.Context, tx pgx.Tx, house, id string) (Approval, error) {
	row, err := queries.GetApproval(ctx, tx, house, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Approval{}, errNone
	}
	q := fromRow(row.Approval)
	q.BotName, q.ThreadName, q.AnsweredByName = row.BotName, row.ThreadName, row.AnsweredByName
	return q, err
}

// OpenTx returns up to limit open requests of a house after a cursor, oldest first. If a thread is given, it returns only
// that thread's.
func OpenTx(ctx context.Context, tx pgx.Tx, house, thread string, after db.Cursor, limit int) (list []Approval, err error) {
	rows, err := queries.ListApprovals(ctx, tx, query.ListApprovalsParams{HouseID: house, ThreadID: thread, AfterTime: after.Time, AfterID: after.ID, MaxRows: int32(limit)})
	for _, row := range rows {
		q := fromRow(row.Approval)
		q.BotName, q.ThreadName = row.BotName, row.ThreadName
		list = append(list, q)
	}
	return list, err
}

func fromRow(r query.Approval) Approval {
	return Approval{
		By: By{House: r.HouseID, Thread: r.ThreadID, Turn: db.Zero(r.TurnID), Epoch: db.Zero(r.Epoch)}, ID: r.ID, Bot: r.AgentID, Call: r.CallID,
		Tool: r.Tool, Arguments: json.RawMessage(r.Arguments), Question: r.Question, State: r.State, AskedAt: r.AskedAt, ExpiresAt: r.ExpiresAt,
		AnsweredBy: db.Zero(r.AnsweredBy), AnsweredAt: db.Zero(r.AnsweredAt), Reason: r.Reason,
	}
}
