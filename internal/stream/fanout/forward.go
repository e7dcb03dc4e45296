package fanout

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

const (
	// deltaChannel carries pieces of previews as [wireDelta].
	deltaChannel = "arbe_delta"
	// pieceBytes keeps a piece, in base64 inside JSON, below the 8000 bytes of a notification.
	pieceBytes = 4096
	// forwardEvery is the pause between two rounds of notifications. There must not be many rounds, because each takes
	// a lock that all notifying transactions of the database share.
	forwardEvery = 25 * time.Millisecond
	// maxEntryID is the longest entry id that fits into a notification with a piece.
	maxEntryID = 200
)

// wireDelta is a delta as servers send it to each other.
type wireDelta struct {
	From    uuid.UUID `json:"from"` // the sending forwarder, which ignores its own deltas
	Stream  int64     `json:"stream"`
	EntryID string    `json:"entry"`
	Offset  int64     `json:"offset"`
	Data    []byte    `json:"data"`
}

// forwarder sends deltas that were published here to other servers, and receives theirs.
type forwarder struct {
	// id distinguishes this server's deltas from those of other servers.
	id     uuid.UUID
	ctx    context.Context
	log    *slog.Logger
	store  *store.Store
	topics *topics
}

// run sends deltas that are published here. It reads previews like a tail, so that output which comes faster than
// Postgres accepts it loses its middle and delays nobody.
func (f *forwarder) run() {
	for {
		select {
		case <-f.topics.send:
		case <-f.ctx.Done():
			return
		}
		if pieces := f.pieces(); len(pieces) > 0 {
			ctx, cancel := context.WithTimeout(f.ctx, store.StatementTimeout)
			if err := f.store.NotifyDeltas(ctx, pieces); err != nil && f.ctx.Err() == nil {
				// Not retried and hardly worth a log line, because the final entry is complete.
				f.log.DebugContext(f.ctx, "other servers did not get live output", "error", fault.From(err).Detail())
			}
			cancel()
		}
		select {
		case <-time.After(forwardEvery):
		case <-f.ctx.Done():
			return
		}
	}
}

// pieces returns everything that was not yet sent to other servers.
func (f *forwarder) pieces() (payloads []string) {
	for _, d := range f.topics.unsent() {
		for len(d.Data) > 0 {
			n := min(len(d.Data), pieceBytes)
			text, err := json.Marshal(wireDelta{f.id, d.Stream, d.EntryID, d.Offset, d.Data[:n]})
			if err != nil {
				panic(err) // impossible for this struct
			}
			payloads = append(payloads, string(text))
			d.Data, d.Offset = d.Data[n:], d.Offset+int64(n)
		}
	}
	return payloads
}

// heard receives a piece from another server.
func (f *forwarder) heard(payload string) {
	var d wireDelta
	if err := json.Unmarshal([]byte(payload), &d); err != nil {
		f.log.WarnContext(f.ctx, "ignoring a delta in an unknown form", "error", fault.From(err).Detail())
		return
	}
	if d.From != f.id {
		f.topics.publish(d.Stream, store.Ref{}, Delta{d.EntryID, d.Offset, d.Data}, false)
	}
}
