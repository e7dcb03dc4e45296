// Package blob stores sequences of bytes under keys: in a directory (directory.go), in a bucket of an S3-compatible
// service (s3.go), or in Postgres (postgres.go). It does not know what the bytes mean; package artifact does. Every
// store passes the test suite in blobtest.
package blob

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Key identifies a blob. Both parts are short ids. A key must not be used for another blob, because the deletion of the
// first one may still be under way.
type Key struct{ House, ID string }

// String returns the key as a path.
func (k Key) String() string { return k.House + "/" + k.ID }

// shortID is the form of both parts of a key. It allows no dots and slashes, because keys become paths.
var shortID = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)

func (k Key) check() error {
	if !shortID.MatchString(k.House) || !shortID.MatchString(k.ID) {
		return fault.Newf(fault.Invalid, "use short ids", "%q is not a blob's key", k)
	}
	return nil
}

// Store stores blobs. It is safe for concurrent use. The error for a store that cannot be reached is a
// [fault.Unavailable], and for a full one a [fault.Exhausted].
type Store interface {
	// Put stores everything that r returns, and returns once it is durable. It holds a bounded amount in memory. If it
	// fails, part of the blob may be stored: the caller must delete the key.
	Put(ctx context.Context, key Key, r io.Reader) error
	// Open reads a blob from an offset in bytes; at or after its end there is nothing to read. ctx also bounds the
	// reading. A key without a blob is a [fault.NotFound], from Open or from the first Read.
	Open(ctx context.Context, key Key, offset int64) (io.ReadCloser, error)
	// Delete deletes a blob, or the part that a failed Put left. Deleting a blob that does not exist succeeds.
	Delete(ctx context.Context, key Key) error
}

// missing returns the fault for a key without a blob.
func missing(key Key) *fault.Error {
	return fault.Newf(fault.NotFound, "ask the operator to check the setting blob_store: the bytes may be in another store", "the blob store has no blob %q", key)
}

// failed converts an error of a store for its callers. It leaves faults and the end of a context as they are, because
// they do not mean that the store is unavailable.
func failed(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok || err == nil {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.Exhausted, "the blob store's disk is full", "free some space; no acknowledged data is lost").WithReason(fault.DiskFull).Because(err)
	}
	return fault.New(fault.Unavailable, "the blob store does not answer correctly", "try again in a moment; if it persists, ask the operator to check the setting blob_store").Because(err)
}

// upTo is a reader that fails once ctx has ended, because a file and a caller's reader know nothing of a context.
type upTo struct {
	ctx context.Context
	r   io.Reader
}

func (u upTo) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
