package commit

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// call is one Append that waits for its result.
type call struct {
	// entries are the drafts, and after the commit the entries written for them.
	entries []entry.Entry
	err     error
	done    chan struct{} // closed when entries or err is final
	since   time.Time
	bytes   int64
	// stream is the id of the only stream that may receive the entries; 0 means whichever stream has the lane's name.
	stream int64
}

// entryBytes is the assumed size of an entry without its payload. It is counted, because many tiny entries would
// otherwise fill memory without reaching the queue's limits.
const entryBytes = 512

// newCall copies the drafts, because they may be read after the caller has stopped waiting.
func newCall(ref store.Ref, stream int64, drafts []entry.Draft) (*call, error) {
	c := &call{entries: make([]entry.Entry, len(drafts)), done: make(chan struct{}), since: time.Now(), stream: stream}
	author := "" // of the previous draft, which usually has the same author
	for i, d := range drafts {
		switch {
		case d.Author == "":
			author = ""
		case i == 0 || d.Author != drafts[i-1].Author:
			id, err := uuid.Parse(d.Author)
			if err != nil {
				return nil, store.Malformed().Because(err)
			}
			author = id.String()
		}
		c.entries[i] = entry.Entry{ID: d.ID, StreamID: ref.Name, Author: author, Type: d.Type, Payload: slices.Clone(d.Payload)}
		c.bytes += entryBytes + int64(len(d.ID)+len(d.Type)+len(d.Payload))
	}
	return c, nil
}

// Commit describes a commit to one stream.
type Commit struct {
	Ref store.Ref
	// Stream is the stream's id.
	Stream int64

	calls []*call
}

// Entries returns the entries of all calls in their order. Some may have existed before. Do not change them, because
// the callers of Append share them.
func (c Commit) Entries() (entries []entry.Entry) {
	for _, w := range c.calls {
		entries = append(entries, w.entries...)
	}
	return entries
}

// Hooks are functions of the owner of a [Committer], which calls them when it commits. All are required and must be
// safe for concurrent use and quick, because the next batch waits for them.
type Hooks struct {
	// Committed is called after each commit to a stream, before the callers of Append return.
	Committed func(Commit)
	// Notify asks to notify other servers that a stream reaches a position. Batches do not notify them themselves,
	// because a notification takes a lock that all notifying transactions of the database share.
	Notify func(stream, tail int64)
	// Reconnected is called after a new connection was made. The database behind it may have failed over or been
	// restored, and may lack the last commits. It is called before anything is written over the connection, because new
	// entries could otherwise take the lost positions unnoticed.
	Reconnected func()
}
