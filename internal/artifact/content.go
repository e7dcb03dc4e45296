package artifact

import (
	"context"
	"errors"
	"io"

	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/fault"
)

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
