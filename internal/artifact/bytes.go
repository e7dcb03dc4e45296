package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// uploadTimeout limits an upload. It is less than the two hours after which the database counts an upload as dead;
	// otherwise bytes could be collected while they are still written.
	uploadTimeout = 30 * time.Minute
	// maxUploads limits the concurrent uploads of one house on all servers, because the quota does not count uploads in
	// progress.
	maxUploads = 64
	// discardTimeout limits the deletion of a failed upload, so that a store that does not answer does not block the
	// caller.
	discardTimeout = 30 * time.Second
)

// Upload is bytes in the blob store to which no artifact refers yet. Its owner must pass it to [Artifacts.CreateTx] or
// [Artifacts.Discard]; if the server dies first, the bytes are deleted two hours later.
type Upload struct {
	// Size is the number of bytes.
	Size int64

	key blob.Key
	sum []byte
}

// Create creates an artifact in the scope's house with all bytes of content, as [Artifacts.CreateTx] does; if content
// is nil, the artifact has no bytes. Content is streamed. Exceeding a limit is a [fault.Exhausted]; if the content is
// larger than one artifact may be, its cause is [ErrTooLarge]. If Create fails, nothing is stored.
func (a *Artifacts) Create(ctx context.Context, scope db.Scope, d Draft, content io.Reader) (made Artifact, err error) {
	if err := d.check(); err != nil {
		return Artifact{}, err
	}
	// A retry is recognized before the upload, so that its content is not stored again.
	if id := d.idIn(scope.House); id != "" {
		if there, err := a.Get(ctx, scope, id); err == nil {
			return a.again(there, d, content)
		} else if fault.CodeOf(err) != fault.NotFound {
			return Artifact{}, err
		}
	}
	var up *Upload
	if content != nil {
		staged, err := a.Upload(ctx, scope, content)
		if err != nil {
			return Artifact{}, err
		}
		up = &staged
	}
	err = a.DB.In(ctx, scope, func(tx pgx.Tx) error {
		made, err = a.CreateTx(ctx, tx, scope, d, up)
		return err
	})
	if err != nil && up != nil {
		a.Discard(ctx, scope, *up)
	}
	return made, err
}

// again handles a draft whose id already exists. It reads the content, because a retry must have the same, but does not
// store it again.
func (a *Artifacts) again(there Artifact, d Draft, content io.Reader) (Artifact, error) {
	if !there.is(d) || there.HasBytes != (content != nil) {
		return Artifact{}, idTaken()
	}
	if content != nil {
		m := a.measure(content, a.MaxSize)
		if _, err := io.Copy(io.Discard, m); err != nil {
			return Artifact{}, m.err
		}
		if there.ByteRef != "sha256:"+hex.EncodeToString(m.hash.Sum(nil)) {
			return Artifact{}, idTaken()
		}
	}
	return there, nil
}

// Upload stores content for an artifact that is created later in the scope's house, because no transaction may stay
// open for as long as an upload takes. It bounds the memory, the size and the time (half an hour). If it fails, nothing
// is stored.
func (a *Artifacts) Upload(ctx context.Context, scope db.Scope, content io.Reader) (Upload, error) {
	up := Upload{key: blob.Key{House: scope.House}}
	var left int64
	err := a.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
		use, err := a.q.BlobUse(ctx, tx, scope.House)
		if err != nil {
			return err
		}
		if use.Uploads >= maxUploads {
			return fault.Newf(fault.Exhausted, "try again in a moment", "this house already has %d uploads in progress", use.Uploads).WithReason(fault.LimitReached)
		}
		left = a.left(use)
		up.key.ID, err = a.q.InsertBlob(ctx, tx, scope.House)
		return err
	})
	if err != nil {
		return Upload{}, err
	}
	bound, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	m := a.measure(content, min(a.MaxSize, max(left, 0)))
	if err := a.Blobs.Put(bound, up.key, m); err != nil {
		a.Discard(ctx, scope, up)
		if m.err != nil { // reading the content failed: report this instead of the store's error for it
			err = m.err
		}
		return Upload{}, err
	}
	up.Size, up.sum = m.size, m.hash.Sum(nil)
	return up, nil
}

