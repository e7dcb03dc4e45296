package blob

import (
	"context"
	"errors"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

// chunkSize is the size of the part of a blob in one row, in bytes. Rows of other sizes stay readable, because each row
// has its position.
const chunkSize = 1 << 20

// Postgres is a store in the server's own database. It needs nothing else to operate and serves several servers. It
// suits houses of some gigabytes; backups of the database include the bytes.
type Postgres struct {
	db *db.DB
	q  *query.Queries
}

// InPostgres returns the store in a database.
func InPostgres(d *db.DB) *Postgres { return &Postgres{d, query.New()} }

// in runs f in a transaction with the scope of the key's house.
func (p *Postgres) in(ctx context.Context, key Key, f func(pgx.Tx) error) error {
	if err := key.check(); err != nil {
		return err
	}
	return p.db.In(ctx, db.Scope{House: key.House}, f)
}

// Put writes one row per chunk, each in its own transaction, so that no transaction is long. An empty blob has one
// empty chunk; otherwise it would look like a missing one.
func (p *Postgres) Put(ctx context.Context, key Key, r io.Reader) error {
	chunk := make([]byte, chunkSize)
	for start := int64(0); ; {
		n, err := io.ReadFull(upTo{ctx, r}, chunk)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return failed(err)
		}
		if n > 0 || start == 0 {
			if err := p.in(ctx, key, func(tx pgx.Tx) error {
				return p.q.PutChunk(ctx, tx, query.PutChunkParams{HouseID: key.House, BlobID: key.ID, Start: start, Data: chunk[:n]})
			}); err != nil {
				return failed(err)
			}
		}
		if last {
			return nil
		}
		start += int64(n)
	}
}

// Open reads chunk by chunk.
func (p *Postgres) Open(ctx context.Context, key Key, offset int64) (io.ReadCloser, error) {
	r := &chunkReader{ctx: ctx, store: p, key: key, at: offset}
	if err := r.next(); err != nil && !errors.Is(err, io.EOF) { // read now, so that Open reports a missing blob
		return nil, err
	}
	return r, nil
}

// Delete removes the rows.
func (p *Postgres) Delete(ctx context.Context, key Key) error {
	return failed(p.in(ctx, key, func(tx pgx.Tx) error { return p.q.DeleteChunks(ctx, tx, key.House, key.ID) }))
}

// chunkReader reads a blob from a position.
type chunkReader struct {
	ctx   context.Context
	store *Postgres
	key   Key
	at    int64  // the position after rest
	rest  []byte // read from the database but not yet by the caller
	err   error
}

// next reads the rest of the chunk that contains position r.at; io.EOF at the end of the blob.
func (r *chunkReader) next() error {
	r.err = failed(r.store.in(r.ctx, r.key, func(tx pgx.Tx) error {
		row, err := r.store.q.ChunkAt(r.ctx, tx, r.key.House, r.key.ID, r.at)
		if errors.Is(err, pgx.ErrNoRows) {
			return missing(r.key).Because(err)
		}
		if err != nil {
			return err
		}
		skip := r.at - row.Start
		if skip < int64(len(row.Data)) {
			r.rest = row.Data[skip:]
			r.at = row.Start + int64(len(row.Data))
		}
		return nil
	}))
	if r.err == nil && len(r.rest) == 0 {
		r.err = io.EOF
	}
	return r.err
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close does nothing, because the reader holds no connection between two reads.
func (r *chunkReader) Close() error { return nil }
