package artifact

import (
	"context"
	"crypto/sha256"
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
