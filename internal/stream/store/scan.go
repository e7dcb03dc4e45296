package store

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
)

// Scan reads entries of a stream in ascending order in one transaction, and passes each on as it arrives from the
// database.
//
// Nearly all entries are small: Postgres stores them uncompressed in their row. The fast way reads those without
// counting their bytes first. A gap in the positions shows that other entries lie between: large ones, which the
// careful way reads, or inherited ones, which are read from the streams that the fork comes from.
type Scan struct {
	tx  pgx.Tx
	ref Ref
	// take receives each entry. Its payload is only valid during the call, because it is memory of the connection.
	take func(*entry.Entry)

	// Only, if not empty, is the type of all entries; only their payloads are then read.
	Only string
	// FastOnly ends the scan before a large entry instead of reading it.
	FastOnly bool

	// At is the last position read. Rows and Bytes are how many more rows and payload bytes to read; the entry that
	// exceeds Bytes is the last one.
	At          int64
	Rows, Bytes int64
	// before is the position at which to end.
	before int64
}

// NewScan starts a scan at the beginning of a range.
func NewScan(tx pgx.Tx, ref Ref, r Range, bytes int64, take func(*entry.Entry)) *Scan {
	s := &Scan{tx: tx, ref: ref, take: take, At: r.After, before: r.Before, Rows: int64(r.Limit), Bytes: bytes}
	if s.before == 0 {
		s.before = math.MaxInt64
	}
	if s.Rows == 0 {
		s.Rows = defaultRows
	}
	return s
}

// Over reports whether nothing is left to read before a position.
func (s *Scan) Over(before int64) bool { return s.At+1 >= before || s.Rows <= 0 || s.Bytes <= 0 }

// Run reads the entries of the stream with this id.
func (s *Scan) Run(ctx context.Context, stream int64) error {
	begin := s.At
	if err := s.fast(ctx, stream, s.before); err != nil || s.Over(s.before) {
		return err
	}
	if s.At > begin { // no lineage is needed, because what follows an own entry is also the stream's own
		return s.careful(ctx, stream, s.before)
	}
	line, err := queries.Lineage(ctx, s.tx, stream)
	if err != nil {
		return err
	}
	if len(line) < 2 {
		return s.careful(ctx, stream, s.before)
	}
	for _, part := range line {
		before := min(s.before, part.Before)
		if s.Over(s.before) || part.Before <= s.At+1 {
			continue
		}
		if err := s.fast(ctx, part.ID, before); err != nil {
			return err
		}
		if err := s.careful(ctx, part.ID, before); err != nil || s.At+1 < before {
			return err
		}
	}
	return nil
}

// The prepared statements that read small entries, either whole or only their payloads. They skip large entries and may
// return many rows, because each row is smaller than a Postgres page.
const (
	fastCondition = ` from entries where stream_id = $1 and seq > $2 and seq < $3
		and pg_column_size(payload) < 2000 and pg_column_compression(payload) is null order by seq limit $4`
	fastName      = "read entries"
	fastStatement = "select seq, payload, id, author_agent_id, type, ts" + fastCondition
	onlyName      = "read payloads"
	onlyStatement = "select seq, payload" + fastCondition
)

// fast reads small entries of one stream up to a position, as long as each follows the previous one. It decodes rows
// itself, because pgx's decoding takes several times as long as Postgres needs to read them.
func (s *Scan) fast(ctx context.Context, stream, before int64) error {
	if s.Over(before) {
		return nil
	}
	name, text := fastName, fastStatement
	if s.Only != "" {
		name, text = onlyName, onlyStatement
	}
	statement, err := s.tx.Prepare(ctx, name, text) // prepared once per connection
	if err != nil {
		return err
	}
	args := make([]byte, 0, 4*8)
	for _, v := range []int64{stream, s.At, before, s.Rows} {
		args = binary.BigEndian.AppendUint64(args, uint64(v))
	}
	rows := s.tx.Conn().PgConn().ExecStatement(ctx, statement, [][]byte{args[:8], args[8:16], args[16:24], args[24:]}, BinaryFormat, BinaryFormat)
	e := entry.Entry{StreamID: s.ref.Name, Type: s.Only}
	var authorID [16]byte // backs e.Author
	for rows.NextRow() {
		row := rows.Values()
		if e.Seq = int64(binary.BigEndian.Uint64(row[0])); e.Seq != s.At+1 || s.Over(before) {
			break // Close reads the remaining rows, which are few
		}
		e.Payload = row[1]
		if s.Only == "" {
			e.ID, e.Time = string(row[2]), Timestamp(row[5])
			switch id := row[3]; {
			case id == nil:
				e.Author = ""
			case e.Author == "" || [16]byte(id) != authorID:
				authorID = [16]byte(id)
				e.Author = uuid.UUID(authorID).String()
			}
			if string(row[4]) != e.Type { // usually the same as the previous entry's
				e.Type = string(row[4])
			}
		}
		s.read(&e)
	}
	_, err = rows.Close()
	return err
}

// careful reads entries of any size of one stream up to a position.
func (s *Scan) careful(ctx context.Context, stream, before int64) error {
	if s.FastOnly || s.Over(before) {
		return nil
	}
	rows, err := queries.ReadForward(ctx, s.tx, query.ReadForwardParams{
		StreamID: stream, After: s.At, Before: before, MaxBytes: s.Bytes,
		MaxRows: int32(min(s.Rows, MaxRows)), // limited, because the query counts the bytes of every row
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		e := fromRow(s.ref, row)
		s.read(&e)
	}
	return nil
}

func (s *Scan) read(e *entry.Entry) {
	s.take(e)
	s.At = e.Seq
	s.Rows--
	s.Bytes -= int64(len(e.Payload))
}

func fromRow(ref Ref, r query.ReadForwardRow) entry.Entry {
	e := entry.Entry{Seq: r.Seq, ID: r.ID, StreamID: ref.Name, Type: r.Type, Payload: r.Payload, Time: r.Ts.UTC()}
	if r.AuthorAgentID != nil {
		e.Author = *r.AuthorAgentID
	}
	return e
}
