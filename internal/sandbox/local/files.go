//go:build linux

package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Upload writes a file into the box. It writes it under another name in the same directory and renames it, so that it
// appears completely or not at all.
func (d *Driver) Upload(ctx context.Context, ref, name string, mode fs.FileMode, content io.Reader) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	name, err = boxPath(name)
	if err != nil {
		return err
	}
	var (
		c         *container
		dir, temp *os.File
		tempName  = ".arbe-" + rand.Text()
	)
	err = b.use(ctx, func(running *container) error {
		c = running
		return c.asAgent(func() (err error) {
			if dir, err = c.makeDir(path.Dir(name)); err != nil {
				return err
			}
			if info, err := statAt(dir, path.Base(name)); err == nil && info.Mode&unix.S_IFMT == unix.S_IFDIR {
				return &os.PathError{Op: "replace", Path: name, Err: unix.EISDIR}
			}
			temp, err = c.open(dir, tempName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
			return err
		})
	})
	if dir != nil {
		defer dir.Close()
	}
	if err != nil {
		return fileError(ctx, err, "written", name)
	}
	_, err = io.Copy(temp, contextReader{ctx, content})
	err = errors.Join(err, temp.Chmod(mode.Perm()), temp.Close())
	err = errors.Join(err, c.asAgent(func() error {
		if err != nil {
			return unix.Unlinkat(int(dir.Fd()), tempName, 0)
		}
		return unix.Renameat(int(dir.Fd()), tempName, int(dir.Fd()), path.Base(name))
	}))
	if err != nil {
		return fileError(ctx, err, "written", name)
	}
	return nil
}

// Download opens a file of the box.
func (d *Driver) Download(ctx context.Context, ref, name string) (io.ReadCloser, error) {
	b, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	name, err = boxPath(name)
	if err != nil {
		return nil, err
	}
	var file *os.File
	err = b.use(ctx, func(c *container) error {
		return c.asAgent(func() (err error) {
			// Do not block: a pipe in place of the file must not stop the server.
			file, err = c.open(c.root, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
			return err
		})
	})
	if err != nil {
		return nil, fileError(ctx, err, "read", name)
	}
	if !plain(file) {
		file.Close()
		return nil, fault.Newf(fault.Invalid, "name a regular file", "%s is not a regular file", name)
	}
	return file, nil
}

// plain reports whether a file is a regular file on a real file system. Files in /proc look regular, but reading one
// would query the kernel as the server.
func plain(f *os.File) bool {
	var st unix.Statfs_t
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || unix.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	return st.Type != unix.PROC_SUPER_MAGIC
}

// boxPath makes a path absolute in the box.
func boxPath(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) || strings.HasSuffix(name, "/") {
		return "", fault.Newf(fault.Invalid, "name a file, absolute or relative to the working tree", "%q is not the path of a file", name)
	}
	if !path.IsAbs(name) {
		name = sandbox.Workspace + "/" + name
	}
	return path.Clean(name), nil
}

// open opens a path as a process of the box would: the box's / is the root for every link and every "..", and the
// kernel's own links (/proc/…/root) are not followed, because they lead out of the box.
func (c *container) open(at *os.File, name string, flags int, mode uint32) (*os.File, error) {
	how := &unix.OpenHow{
		Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(int(at.Fd()), name, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN): // a rename raced with the lookup
		default:
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// makeDir opens a directory of the box, and creates it and its parents if necessary.
func (c *container) makeDir(name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY
	dir, err := c.open(c.root, name, flags, 0)
	if !errors.Is(err, unix.ENOENT) || name == "/" {
		return dir, err
	}
	parent, err := c.makeDir(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := unix.Mkdirat(int(parent.Fd()), path.Base(name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "make", Path: name, Err: err}
	}
	return c.open(c.root, name, flags, 0)
}

func statAt(dir *os.File, name string) (info unix.Stat_t, err error) {
	err = unix.Fstatat(int(dir.Fd()), name, &info, unix.AT_SYMLINK_NOFOLLOW)
	return info, err
}

// asAgent calls do with the file permissions of the box's user instead of the server's. It does so on a thread of its
// own, which ends afterwards, so that nothing else ever runs with these permissions or without the server's groups.
func (c *container) asAgent(do func() error) error {
	return as(c.who.hostUID, c.who.hostGID, do)
}

// as is asAgent for any user and group of a box.
func as(uid, gid uint32, do func() error) error {
	if !asRoot() {
		return do() // the server's user is the box's only user
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		result <- func() error {
			// Raw system calls, because they must change only this thread.
			if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
				return fmt.Errorf("drop groups: %w", errno)
			}
			gid, uid := int(gid), int(uid)
			_, _ = unix.SetfsgidRetGid(gid) // neither reports a failure, so check below
			_, _ = unix.SetfsuidRetUid(uid)
			nowGID, _ := unix.SetfsgidRetGid(-1)
			nowUID, _ := unix.SetfsuidRetUid(-1)
			if nowGID != gid || nowUID != uid {
				return errors.New("the server may not act as the box's user")
			}
			return do()
		}()
	}()
	return <-result
}

// contextReader ends a copy when ctx ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// fileError explains why a file could not be read or written.
func fileError(ctx context.Context, err error, done, name string) error {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return fault.Newf(fault.Invalid, "check the path", "there is no file %s in the sandbox", name).Because(err)
	case errors.Is(err, unix.EISDIR):
		return fault.Newf(fault.Invalid, "name a regular file", "%s is a directory in the sandbox", name).Because(err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS), errors.Is(err, unix.EXDEV):
		return fault.Newf(fault.Invalid, "choose a path below "+sandbox.Workspace+" or "+sandbox.Home, "%s cannot be %s by the sandbox's user", name, done).Because(err)
	}
	return readable(ctx, err, name+" could not be "+done)
}
