// Package entrystate keeps the present state of messages: their edits, deletion and reactions. The log keeps messages as
// they were said, and the entries that change them ([entry.ChatEdited], [entry.ChatDeleted], [entry.ChatReacted]). The rows
// of this package are written together with these entries, so that a reader of one part of a log does not have to read the
// rest.
//
// Package dispatch decides who may change a message, and handles the consequences.
package entrystate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// MaxEdits limits the edits of a message.
	MaxEdits = 50
	// span limits the entries at the end of a log in which [LastTx] looks for a message.
	span = 10_000
)

var queries = query.New()

// State is the present state of a message or command.
type State struct {
	// Seq and ID are those of the message.
	Seq int64
	ID  string
	// Text is the present text of an edited message, and Deleted reports that the message was deleted. Edits are the
	// positions of the entries that edited it. A fork has no Edits for the messages that it shares with its source.
	Text    string
	Deleted bool
	Edits   []int64
	// At is the time of the last edit or of the deletion; zero without either.
	At time.Time
	// Reactions are in the order in which each emoji was first used.
	Reactions []Reaction
}

// Reaction is an emoji and the agents who reacted with it.
type Reaction struct {
	Emoji  string
	Agents []string
}

// States holds the states of the entries that have one, by position.
type States map[int64]State

// Now returns the present form of an entry: an edited message with its new text, and others unchanged. gone reports that the
// message was deleted.
func (s States) Now(e entry.Entry) (now entry.Entry, gone bool) {
	became, changed := s[e.Seq]
	switch {
	case !changed || became.At.IsZero() || e.Type != (entry.Chat{}).Type():
		return e, false
	case became.Deleted:
		return e, true
	}
	return entry.Reworded(e, became.Text), false
}

// AtTx returns the states of the entries of a log at some positions.
func AtTx(ctx context.Context, tx pgx.Tx, log stream.Ref, seqs ...int64) (States, error) {
	rows, err := queries.ChatEdits(ctx, tx, log.House, log.Name, seqs)
	if err != nil {
		return nil, err
	}
	reactions, err := queries.Reactions(ctx, tx, log.House, log.Name, seqs)
	if err != nil || len(rows)+len(reactions) == 0 {
		return nil, err
	}
	states := States{}
	for _, r := range rows {
		states[r.Seq] = State{Seq: r.Seq, ID: r.EntryID, Text: r.Text, Deleted: r.Deleted, Edits: r.Edits, At: r.ChangedAt}
	}
	for _, r := range reactions {
		s := states[r.Seq]
		s.Seq = r.Seq
		for _, emoji := range r.Emoji {
			s.react(emoji, r.AgentID)
		}
		states[r.Seq] = s
	}
	return states, nil
}

// react adds an agent's reaction.
func (s *State) react(emoji, agent string) {
	at := slices.IndexFunc(s.Reactions, func(r Reaction) bool { return r.Emoji == emoji })
	if at < 0 {
		s.Reactions, at = append(s.Reactions, Reaction{Emoji: emoji}), len(s.Reactions)
	}
	s.Reactions[at].Agents = append(s.Reactions[at].Agents, agent)
}

// Of returns the states of entries of a log.
func Of(ctx context.Context, d *db.DB, log stream.Ref, entries []entry.Entry) (states States, err error) {
	var seqs []int64
	for _, e := range entries {
		if e.Type == (entry.Chat{}).Type() || e.Type == (entry.Command{}).Type() {
			seqs = append(seqs, e.Seq)
		}
	}
	if len(seqs) == 0 {
		return nil, nil
	}
	err = d.In(ctx, db.Scope{House: log.House}, func(tx pgx.Tx) error {
		states, err = AtTx(ctx, tx, log, seqs...)
		return err
	})
	return states, err
}

// FindTx returns the state of a message, without its reactions. ok is false if it was not edited or deleted.
func FindTx(ctx context.Context, tx pgx.Tx, house, thread, id string) (s State, ok bool, err error) {
	r, err := queries.ChatEdit(ctx, tx, house, thread, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, false, nil
	}
	return State{Seq: r.Seq, ID: r.EntryID, Text: r.Text, Deleted: r.Deleted, Edits: r.Edits, At: r.ChangedAt}, err == nil, err
}

