package commit

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// batch writes parts in one statement. It encodes Postgres' binary format itself, because pgx's encoding boxes every
// value of ten arrays, which would be half of this server's cost of an append.
type batch struct {
	// many and one are the connection's prepared statements, each a transaction of its own. A batch of one entry has a
	// cheaper statement, because it is the most common one and its writer waits for it alone.
	many, one *pgconn.StatementDescription

	streams, houses, tails                 array
	of, nth, ids, authors, types, payloads array
}

// prepare prepares the statements on a connection.
func (b *batch) prepare(ctx context.Context, conn *pgx.Conn) (err error) {
	b.many, err = conn.Prepare(ctx, "commit batch", "select tails, busy, refused, happened from append_batch($1, $2, $3, $4, $5, $6, $7, $8, $9)")
	if err == nil {
		b.one, err = conn.Prepare(ctx, "commit one", "select append_one($1, $2, $3, $4, $5, $6, $7)")
	}
	return err
}

// batchResult is the result of a batch.
type batchResult struct {
	// tails are the positions at which the streams of the batch ended before it.
	tails []int64
	// busy and refused are the streams into which nothing was written: busy ones are locked by another transaction, and
	// the drafts of refused ones are invalid.
	busy, refused []int64
	happened      time.Time
}

// write writes parts, ascending by stream, over the prepared connection. After an error that Postgres did not report,
// the connection is unusable, because the rest of the answer may still arrive on it.
func (b *batch) write(conn *pgconn.PgConn, parts []part) (batchResult, error) {
	// A deadline on the connection bounds the statement. A context would need a goroutine that wakes twice per batch.
	ctx := context.Background()
	if err := conn.Conn().SetDeadline(time.Now().Add(store.StatementTimeout)); err != nil {
		return batchResult{}, err
	}
	if len(parts) == 1 && parts[0].entries == 1 && parts[0].isKnown() {
		if v, done, err := b.writeOne(ctx, conn, parts[0]); done || err != nil {
			return v, err
		}
	}
	b.begin()
	for i, p := range parts {
		b.streams.int8(p.id)
		b.houses.text(p.lane.ref.House)
		if p.tail == unknown {
			b.tails.null()
		} else {
			b.tails.int8(p.tail)
		}
		nth := 0
		for _, c := range p.calls {
			for j := range c.entries {
				nth++
				b.add(i+1, nth, &c.entries[j])
			}
		}
	}
	args := [][]byte{b.streams.end(), b.houses.end(), b.tails.end(),
		b.of.end(), b.nth.end(), b.ids.end(), b.authors.end(), b.types.end(), b.payloads.end()}
	result := conn.ExecStatement(ctx, b.many, args, store.BinaryFormat, store.BinaryFormat).Read()
	if result.Err != nil {
		return batchResult{}, result.Err
	}
	if len(result.Rows) != 1 {
		return batchResult{}, errNoResult
	}
	row := result.Rows[0]
	return batchResult{int8s(row[0]), int8s(row[1]), int8s(row[2]), store.Timestamp(row[3])}, nil
}

var errNoResult = errors.New("the database returned no result for a batch")

// writeOne writes the one entry of a part whose tail is known. done is false if something prevents it. The entry is
// then written as a batch, because only that statement says what prevents it.
func (b *batch) writeOne(ctx context.Context, conn *pgconn.PgConn, p part) (v batchResult, done bool, err error) {
	e := &p.calls[0].entries[0]
	args := [][]byte{
		binary.BigEndian.AppendUint64(nil, uint64(p.id)), []byte(p.lane.ref.House),
		binary.BigEndian.AppendUint64(nil, uint64(p.tail+1)), []byte(e.ID), authorID(e), []byte(e.Type), e.Payload,
	}
	result := conn.ExecStatement(ctx, b.one, args, store.BinaryFormat, store.BinaryFormat).Read()
	switch {
	case result.Err != nil:
		return batchResult{}, false, result.Err
	case len(result.Rows) != 1:
		return batchResult{}, false, errNoResult
	}
	happened := result.Rows[0][0]
	if happened == nil {
		return batchResult{}, false, nil
	}
	return batchResult{tails: []int64{p.tail}, happened: store.Timestamp(happened)}, true, nil
}

func (b *batch) begin() {
	const int4, int8, text, json, uid = 23, 20, 25, 114, 2950 // Postgres' type ids
	b.streams.begin(int8)
	b.houses.begin(text)
	b.tails.begin(int8)
	b.of.begin(int4)
	b.nth.begin(int4)
	b.ids.begin(text)
	b.authors.begin(uid)
	b.types.begin(text)
	b.payloads.begin(json)
}

func (b *batch) add(of, nth int, e *entry.Entry) {
	b.of.int4(of)
	b.nth.int4(nth)
	b.ids.text(e.ID)
	b.types.text(e.Type)
	b.payloads.bytes(e.Payload)
	if id := authorID(e); id != nil {
		b.authors.bytes(id)
	} else {
		b.authors.null()
	}
}

// authorID returns the uuid of an entry's author, or nil for null if it has none. There is no invalid author here,
// because newCall refuses it.
func authorID(e *entry.Entry) []byte {
	id, err := uuid.Parse(e.Author)
	if err != nil {
		return nil
	}
	return id[:]
}

// array builds a one-dimensional Postgres array. Its memory is reused; a batch would otherwise allocate nine of them.
type array struct {
	data  []byte
	n     uint32
	nulls uint32
}

// keptArray is the most memory that an array keeps for reuse. Otherwise one batch of large entries would occupy its
// memory for as long as the server runs.
const keptArray = 8 << 20

func (a *array) begin(elements uint32) {
	if cap(a.data) > keptArray {
		a.data = nil
	}
	a.data, a.n, a.nulls = append(a.data[:0], make([]byte, 20)...), 0, 0
	binary.BigEndian.PutUint32(a.data, 1) // the number of dimensions
	binary.BigEndian.PutUint32(a.data[8:], elements)
	binary.BigEndian.PutUint32(a.data[16:], 1) // the first index
}

func (a *array) end() []byte {
	binary.BigEndian.PutUint32(a.data[4:], a.nulls)
	binary.BigEndian.PutUint32(a.data[12:], a.n)
	return a.data
}

func (a *array) length(n int) {
	a.n++
	a.data = binary.BigEndian.AppendUint32(a.data, uint32(n))
}

func (a *array) null() {
	a.length(-1)
	a.nulls = 1
}

func (a *array) int4(v int) {
	a.length(4)
	a.data = binary.BigEndian.AppendUint32(a.data, uint32(v))
}

func (a *array) int8(v int64) {
	a.length(8)
	a.data = binary.BigEndian.AppendUint64(a.data, uint64(v))
}

func (a *array) text(s string) {
	a.length(len(s))
	a.data = append(a.data, s...)
}

func (a *array) bytes(b []byte) {
	a.length(len(b))
	a.data = append(a.data, b...)
}

// int8s decodes an array of int8 without nulls.
func int8s(data []byte) (vs []int64) {
	const header, element = 20, 4 + 8
	if len(data) < header { // an empty array has no dimension
		return nil
	}
	for at := range slices.Chunk(data[header:], element) {
		vs = append(vs, int64(binary.BigEndian.Uint64(at[4:])))
	}
	return vs
}
