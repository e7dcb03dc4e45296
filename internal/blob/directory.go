package blob

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Directory is a store in a directory: one file per blob, in one subdirectory per house. It serves one machine, or
// several machines that share the file system. It uses an [os.Root], so that no key and no symbolic link leads out of
// it.
type Directory struct{ root *os.Root }

// OpenDirectory opens a store, and creates its directory if there is none.
func OpenDirectory(path string) (*Directory, error) {
	err := os.MkdirAll(path, 0o700)
	if err == nil {
		var root *os.Root
		if root, err = os.OpenRoot(path); err == nil {
			return &Directory{root}, nil
		}
	}
	return nil, fault.Newf(fault.Precondition, "make it writable, or set another blob_store", "the blob store %s cannot be used", path).Because(err)
}

// Close releases the directory.
func (d *Directory) Close() error { return d.root.Close() }

// Put writes a file and waits until it is on disk.
func (d *Directory) Put(ctx context.Context, key Key, r io.Reader) error {
	if err := key.check(); err != nil {
		return err
	}
	switch err := d.root.Mkdir(key.House, 0o700); {
	case err == nil:
		if err := d.sync("."); err != nil {
			return failed(err)
		}
	case !errors.Is(err, fs.ErrExist):
		return failed(err)
	}
	f, err := d.root.OpenFile(key.String(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return failed(err)
	}
	_, err = io.Copy(f, upTo{ctx, r})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.sync(key.House)
	}
	return failed(err)
}

// sync makes the directory's entries durable, because syncing a file does not sync the name under which it is found.
func (d *Directory) sync(name string) error {
	dir, err := d.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Open opens the file.
func (d *Directory) Open(ctx context.Context, key Key, offset int64) (io.ReadCloser, error) {
	if err := key.check(); err != nil {
		return nil, err
	}
	f, err := d.root.Open(key.String())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(key).Because(err)
	}
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return nil, failed(err)
	}
	return struct {
		io.Reader
		io.Closer
	}{upTo{ctx, f}, f}, nil
}

// Delete removes the file.
func (d *Directory) Delete(_ context.Context, key Key) error {
	if err := key.check(); err != nil {
		return err
	}
	if err := d.root.Remove(key.String()); !errors.Is(err, fs.ErrNotExist) {
		return failed(err)
	}
	return nil
}