// DeletedTx returns the number of deleted messages of a thread.
func DeletedTx(ctx context.Context, tx pgx.Tx, house, thread string) (int64, error) {
	return queries.DeletedMessages(ctx, tx, house, thread)
}

// GoneTx returns which entries at some positions of a log are deleted messages, or edits of deleted messages.
func GoneTx(ctx context.Context, tx pgx.Tx, log stream.Ref, seqs []int64) ([]int64, error) {
	return queries.DeletedAmong(ctx, tx, seqs, log.House, log.Name)
}

// LastTx returns the last message of an agent among the last entries of a log. tail is the position of the last entry. ok is
// false if there is no such message.
func LastTx(ctx context.Context, tx pgx.Tx, log stream.Ref, tail int64, author string) (e entry.Entry, ok bool, err error) {
	r, err := queries.LastChat(ctx, tx, query.LastChatParams{HouseID: log.House, Stream: log.Name, Behind: tail - span, Author: author})
	if errors.Is(err, pgx.ErrNoRows) {
		return e, false, nil
	}
	return entry.Entry{Seq: r.Seq, ID: r.ID, Type: entry.Chat{}.Type(), Author: author, Payload: []byte(r.Payload)}, err == nil, err
}

// ChangeTx records the new text of a message; a nil text deletes it. by is the position of the entry that records the change
// in the same transaction. Lists and search have the new text once the transaction is committed.
func ChangeTx(ctx context.Context, tx pgx.Tx, log stream.Ref, thread string, message entry.Entry, text *string, by int64) error {
	err := queries.PutChatEdit(ctx, tx, query.PutChatEditParams{HouseID: log.House, ThreadID: thread, Stream: log.Name, Seq: message.Seq, EntryID: message.ID, Text: text, Edit: by})
	if err != nil {
		return err
	}
	return queries.ReviseThread(ctx, tx, thread, message.Seq)
}

// ForkTx copies to a fork the edits and deletions of the messages that it shares with its source.
func ForkTx(ctx context.Context, tx pgx.Tx, source, fork stream.Ref, forkID string, upto int64) error {
	return queries.CopyChatEdits(ctx, tx, query.CopyChatEditsParams{HouseID: source.House, ForkID: forkID, Fork: fork.Name, Source: source.Name, Upto: upto})
}

// Wording is a text that a message has had.
type Wording struct {
	Text string
	// Seq is the position of the entry that has it, and At when that was written.
	Seq int64
	At  time.Time
}

// Wordings returns the texts that a message has had, the oldest first. It returns none for a deleted message, and for an
// entry that is not a message. The error is a [fault.NotFound] if there is no such entry.
func Wordings(ctx context.Context, d *db.DB, log *stream.Log, ref stream.Ref, thread, id string) (list []Wording, err error) {
	first, err := log.Get(ctx, ref, id)
	if err != nil {
		return nil, err
	}
	c, ok := entry.As[entry.Chat](first)
	if !ok {
		return nil, nil
	}
	var became State
	err = d.In(ctx, db.Scope{House: ref.House}, func(tx pgx.Tx) error {
		became, _, err = FindTx(ctx, tx, ref.House, thread, id)
		return err
	})
	if err != nil || became.Deleted {
		return nil, err
	}
	list = []Wording{{c.Text, first.Seq, first.Time}}
	for _, seq := range became.Edits {
		page, _, err := log.Read(ctx, ref, stream.Range{After: seq - 1, Limit: 1})
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if edited, ok := entry.As[entry.ChatEdited](e); ok && edited.EntryID == id {
				list = append(list, Wording{edited.Text, e.Seq, e.Time})
			}
		}
	}
	if n := len(list); list[n-1].Text != became.Text && became.ID != "" { // a fork knows only the last one
		list = append(list, Wording{became.Text, first.Seq, became.At})
	}
	return list, nil
}
