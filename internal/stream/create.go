package stream

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Making says what log to make.
type Making struct {
	// ContentType is the media type of its content. A fork has its source's: then it may be empty.
	ContentType string
	// TTL is how long it outlives its last use, and ExpiresAt when it ends whether it is used or not; at most
	// one of them is set. Both default to none; a fork's to its source's.
	TTL       *time.Duration
	ExpiresAt time.Time
	// Closed makes it closed, with Content as all it will ever hold.
	Closed bool
	// Fork is where it comes from. Defaults to nil, nowhere.
	Fork *ForkPoint
	// Content makes its first entries of a content type; see [Drafts].
	Content func(contentType string) ([]entry.Draft, error)
}

// ForkPoint is a place in a log of the same house.
type ForkPoint struct {
	// Source is the log's name.
	Source string
	// Seq is the last entry that the fork inherits whole; negative: the last one there is.
	Seq int64
	// Sub is how much of what was appended next it inherits too: messages of JSON, else bytes.
	Sub int64
}

// Create makes a log, and reports whether there was none: one that is there already and is as it should be is
// as good, and stays as it is.
//
// Errors: [fault.Exists] (there is another one of this name), [fault.NotFound] (no source to fork),
// [fault.OutOfRange] (the source ends before the fork's point), [fault.Precondition] (the source was deleted,
// or its content is of another type), and those of Making.Content and [Log.Append].
func (l *Log) Create(ctx context.Context, ref Ref, m Making) (s Stream, created bool, err error) {
	if err := l.stopping(); err != nil {
		return Stream{}, false, err
	}
	err = l.in(ctx, ref, func(tx txn) error {
		s, created, err = l.create(ctx, tx, ref, m)
		return err
	})
	return s, created, err
}

// ForkTx makes a fork in the caller's transaction, whose scope must be the house of both logs, and returns the
// last entry's position that it inherits. It holds the source's lock until the transaction ends. Errors: those
// of Create; here [fault.Exists] also says that the very same fork is there.
func (l *Log) ForkTx(ctx context.Context, tx pgx.Tx, ref Ref, p ForkPoint) (seq int64, err error) {
	if err := l.stopping(); err != nil {
		return 0, err
	}
	nothing := func(string) ([]entry.Draft, error) { return nil, nil }
	s, created, err := l.create(ctx, tx, ref, Making{Fork: &p, Content: nothing})
	if err == nil && !created {
		err = nameTaken(ref)
	}
	return s.Tail, err
}

func (l *Log) create(ctx context.Context, tx txn, ref Ref, m Making) (Stream, bool, error) {
	s, err := lock(ctx, tx, ref)
	switch {
	case err == nil:
		return s, false, s.matches(m)
	case errors.Is(err, errExpired):
		if err := queries.DeleteOwnStream(ctx, tx, s.ID); err != nil {
			return s, false, err
		}
	case errors.Is(err, ErrGone):
		return s, false, fault.Newf(fault.Exists, "use another name, or delete its forks first", "stream %s was deleted, but has forks", ref.Name)
	case fault.CodeOf(err) != fault.NotFound:
		return s, false, err
	}
	row := query.InsertStreamParams{HouseID: ref.House, Name: ref.Name, ContentType: m.ContentType}
	if m.TTL != nil {
		seconds := int64(m.TTL.Seconds())
		row.TtlSeconds = &seconds
	} else if !m.ExpiresAt.IsZero() {
		row.ExpiresAt = &m.ExpiresAt
	}
	var part []byte
	if m.Fork != nil {
		if part, err = forked(ctx, tx, ref, m, &row); err != nil {
			return s, false, err
		}
	}
	n, err := queries.InsertStream(ctx, tx, row)
	if err != nil {
		return s, false, err
	}
	if n == 0 { // someone else made it just now, or its forks keep it
		return l.create(ctx, tx, ref, m)
	}
	if s, err = lock(ctx, tx, ref); err != nil {
		return s, false, err
	}
	return s, true, l.fill(ctx, tx, &s, m, part)
}

// fill writes the first entries of a log that was just made. part is what it inherits of bytes that its
// source holds in one.
func (l *Log) fill(ctx context.Context, tx txn, s *Stream, m Making, part []byte) error {
	var first []entry.Draft
	if len(part) > 0 {
		first, _ = Drafts(s.ContentType, "", part) // bytes are no JSON that could be wrong
	}
	content, err := m.Content(s.ContentType)
	if err != nil {
		return err
	}
	_, err = l.change(ctx, tx, s, Write{Content: append(first, content...), Close: m.Closed})
	return err
}

