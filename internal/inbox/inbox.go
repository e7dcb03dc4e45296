// Package inbox keeps what each member of a house has read, and which threads need them: those in which they are mentioned,
// in which a bot waits for a person's approval, or in which work that they requested has ended unseen.
//
// How far a member has read a thread is a position, one small row that only they write. A thread needs a member if they have
// a notice there. A notice is committed with its cause: a decision about a chat that mentions them ([Inboxes.MentionTx]), or
// the end of a turn or a run (triggers of the database). A thread has at most one notice of each kind for each member,
// however much happens. The query Needs is the only place that counts.
//
// cause.go finds who and what made a thread need a member. people.go finds people by the handles with which others mention them.
package inbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// MaxNeeds limits the threads in an [Inbox]. Its Total counts all of them.
	MaxNeeds = 100
	// MaxDirect limits the direct messages in an [Inbox].
	MaxDirect = 20
	// MaxUnread is the largest [Reading.Unread].
	MaxUnread = 100
	// MaxText limits [Need.Text], in bytes.
	MaxText = 300
	// span limits the entries at the end of a thread that are searched for unread messages.
	span = 500
)

// Inbox holds the threads that need a member.
type Inbox struct {
	// Total counts the threads that need the member, and Needs has the latest of them.
	Total int
	Needs []Need
	// Readings are of the threads that were asked for, and of Direct.
	Readings []Reading
	// Direct are their direct messages, the latest first, at most [MaxDirect].
	Direct []Direct
}

// Direct is a direct message of a member.
type Direct struct {
	Thread, Name string
	// Agent is the other side: a person, or a bot if Kind is "bot". AgentName is empty if they left.
	Agent, AgentName, Kind string
	At                     time.Time
}

// Need is a thread that needs a member.
type Need struct {
	Thread, Name string
	// The reasons. At least one is true.
	Approval, Mention, Failed, Finished bool
	// Seq is the first entry to read; 0 if no entry is unread.
	Seq int64
	// Tail is the last entry of the thread. After [Inboxes.MarkRead] up to it, only an approval still needs the member.
	Tail int64
	// At is the latest time at which the thread needed the member.
	At time.Time
	// By is the agent that needs the member: who mentioned them, asks, or did the work. It is zero if nobody is known.
	By Agent
	// Text is the sentence for the most urgent reason, on one line of at most [MaxText] bytes: the request, the message, why the
	// work failed, or its result. It is untrusted plain text, and empty if it is not known.
	Text string
}

// Agent is a person, or a bot if Kind is "bot". Name is empty if they left.
type Agent struct{ ID, Name, Kind string }

// Reading is how far a member has read a thread.
type Reading struct {
	Thread string
	// Seq is the last entry that they have seen; 0 if they have not opened it.
	Seq int64
	// Unread counts the later messages of others, up to [MaxUnread].
	Unread int
	// Muted reports that the thread needs them only when somebody mentions them.
	Muted bool
}

// Inboxes manages the inboxes of all members. It is safe for concurrent use.
type Inboxes struct {
	db *db.DB
	q  *query.Queries
}

// New returns the inboxes in a database.
func New(d *db.DB) *Inboxes { return &Inboxes{db: d, q: query.New()} }

// Get returns the inbox of the scope's agent in the scope's house, with the readings of some threads. Threads that are not in
// the house have none.
func (b *Inboxes) Get(ctx context.Context, scope db.Scope, threads []string) (got Inbox, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		var err error
		if got.Needs, got.Total, err = b.needsTx(ctx, tx, scope); err != nil {
			return err
		}
		direct, err := b.q.DirectThreads(ctx, tx, scope.Agent, scope.House, MaxDirect)
		if err != nil {
			return err
		}
		for _, r := range direct {
			got.Direct = append(got.Direct, Direct{Thread: r.ID, Name: r.Name, Agent: r.AgentID, AgentName: r.AgentName, Kind: r.AgentKind, At: r.ActiveAt})
			if !slices.Contains(threads, r.ID) {
				threads = append(threads, r.ID)
			}
		}
		got.Readings, err = b.readingsTx(ctx, tx, scope, threads)
		return err
	})
	return got, err
}

// Pending returns the threads that need the scope's agent, as in an [Inbox].
func (b *Inboxes) Pending(ctx context.Context, scope db.Scope) (needs []Need, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		needs, _, err = b.needsTx(ctx, tx, scope)
		return err
	})
	return needs, err
}

