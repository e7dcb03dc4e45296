package stream

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

const (
	// firstRows is the number of entries in the first piece of a page, if they are small. The sizes of the later pieces
	// are computed from it.
	firstRows = 1024
	// pageBytes is the approximate size of the payloads of a page, and pagePieceBytes that of each piece after the
	// first.
	pageBytes, pagePieceBytes = 8 << 20, 512 << 10
	// pageRows and pagePieceRows limit the number of entries in a page and in a piece.
	pageRows, pagePieceRows = 100_000, 4096
)

// Page is a run of consecutive entries of a log, read in pieces. Its end is known before all of it is read, because a
// response names the next offset in its headers and then sends the pieces one by one, so that a server need not hold
// the page in memory. A Page is not safe for concurrent use.
type Page struct {
	// Stream describes the log as it was when the page began.
	Stream Stream
	// After is the position before the page, and Last that of the page's last entry; if the page is empty, Last equals
	// After. The page reaches the end of the log if Last equals Stream.Tail.
	After, Last int64

	log *Log
	// allFields is the parameter of ReadFrom.
	allFields bool
	// at is the position of the last entry read.
	at int64
	// rows is the number of entries in the next piece.
	rows int64
	// large reports that the next entry is large.
	large bool
}

// Take receives the entries of a piece of a [Page], one at a time. It must not keep an entry or its payload, because
// their memory is reused after the call.
type Take func(*entry.Entry)

// ReadFrom starts a page of the log after a position, and reads its first piece. If allFields is false, entries have
// only Seq, Type and Payload, which is cheaper; it is meant for logs of entries made by [Drafts].
//
// ReadFrom calls try with the log's description before it reads entries, and again if it has to repeat the read: then
// the entries must be taken from the start. It counts as a use of the log. Errors: those of Describe and [Log.Read].
func (l *Log) ReadFrom(ctx context.Context, ref Ref, after int64, allFields bool, try func(Stream) Take) (*Page, error) {
	var p *Page
	err := l.store.In(ctx, ref, func(tx pgx.Tx) error {
		s, err := describe(ctx, tx, ref)
		if err != nil {
			return err
		}
		if after > s.Tail {
			return store.PastEnd(after, s.Tail)
		}
		p = &Page{Stream: s, After: after, log: l, allFields: allFields, at: after}
		return p.begin(ctx, tx, try(s))
	})
	if err != nil {
		return nil, err
	}
	l.use(p.Stream)
	return p, nil
}

// ReadEnd returns an empty page at the end of a log. It counts as a use of the log. Errors: those of Describe.
func (l *Log) ReadEnd(ctx context.Context, ref Ref) (*Page, error) {
	s, err := l.Use(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &Page{Stream: s, After: s.Tail, Last: s.Tail, log: l, at: s.Tail}, nil
}

// begin reads the first piece and decides where the page ends.
func (p *Page) begin(ctx context.Context, tx pgx.Tx, take Take) error {
	s := p.scan(tx, p.Stream.Tail+1, firstRows, readBytes, take)
	if err := s.Run(ctx, p.Stream.ID); err != nil {
		return err
	}
	p.at = s.At
	p.Last = p.at
	if s.Rows > 0 { // some are large, or there are no more
		return nil
	}
	size := max(1, (readBytes-s.Bytes)/firstRows)
	p.rows = min(max(1, pagePieceBytes/size), pagePieceRows)
	p.Last = min(p.Stream.Tail, p.After+min(max(firstRows, pageBytes/size), pageRows))
	return nil
}

func (p *Page) scan(tx pgx.Tx, before, rows, bytes int64, take Take) *store.Scan {
	s := store.NewScan(tx, p.Stream.Ref, Range{After: p.at, Before: before, Limit: int(rows)}, bytes, take)
	switch {
	case p.allFields:
	case IsJSON(p.Stream.ContentType):
		s.Only = messageType
	default:
		s.Only = bytesType
	}
	return s
}

// More reports whether the page has another piece.
func (p *Page) More() bool { return p.at < p.Last }

// Large reports whether the next piece begins with a large entry. The caller can therefore let go of the previous piece
// before it reads this one, instead of holding both. Such a piece holds at most half a MiB, like other pieces, plus
// that entry, which may have the maximum size of an entry.
func (p *Page) Large() bool { return p.large }

// Next reads the next piece. The piece may be empty if a large one follows. try is as for [Log.ReadFrom]. The error is
// a [fault.NotFound] if the log was deleted meanwhile or lost its end.
func (p *Page) Next(ctx context.Context, try func(Stream) Take) error {
	var s *store.Scan
	err := p.log.store.In(ctx, p.Stream.Ref, func(tx pgx.Tx) error {
		s = p.scan(tx, p.Last+1, p.rows, pagePieceBytes, try(p.Stream))
		s.FastOnly = !p.large
		return s.Run(ctx, p.Stream.ID)
	})
	switch {
	case err != nil:
		return err
	case s.At == p.at && p.large:
		return fault.Newf(fault.NotFound, "read the stream again", "entries of stream %s that were there a moment ago are gone", p.Stream.Name)
	}
	p.at, p.large = s.At, !p.large && !s.Over(p.Last+1)
	return nil
}