// matches says what is wrong with a log that is there for one that should be made.
func (s Stream) matches(m Making) error {
	differs := ""
	switch {
	case (m.Fork == nil) != (s.fork == nil), m.Fork != nil && !s.fork.is(*m.Fork, s.ContentType):
		differs = "what it is a fork of"
	case (m.Fork == nil || m.ContentType != "") && MediaType(m.ContentType) != MediaType(s.ContentType):
		differs = "the type of its content"
	case s.Closed != m.Closed:
		differs = "whether it is closed"
	case m.Fork != nil && m.TTL == nil && m.ExpiresAt.IsZero(): // inherited
	case db.Zero(m.TTL) != db.Zero(s.TTL), (m.TTL == nil) != (s.TTL == nil), s.TTL == nil && !m.ExpiresAt.Equal(s.ExpiresAt):
		differs = "when it expires"
	}
	if differs == "" {
		return nil
	}
	return fault.Newf(fault.Exists, "use another name, or ask for the stream as it is", "there is a stream %s already, and it differs in %s", s.Name, differs)
}

// is tells whether a fork was asked for with this point.
func (f fork) is(p ForkPoint, contentType string) bool {
	seq := f.seq
	if IsJSON(contentType) {
		seq -= f.sub
	}
	return f.source == p.Source && f.sub == p.Sub && (p.Seq < 0 || p.Seq == seq)
}

// forked completes the row of a fork by its source, and returns the part of an entry that it inherits.
func forked(ctx context.Context, tx txn, ref Ref, m Making, row *query.InsertStreamParams) (part []byte, err error) {
	p := *m.Fork
	source, err := lock(ctx, tx, Ref{House: ref.House, Name: p.Source})
	switch {
	case errors.Is(err, ErrGone):
		return nil, fault.Newf(fault.Precondition, "fork one of its forks", "the source %s was deleted", p.Source)
	case err != nil:
		return nil, err
	case m.ContentType != "" && MediaType(m.ContentType) != MediaType(source.ContentType):
		return nil, fault.Newf(fault.Precondition, "leave out the content type", "a fork has the content type of its source, %s", source.ContentType)
	case p.Seq > source.Tail:
		return nil, fault.Newf(fault.OutOfRange, "fork at an entry that is there, or leave the position out to fork at the end",
			"position %d is past the end: the last entry is at %d", p.Seq, source.Tail)
	}
	if m.ContentType == "" {
		row.ContentType = source.ContentType
	}
	if m.TTL == nil && m.ExpiresAt.IsZero() {
		if source.TTL != nil {
			seconds := int64(source.TTL.Seconds())
			row.TtlSeconds = &seconds
		} else {
			row.ExpiresAt = db.Null(source.ExpiresAt)
		}
	}
	if p.Seq < 0 {
		p.Seq = source.Tail
	}
	seq := p.Seq
	if p.Sub > 0 {
		if seq, part, err = within(ctx, tx, source, p); err != nil {
			return nil, err
		}
	}
	row.SourceID, row.ForkSeq, row.ForkSub = &source.ID, &seq, &p.Sub
	return part, nil
}

// within finds a point inside of what was appended behind an entry: the last entry before it and, when
// the point is inside of one, the part of that before it.
func within(ctx context.Context, tx txn, source Stream, p ForkPoint) (seq int64, part []byte, err error) {
	tooFar := fault.New(fault.Invalid, "the sub-offset is past the end of the append behind the offset", "use a smaller one, or the offset after that append")
	at := func(seq int64) (entry.Entry, error) {
		found, err := page(ctx, tx, source.Ref, source.ID, Range{After: seq - 1, Before: seq + 1}, readBytes)
		if err != nil || len(found) == 0 {
			return entry.Entry{}, cmp.Or(err, error(tooFar))
		}
		return found[0], nil
	}
	next, err := at(p.Seq + 1)
	if err != nil {
		return 0, nil, err
	}
	if !IsJSON(source.ContentType) {
		content := Bytes(next)
		if p.Sub > int64(len(content)) {
			return 0, nil, tooFar
		}
		return p.Seq, content[:p.Sub], nil
	}
	last, err := at(p.Seq + p.Sub)
	if err != nil {
		return 0, nil, err
	}
	if !sameAppend(next, last) {
		return 0, nil, tooFar
	}
	return last.Seq, nil, nil
}
