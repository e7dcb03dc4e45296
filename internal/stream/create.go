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
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// CreateOptions describe the log to create.
type CreateOptions struct {
	// ContentType is the media type of the content. It may be empty for a fork, which has its source's content type.
	ContentType string
	// TTL is how long the log lives after its last use, and ExpiresAt when it ends whether it is used or not. At most
	// one of them may be set. Both default to none, or to the source's for a fork.
	TTL       *time.Duration
	ExpiresAt time.Time
	// Closed creates a closed log: Content is all that it will ever hold.
	Closed bool
	// Fork is the point from which to fork. Defaults to nil: the log is not a fork.
	Fork *ForkPoint
	// Content returns the first entries for a content type; see [Drafts].
	Content func(contentType string) ([]entry.Draft, error)
}

// ForkPoint is a position in a log of the same house.
type ForkPoint struct {
	// Source is the name of the log to fork.
	Source string
	// Seq is the last entry that the fork inherits whole. A negative one means the source's last entry.
	Seq int64
	// Sub is how much of the next append the fork also inherits: a number of messages for JSON, otherwise of bytes.
	Sub int64
}

// Create creates a log and reports whether it did. If the log already exists with these options, Create leaves it
// unchanged and returns it.
//
// Errors: [fault.Exists] (the name belongs to a different log), [fault.NotFound] (there is no source to fork),
// [fault.OutOfRange] (the source ends before the fork point), [fault.Precondition] (the source was deleted, or its
// content type differs), and those of CreateOptions.Content and [Log.Append].
func (l *Log) Create(ctx context.Context, ref Ref, m CreateOptions) (s Stream, created bool, err error) {
	if err := l.stopping(); err != nil {
		return Stream{}, false, err
	}
	err = l.store.In(ctx, ref, func(tx pgx.Tx) error {
		s, created, err = l.create(ctx, tx, ref, m)
		return err
	})
	return s, created, err
}

// ForkTx creates a fork in the caller's transaction, whose scope must be the house of both logs. It returns the
// position of the last entry that the fork inherits, and holds the source's lock until the transaction ends. Errors:
// those of Create, and [fault.Exists] even if the existing log is the same fork.
func (l *Log) ForkTx(ctx context.Context, tx pgx.Tx, ref Ref, p ForkPoint) (seq int64, err error) {
	if err := l.stopping(); err != nil {
		return 0, err
	}
	nothing := func(string) ([]entry.Draft, error) { return nil, nil }
	s, created, err := l.create(ctx, tx, ref, CreateOptions{Fork: &p, Content: nothing})
	if err == nil && !created {
		err = nameTaken(ref)
	}
	return s.Tail, err
}

func (l *Log) create(ctx context.Context, tx pgx.Tx, ref Ref, m CreateOptions) (Stream, bool, error) {
	s, err := lock(ctx, tx, ref)
	switch {
	case err == nil:
		return s, false, s.matches(m)
	case errors.Is(err, errExpired):
		// An expired log that was not deleted yet must not keep its name from a new one.
		if err := queries.DeleteOwnStream(ctx, tx, s.ID); err != nil {
			return s, false, err
		}
	case errors.Is(err, ErrGone):
		return s, false, fault.Newf(fault.Exists, "use another name, or delete its forks first", "stream %s was deleted, but forks of it remain", ref.Name).WithReason(fault.IDTaken)
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
	if n == 0 { // another transaction created it just now, or forks of a deleted log keep the name
		return l.create(ctx, tx, ref, m)
	}
	if s, err = lock(ctx, tx, ref); err != nil {
		return s, false, err
	}
	return s, true, l.fill(ctx, tx, &s, m, part)
}

// fill writes the first entries of a new log. part is the part of one of the source's binary entries that the fork
// inherits. It is copied into the fork, because only whole entries are inherited by position.
func (l *Log) fill(ctx context.Context, tx pgx.Tx, s *Stream, m CreateOptions, part []byte) error {
	var first []entry.Draft
	if len(part) > 0 {
		first, _ = Drafts(s.ContentType, "", part) // no error, because only a binary log has a part
	}
	content, err := m.Content(s.ContentType)
	if err != nil {
		return err
	}
	_, err = l.apply(ctx, tx, s, Write{Content: append(first, content...), Close: m.Closed})
	return err
}

// matches returns an error that says how an existing log differs from the one to be created; nil if it does not.
func (s Stream) matches(m CreateOptions) error {
	differs := ""
	switch {
	case (m.Fork == nil) != (s.fork == nil), m.Fork != nil && !s.fork.matches(*m.Fork, s.ContentType):
		differs = "its fork point"
	case (m.Fork == nil || m.ContentType != "") && MediaType(m.ContentType) != MediaType(s.ContentType):
		differs = "its content type"
	case s.Closed != m.Closed:
		differs = "whether it is closed"
	case m.Fork != nil && m.TTL == nil && m.ExpiresAt.IsZero(): // inherited, so equal
	case db.Zero(m.TTL) != db.Zero(s.TTL), (m.TTL == nil) != (s.TTL == nil), s.TTL == nil && !m.ExpiresAt.Equal(s.ExpiresAt):
		differs = "its expiry"
	}
	if differs == "" {
		return nil
	}
	return fault.Newf(fault.Exists, "use another name, or create it with the options that it has", "there is already a stream %s, which differs in %s", s.Name, differs).WithReason(fault.IDTaken)
}

// matches reports whether this fork was created from point p.
func (f fork) matches(p ForkPoint, contentType string) bool {
	seq := f.seq
	if IsJSON(contentType) {
		// For JSON, forked moved the fork point past the inherited messages, because those are whole entries.
		seq -= f.sub
	}
	return f.source == p.Source && f.sub == p.Sub && (p.Seq < 0 || p.Seq == seq)
}

// forked fills in the source's part of a fork's row, and returns the part of an entry that the fork inherits.
func forked(ctx context.Context, tx pgx.Tx, ref Ref, m CreateOptions, row *query.InsertStreamParams) (part []byte, err error) {
	p := *m.Fork
	source, err := lock(ctx, tx, Ref{House: ref.House, Name: p.Source})
	switch {
	case errors.Is(err, ErrGone):
		return nil, fault.Newf(fault.Precondition, "fork one of its forks instead", "the source %s was deleted", p.Source)
	case err != nil:
		return nil, err
	case m.ContentType != "" && MediaType(m.ContentType) != MediaType(source.ContentType):
		return nil, fault.Newf(fault.Precondition, "leave out the content type", "a fork has the content type of its source, %s", source.ContentType)
	case p.Seq > source.Tail:
		return nil, fault.Newf(fault.OutOfRange, "fork at an existing entry, or leave the position out to fork at the end",
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

// within finds a point inside the append that follows an entry. It returns the last whole entry before the point and,
// if the point is inside an entry, the bytes of that entry before the point.
func within(ctx context.Context, tx pgx.Tx, source Stream, p ForkPoint) (seq int64, part []byte, err error) {
	tooFar := fault.New(fault.Invalid, "the sub-offset is past the end of the append that follows the offset", "use a smaller sub-offset, or the offset after that append")
	at := func(seq int64) (entry.Entry, error) {
		found, err := store.Read(ctx, tx, source.Ref, source.ID, Range{After: seq - 1, Before: seq + 1}, readBytes)
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