// Discard deletes an upload, unless an artifact refers to it by now. It continues after ctx has ended, because the
// end of the request may be what made the upload fail. What it cannot delete is collected later.
func (a *Artifacts) Discard(ctx context.Context, scope db.Scope, up Upload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	var unused bool
	err := a.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
		unused, err = a.q.DiscardUpload(ctx, tx, up.key.ID)
		return err
	})
	if err == nil && unused {
		err = a.Blobs.Delete(ctx, up.key)
	}
	if err != nil {
		a.Logger.WarnContext(ctx, "a failed upload was not deleted yet; it will be collected later", "key", up.key, "error", fault.From(err).Detail())
	}
}

// holdTx makes an upload the content of an artifact that the transaction creates, and returns the id of its blob: an
// existing one if the house already has the same content.
func (a *Artifacts) holdTx(ctx context.Context, tx pgx.Tx, house string, up Upload) (id string, err error) {
	// Otherwise two transactions could each find enough quota and exceed it together.
	if err := a.q.LockHouseBlobs(ctx, tx, house); err != nil {
		return "", err
	}
	id, err = a.q.LockBlobOf(ctx, tx, house, up.sum)
	if err == nil {
		_, err = a.q.DiscardUpload(ctx, tx, up.key.ID)
		return id, err
	} else if !errors.Is(err, pgx.ErrNoRows) {
		return "", err
	}
	use, err := a.q.BlobUse(ctx, tx, house)
	if err != nil {
		return "", err
	}
	if up.Size > a.left(use) {
		return "", a.full()
	}
	rows, err := a.q.FinishBlob(ctx, tx, up.sum, &up.Size, up.key.ID)
	if err == nil && rows == 0 {
		err = fault.New(fault.Aborted, "the upload took too long and was deleted", "send it again")
	}
	return up.key.ID, err
}

// left returns how many bytes the house may add: what remains of its own quota and of its person's.
func (a *Artifacts) left(use query.BlobUseRow) int64 {
	return min(a.Quota-use.Bytes, a.PersonQuota-use.PersonBytes)
}

func (a *Artifacts) full() *fault.Error {
	return fault.Newf(fault.Exhausted, "delete artifacts that are not needed, or ask the operator to raise artifact_quota or person_artifact_quota",
		"the artifacts of this house may have at most %d bytes in all, and those of one person's houses %d", a.Quota, a.PersonQuota).WithReason(fault.LimitReached)
}

// ErrTooLarge is the cause of the [fault.Exhausted] for content that is larger than one artifact may be.
var ErrTooLarge = errors.New("larger than one artifact may be")

// Fits returns an error if content of this size is larger than one artifact may be.
func (a *Artifacts) Fits(size int64) error {
	if size > a.MaxSize {
		return a.tooLarge()
	}
	return nil
}

func (a *Artifacts) tooLarge() *fault.Error {
	return fault.Newf(fault.Exhausted, "split it, or store it elsewhere and create an artifact with a link; the operator can raise artifact_max_size",
		"an artifact has at most %d bytes", a.MaxSize).WithReason(fault.TooLarge).Because(ErrTooLarge)
}

// measured reads content up to a limit, and computes its size and hash.
type measured struct {
	content io.Reader
	left    int64
	over    error
	size    int64
	hash    hash.Hash
	err     error // what ended it early
}

// measure limits content to the largest size of an artifact, or to the rest of the quota, so that no more is stored
// than may be kept.
func (a *Artifacts) measure(content io.Reader, most int64) *measured {
	over := a.full()
	if most >= a.MaxSize {
		over = a.tooLarge()
	}
	return &measured{content: content, left: most, over: over, hash: sha256.New()}
}

