package main

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/arbe-dev/arbe/internal/fault"
)

// writeWhole replaces a file with the complete content, or leaves it unchanged. It writes directly to anything that is not a
// file, such as a pipe, because that cannot be replaced. An error of content is returned as it is, unless it comes from writing.
func writeWhole(path string, content func(io.Writer) error) error {
	unwritable := fault.Newf(fault.Precondition, "name another file with --output", "cannot write %s", path)
	at, flags := filepath.Join(filepath.Dir(path), ".arbe-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		at, flags = path, os.O_WRONLY
	}
	f, err := os.OpenFile(at, flags, 0o666)
	if err != nil {
		return unwritable.Because(err)
	}
	if at != path {
		defer os.Remove(at) // does nothing after the rename
	}
	if err = content(f); err != nil {
		f.Close()
		if _, ours := errors.AsType[*os.PathError](err); ours {
			return unwritable.Because(err)
		}
		return err
	}
	if err = f.Close(); err == nil && at != path {
		err = os.Rename(at, path)
	}
	if err != nil {
		return unwritable.Because(err)
	}
	return nil
}

// unwrittenStdout adds a next step to an error of writing to stdout. It returns other errors unchanged.
func unwrittenStdout(err error) error {
	if _, ours := errors.AsType[*os.PathError](err); ours {
		return fault.New(fault.Precondition, "cannot write to stdout", "name a file with --output").Because(err)
	}
	return err
}
