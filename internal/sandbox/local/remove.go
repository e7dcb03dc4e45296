//go:build linux

package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// removeTree removes a directory with everything that a box left in it. A box with the server's own user can leave
// directories that nobody may enter or write, and trees so deep that [os.RemoveAll], which keeps a directory open per
// level, would use up the server's file descriptors.
func removeTree(dir string) error {
	top, err := openWritable(unix.AT_FDCWD, dir)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	for moved := 0; ; {
		names, err := top.Readdirnames(256)
		for _, name := range names {
			if err := removeFlat(top, name, &moved); err != nil {
				return fmt.Errorf("remove %q: %w", name, err)
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		if err := unix.Rmdir(dir); !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		if _, err := top.Seek(0, io.SeekStart); err != nil { // read again, to find what was moved there meanwhile
			return err
		}
	}
}

// unfinished marks the directory of a box that is being created or deleted, so that the next server can remove it if
// this one is killed.
const unfinished = "unfinished"

// removeMarked removes the directory of an unfinished box. The mark is the last file to go: a server that finds neither
// the mark nor a record takes the files for somebody's and keeps them.
func removeMarked(dir string) error {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range names {
		name := filepath.Join(dir, entry.Name())
		switch {
		case entry.Name() == unfinished:
		case entry.IsDir():
			err = removeTree(name)
		default:
			err = os.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return removeTree(dir)
}

// removeIn removes the file or directory at a path below a root, if there is one. Links on the way do not lead out of
// the root, and a link at the path is itself removed.
func removeIn(root *os.Root, name string) error {
	parent, err := root.Open(path.Dir(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	base := path.Base(name)
	err = unix.Unlinkat(int(parent.Fd()), base, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EPERM): // POSIX returns EPERM for a directory
		return removeTree(fmt.Sprintf("/proc/self/fd/%d/%s", parent.Fd(), base))
	}
	return err
}

// removeFlat removes an entry of a directory, but moves the directories in the entry to the directory itself, so that
// the depth of a tree costs nothing.
func removeFlat(top *os.File, name string, moved *int) error {
	dir, err := openWritable(int(top.Fd()), name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return unix.Unlinkat(int(top.Fd()), name, 0)
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(256)
		for _, entry := range entries {
			if !entry.IsDir() {
				if err := unix.Unlinkat(int(dir.Fd()), entry.Name(), 0); err != nil {
					return err
				}
				continue
			}
			// It must be writable, because moving a directory changes its parent entry.
			below, err := openWritable(int(dir.Fd()), entry.Name())
			if err != nil {
				return err
			}
			below.Close()
			for err = unix.EEXIST; errors.Is(err, unix.EEXIST); *moved++ {
				err = unix.Renameat2(int(dir.Fd()), entry.Name(), int(top.Fd()), fmt.Sprintf(".moved-%d", *moved), unix.RENAME_NOREPLACE)
			}
			if err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	err = unix.Unlinkat(int(top.Fd()), name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		return nil // the directory changed while it was read; the next pass finds the rest
	}
	return err
}

// openWritable makes a directory readable and writable for its owner, and opens it. It refuses a link to one, because a
// box may have created it.
func openWritable(at int, name string) (*os.File, error) {
	handle, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(handle)
	// Use this path, because an O_PATH descriptor itself can be neither changed nor read.
	path := fmt.Sprintf("/proc/self/fd/%d", handle)
	if err := unix.Chmod(path, 0o700); err != nil {
		return nil, err
	}
	return os.Open(path)
}