func (b *Inboxes) needsTx(ctx context.Context, tx pgx.Tx, scope db.Scope) (needs []Need, total int, err error) {
	rows, err := b.q.Needs(ctx, tx, scope.House, scope.Agent, MaxNeeds)
	for _, r := range rows {
		total = int(r.Total)
		needs = append(needs, Need{Thread: r.ThreadID, Name: r.Name, Approval: r.Approval, Mention: r.Mention, Failed: r.Failed,
			Finished: r.Finished, Seq: r.Seq, Tail: r.Tail, At: r.At})
	}
	if err == nil {
		err = b.causesTx(ctx, tx, scope, needs)
	}
	return needs, total, err
}

func (b *Inboxes) readingsTx(ctx context.Context, tx pgx.Tx, scope db.Scope, threads []string) (readings []Reading, err error) {
	if len(threads) == 0 {
		return nil, nil
	}
	rows, err := b.q.Readings(ctx, tx, query.ReadingsParams{HouseID: scope.House, AgentID: scope.Agent, Ids: threads, Span: span, Most: MaxUnread})
	for _, r := range rows {
		readings = append(readings, Reading{Thread: r.ID, Seq: r.Seq, Unread: int(r.Unread), Muted: r.Muted})
	}
	return readings, err
}

// MarkRead records that the scope's agent has seen a thread up to an entry. It never goes back.
func (b *Inboxes) MarkRead(ctx context.Context, scope db.Scope, thread string, seq int64) (Reading, error) {
	return b.change(ctx, scope, thread, func(tx pgx.Tx) error {
		if _, err := b.q.MarkRead(ctx, tx, query.MarkReadParams{HouseID: scope.House, AgentID: scope.Agent, ThreadID: thread, Seq: seq}); err != nil {
			return err
		}
		return b.q.DropRead(ctx, tx, query.DropReadParams{HouseID: scope.House, AgentID: scope.Agent, ThreadID: thread, Seq: seq})
	})
}

// MarkUnread marks an entry of a thread and all later ones as unread for the scope's agent. If they have not read that far, it
// changes nothing. The thread does not need them again for what they have already seen.
func (b *Inboxes) MarkUnread(ctx context.Context, scope db.Scope, thread string, seq int64) (Reading, error) {
	return b.change(ctx, scope, thread, func(tx pgx.Tx) error {
		return b.q.MarkUnread(ctx, tx, query.MarkUnreadParams{HouseID: scope.House, AgentID: scope.Agent, ThreadID: thread, Seq: seq - 1})
	})
}

// Mute says whether a thread needs the scope's agent only when somebody mentions them.
func (b *Inboxes) Mute(ctx context.Context, scope db.Scope, thread string, muted bool) (Reading, error) {
	return b.change(ctx, scope, thread, func(tx pgx.Tx) error {
		return b.q.Mute(ctx, tx, query.MuteParams{HouseID: scope.House, AgentID: scope.Agent, ThreadID: thread, Muted: muted})
	})
}

// change changes a reading and returns it.
func (b *Inboxes) change(ctx context.Context, scope db.Scope, thread string, f func(pgx.Tx) error) (changed Reading, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		now, err := b.readingsTx(ctx, tx, scope, []string{thread})
		if err != nil {
			return err
		}
		if len(now) == 0 {
			return fault.New(fault.NotFound, "there is no such thread in your houses", "list the threads with: arbe thread list")
		}
		changed = now[0]
		return nil
	})
	return changed, err
}

// MentionTx records that an entry of a thread mentions people of the house, in the transaction that decides about the entry.
func (b *Inboxes) MentionTx(ctx context.Context, tx pgx.Tx, thread string, people []string, seq int64) error {
	return b.q.AddNotices(ctx, tx, query.AddNoticesParams{ThreadID: thread, Agents: people, Kind: "mention", Seq: seq})
}

// UnmentionTx withdraws the mentions of a person by entries of a thread. still returns the positions of the other entries,
// from first to last, that mention the person. The thread continues to need the person for those that they have not read.
func (b *Inboxes) UnmentionTx(ctx context.Context, tx pgx.Tx, house, thread, person string, seqs []int64, still func(first, last int64) ([]int64, error)) error {
	n, err := b.q.MentionNotice(ctx, tx, house, person, thread)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil || !slices.ContainsFunc(seqs, func(seq int64) bool { return seq >= n.FirstSeq && seq <= n.LastSeq }) {
		return err
	}
	left, err := still(max(n.FirstSeq, n.Read+1), n.LastSeq)
	dropped := int64(0)
	if err == nil {
		dropped, err = b.q.DropMention(ctx, tx, query.DropMentionParams{HouseID: house, AgentID: person, ThreadID: thread, LastSeq: n.LastSeq})
	}
	if dropped == 0 {
		return err // somebody has mentioned them again meanwhile
	}
	for _, seq := range left {
		if err == nil {
			err = b.MentionTx(ctx, tx, thread, []string{person}, seq)
		}
	}
	return err
}
