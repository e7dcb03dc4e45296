package stream

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
)

// The prepared statement that reads small entries: the first of a range, when all are stored as they are and
// have less bytes than asked for, else none. Most reads are of these, and the sizes that Postgres stores cost
// it a tenth of what counting bytes in a window does.
const (
	smallName      = "read small"
	smallStatement = `select e.seq, e.id, e.author_agent_id, e.type, e.payload, e.ts from entries e
		where e.stream_id = $1 and e.seq > $2 and e.seq < $3 and exists (
			select from (select p.payload from entries p where p.stream_id = $1 and p.seq > $2 and p.seq < $3 order by p.seq limit $4) p
				having sum(pg_column_size(p.payload)) < $5::bigint and count(pg_column_compression(p.payload)) = 0)
		order by e.seq limit $4`
)

// readSmall reads a range from its start. It finds none when there is none, and when they are not small. It
// decodes rows itself: the general way takes several times as long as Postgres does for reading them.
func readSmall(ctx context.Context, tx txn, ref Ref, stream int64, r Range, bytes int64) ([]entry.Entry, error) {
	statement, err := tx.Prepare(ctx, smallName, smallStatement) // once for each connection
	if err != nil {
		return nil, err
	}
	var args [][]byte
	for _, v := range []int64{stream, r.After, r.Before, int64(r.Limit), bytes} {
		args = append(args, binary.BigEndian.AppendUint64(nil, uint64(v)))
	}
	rows := tx.Conn().PgConn().ExecStatement(ctx, statement, args, []int16{pgx.BinaryFormatCode}, []int16{pgx.BinaryFormatCode})
	var entries []entry.Entry
	var kind, author string // the last entry's, which the next one mostly has as well
	var authorID [16]byte
	for rows.NextRow() {
		row := rows.Values()
		if string(row[3]) != kind {
			kind = string(row[3])
		}
		e := entry.Entry{Seq: int64(binary.BigEndian.Uint64(row[0])), ID: string(row[1]), StreamID: ref.Name, Type: kind, Payload: slices.Clone(row[4]), Time: timestamp(row[5])}
		if id := row[2]; id != nil {
			if author == "" || [16]byte(id) != authorID {
				authorID = [16]byte(id)
				author = uuid.UUID(authorID).String()
			}
			e.Author = author
		}
		entries = append(entries, e)
	}
	_, err = rows.Close()
	return entries, err
}
