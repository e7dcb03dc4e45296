package stream

import (
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// deltaChannel tells pieces of previews, as [wireDelta].
	deltaChannel = "arbe_delta"
	// pieceBytes keeps a piece, as base64 within JSON, below the 8000 bytes of a notification.
	pieceBytes = 4096
	// forwardEvery is the pause between two rounds of notifications: each takes a lock that all of the
	// database's notifying transactions, and so all appends, share.
	forwardEvery = 25 * time.Millisecond
	// maxEntryID is the longest entry id that fits beside a piece.
	maxEntryID = 200
)

// wireDelta is a piece on its way between servers.
type wireDelta struct {
	From    uuid.UUID `json:"from"` // the Log that sends it, and skips it
	Stream  int64     `json:"stream"`
	EntryID string    `json:"entry"`
	Offset  int64     `json:"offset"`
	Data    []byte    `json:"data"`
}

// sentDelta is a delta with the stream it is of.
type sentDelta struct {
	Stream int64
	Delta
}

// Publish tells the tails of a log, on all servers, a piece of an entry that is being made. It does not wait
// for them, and who is too slow misses pieces. The bytes of an entry id never change: a piece at an offset
// that was told before is left out. Errors: [fault.NotFound], [fault.Invalid] for an entry id that is empty,
// longer than 200 bytes or not UTF-8, or a negative offset.
func (l *Log) Publish(ctx context.Context, ref Ref, d Delta) error {
	if err := l.stopping(); err != nil {
		return err
	}
	if d.EntryID == "" || len(d.EntryID) > maxEntryID || !utf8.ValidString(d.EntryID) || d.Offset < 0 {
		return fault.New(fault.Invalid, "a delta needs the id of its entry, of at most 200 bytes, and an offset from 0 on", "check both")
	}
	id, known := l.hub.idOf(ref)
	if !known {
		s, err := l.lookup(ctx, ref)
		if err != nil {
			return err
		}
		id = s.ID
	}
	l.hub.publish(id, ref, d, true)
	return nil
}

// forward tells other servers what is published here. It takes from the previews as a tail does, so that
// output which comes faster than Postgres takes it loses its middle, and holds up nobody.
func (l *Log) forward() {
	for {
		select {
		case <-l.hub.send:
		case <-l.ctx.Done():
			return
		}
		if pieces := l.pieces(); len(pieces) > 0 {
			ctx, cancel := context.WithTimeout(l.ctx, commitWithin)
			if err := queries.NotifyDeltas(ctx, l.db.Pool(), pieces); err != nil && l.ctx.Err() == nil {
				l.log.Debug("deltas did not reach other servers", "error", detail(err))
			}
			cancel()
		}
		select {
		case <-time.After(forwardEvery):
		case <-l.ctx.Done():
			return
		}
	}
}

// pieces takes all that other servers were not told yet.
func (l *Log) pieces() (payloads []string) {
	for _, d := range l.hub.unsent() {
		for len(d.Data) > 0 {
			n := min(len(d.Data), pieceBytes)
			text, err := json.Marshal(wireDelta{l.id, d.Stream, d.EntryID, d.Offset, d.Data[:n]})
			if err != nil {
				panic(err) // a struct of ours
			}
			payloads = append(payloads, string(text))
			d.Data, d.Offset = d.Data[n:], d.Offset+int64(n)
		}
	}
	return payloads
}

// heardDelta takes a piece that another server sent.
func (l *Log) heardDelta(payload string) {
	var d wireDelta
	if err := json.Unmarshal([]byte(payload), &d); err != nil {
		l.log.Warn("a delta that is not ours", "error", detail(err))
		return
	}
	if d.From != l.id {
		l.hub.publish(d.Stream, Ref{}, Delta{d.EntryID, d.Offset, d.Data}, false)
	}
}