func (m *measured) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	n, err := m.content.Read(p)
	if int64(n) > m.left {
		m.err = m.over
		return 0, m.err
	}
	m.left -= int64(n)
	m.size += int64(n)
	m.hash.Write(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		m.err = err
		if _, ok := errors.AsType[*fault.Error](err); !ok && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			m.err = fault.New(fault.Canceled, "the upload was interrupted", "send it again").Because(err)
		}
		return n, m.err
	}
	return n, err
}

// Open returns a reader of an artifact's bytes. Bytes are fetched only when they are read, so that a Seek before the
// first Read costs nothing. If arbe does not store the artifact's bytes, the error is a [fault.Precondition]. ctx also
// bounds the reading.
func (a *Artifacts) Open(ctx context.Context, of Artifact) (*Content, error) {
	if !of.HasBytes {
		return nil, fault.New(fault.Precondition, "arbe does not store the bytes of this artifact", "follow its byte_ref or external_id")
	}
	return &Content{ctx: ctx, store: a.Blobs, key: blob.Key{House: of.House, ID: of.blob}, size: of.Size}, nil
}

// Content reads an artifact's bytes as an [io.ReadSeekCloser]. It is not safe for concurrent use.
type Content struct {
	ctx   context.Context
	store blob.Store
	key   blob.Key
	size  int64
	at    int64
	body  io.ReadCloser // open at position at; nil before the first Read and after a Seek
	err   error
}

// Read reads the next bytes. If the bytes end too early, the error is [io.ErrUnexpectedEOF]; otherwise a reader would
// take a part for the whole.
func (c *Content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.at >= c.size {
		return 0, io.EOF
	}
	if c.body == nil {
		if c.body, c.err = c.store.Open(c.ctx, c.key, c.at); c.err != nil {
			return 0, c.err
		}
	}
	n, err := c.body.Read(p[:min(int64(len(p)), c.size-c.at)])
	c.at += int64(n)
	if errors.Is(err, io.EOF) {
		if err = nil; c.at < c.size {
			err = io.ErrUnexpectedEOF
		}
	}
	c.err = err
	return n, err
}

// Seek sets the position of the next Read.
func (c *Content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	if offset != c.at {
		c.Close()
		c.at = offset
	}
	return offset, nil
}

// Err returns the error that ended a Read before the end of the content, if any.
func (c *Content) Err() error { return c.err }

// Close closes the open blob, if any.
func (c *Content) Close() error {
	if c.body == nil {
		return nil
	}
	body := c.body
	c.body = nil
	return body.Close()
}

// collectAtOnce is how many blobs are deleted between two queries, so that a long list is never in memory.
const collectAtOnce = 1000

// Collect deletes the bytes to which nothing refers: of deleted artifacts, threads and houses, and of unfinished
// uploads. It skips what it cannot delete now, so that one blob does not hold up the others, and returns an error for
// it.
func (a *Artifacts) Collect(ctx context.Context) error {
	if err := a.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) error { return a.q.CollectBlobs(ctx, tx) }); err != nil {
		return err
	}
	for {
		due, removed, failed := 0, 0, error(nil)
		var keys []blob.Key
		err := a.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			rows, err := a.q.DueBlobs(ctx, tx, collectAtOnce)
			for _, row := range rows {
				keys = append(keys, blob.Key{House: row.HouseID, ID: row.ID})
			}
			return err
		})
		if err != nil {
			return err
		}
		due = len(keys)
		for _, key := range keys {
			err := a.Blobs.Delete(ctx, key)
			if err == nil { // only now, because without the row, remaining bytes would never be deleted
				err = a.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) error { return a.q.ForgetBlob(ctx, tx, key.House, key.ID) })
			}
			if err != nil {
				failed = err
				continue
			}
			removed++
		}
		if due < collectAtOnce || removed == 0 { // without progress, the same blobs would be tried forever
			return failed
		}
	}
}
