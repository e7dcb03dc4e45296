package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// cp copies files between this machine and a sandbox.
func cp(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files to or from a thread's sandbox",
		Long: "Copy a file, or a directory with its contents. One of FROM and TO is THREAD:PATH, or :PATH for the thread in\n" +
			"$ARBE_THREAD; the other is a path here. A relative PATH is below the directory in which commands start. If TO is a\n" +
			"directory that exists, the copy is put into it. Files that exist are replaced.\n" +
			"\n" +
			"Links are copied as links and never followed. From a sandbox, links that lead out of the copied directory,\n" +
			"and anything but files, directories and links, are left out. The thread shows the command that copied, and not\n" +
			"what it copied.",
		Example: "  arbe cp th4w7q2m9x:dist ./dist\n" +
			"  arbe cp notes.md th4w7q2m9x:docs/",
		Args: takes(2, 2, "two paths, one of them as THREAD:PATH"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			from, fromIs := inSandbox(args[0])
			to, toIs := inSandbox(args[1])
			if fromIs == toIs {
				return fault.New(fault.Invalid, "one path must be in a sandbox, and the other one here", "write one as THREAD:PATH; write a path here that has a colon as ./a:b")
			}
			if fromIs {
				return a.copyFrom(ctx, c, from, args[1])
			}
			return a.copyTo(ctx, c, args[0], to)
		}),
	}
}

// remotePath is a path in the sandbox of a thread.
type remotePath struct{ thread, path string }

// inSandbox parses THREAD:PATH. A local path begins with a dot or a slash, or has no colon.
func inSandbox(arg string) (remotePath, bool) {
	thread, at, found := strings.Cut(arg, ":")
	if !found || strings.ContainsAny(thread, "/.") {
		return remotePath{}, false
	}
	if at == "" {
		at = "."
	}
	return remotePath{thread, at}, true
}

// runFor runs a program that must succeed in the sandbox of a thread.
func (a *app) runFor(ctx context.Context, c *arbe.Client, thread string, argv []string, opts ...arbe.RunOption) (err error) {
	req := &arbev1.RunCommandRequest{Id: uuid.NewString(), What: &arbev1.RunCommandRequest_Argv{Argv: &arbev1.Argv{Args: argv}}}
	if req.ThreadId, err = a.threadID(ctx, c, thread); err != nil {
		return err
	}
	result, err := c.Run(ctx, req, opts...)
	if err != nil {
		if result == nil && ctx.Err() != nil { // the person no longer waits for it
			(&execution{app: a, client: c, req: req}).cancelUnread(ctx)
		}
		return err
	}
	switch {
	case result.Error != "":
		return fault.New(fault.Precondition, result.Error, "try again")
	case result.ExitCode != 0:
		said := strings.TrimSpace(entry.Printable(result.Output))
		return fault.Newf(fault.Precondition, "check the path, and that its directory can be written", "the sandbox could not copy (exit code %d): %s", result.ExitCode, said)
	}
	return nil
}

// send prints a file or a directory of the sandbox as an archive.
const send = `cd -- "$(dirname -- "$1")" && exec tar -cf - -- "$(basename -- "$1")"`

// copyFrom copies from a sandbox to a path here.
func (a *app) copyFrom(ctx context.Context, c *arbe.Client, from remotePath, to string) error {
	base := path.Base(path.Clean(from.path))
	if base == ".." || base == "/" {
		return fault.Newf(fault.Invalid, "name a file or a directory", "%s cannot be copied as a whole", from.path)
	}
	into, name := filepath.Dir(filepath.Clean(to)), filepath.Base(filepath.Clean(to))
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		if into, name = to, base; base == "." {
			name = "."
		}
	} else if base == "." {
		if err := os.Mkdir(to, 0o755); err != nil {
			return fault.Newf(fault.Invalid, "name a directory whose parent exists", "%s cannot be made", to).Because(err)
		}
		into, name = to, "."
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return fault.Newf(fault.Invalid, "name a path in a directory that exists", "%s cannot be written to", into).Because(err)
	}
	defer root.Close()
	archive, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := (&unpacking{root: root, from: base, to: name, skipped: func(what string) { a.say("arbe: left out: %s", entry.Printable(what)) }}).run(archive)
		archive.CloseWithError(err) // otherwise the rest, which is padding, waits for a reader
		unpacked <- err
	}()
	err = a.runFor(ctx, c, from.thread, []string{"/bin/sh", "-c", send, "send", from.path}, arbe.WithOutput(w, nil), arbe.Unlogged())
	w.CloseWithError(err) // a nil error means the end
	failed := <-unpacked
	if _, unwritten := errors.AsType[*arbe.WriteError](err); unwritten && failed != nil {
		return fault.New(fault.Unavailable, "the copy cannot be written here: "+failed.Error(), "check the path and the space there")
	}
	if err == nil && failed != nil {
		err = fault.New(fault.Unavailable, "the copy is not complete: "+failed.Error(), "copy it again")
	}
	return err
}

// unpacking writes an archive below a root. The archive comes from a sandbox, so it may contain anything.
type unpacking struct {
	root     *os.Root
	from, to string // the name of the copy, there and here
	skipped  func(what string)
}

func (u *unpacking) run(archive io.Reader) error {
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, archive)
			return err
		}
		if err != nil {
			return err
		}
		if err := u.entry(h, r); err != nil {
			return err
		}
	}
}

// entry writes one entry.
func (u *unpacking) entry(h *tar.Header, content io.Reader) error {
	name := path.Clean(h.Name)
	rest, found := strings.CutPrefix(name+"/", u.from+"/")
	if u.from == "." {
		rest, found = name, filepath.IsLocal(name)
	}
	at := path.Join(filepath.ToSlash(u.to), rest)
	if !found || !filepath.IsLocal(filepath.FromSlash(at)) || u.throughLink(at) {
		u.skipped(h.Name)
		return nil
	}
	mode := fs.FileMode(h.Mode).Perm() // without setuid and the like
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.root.Mkdir(at, mode|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case tar.TypeReg:
		return u.file(at, mode, content)
	case tar.TypeSymlink:
		// A link must stay inside the copy, so that it does not lead later users of the copy elsewhere either.
		if !u.staysInside(at, h.Linkname) {
			u.skipped(h.Name + " -> " + h.Linkname)
			return nil
		}
		_ = u.root.Remove(at) // it may not exist
		return u.root.Symlink(h.Linkname, at)
	case tar.TypeLink:
		from := path.Join(filepath.ToSlash(u.to), strings.TrimPrefix(strings.TrimPrefix(path.Clean(h.Linkname), u.from), "/"))
		source, err := u.written(from)
		if err != nil {
			u.skipped(h.Name)
			return nil
		}
		defer source.Close()
		return u.file(at, mode, source)
	}
	u.skipped(h.Name)
	return nil
}

// holds reports whether a path is one of the copy.
func (u *unpacking) holds(at string) bool {
	to := filepath.ToSlash(u.to)
	return filepath.IsLocal(filepath.FromSlash(at)) && (to == "." || at == to || strings.HasPrefix(at, to+"/"))
}

// throughLink reports whether a directory on the way to a path of the copy is a link. What is written there would be
// somewhere else.
func (u *unpacking) throughLink(at string) bool {
	for dir := path.Dir(at); dir != "." && dir != filepath.ToSlash(u.to); dir = path.Dir(dir) {
		if info, err := u.root.Lstat(dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// staysInside reports whether a link at a path leads to a path of the copy. It may not go up after a name, because the name
// may be that of another link, and ".." is then not the directory that it seems to be.
func (u *unpacking) staysInside(at, target string) bool {
	named := false
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && named {
			return false
		}
		named = named || part != ".." && part != "." && part != ""
	}
	return !path.IsAbs(target) && u.holds(path.Join(path.Dir(at), target))
}

// written opens a file that was written before.
func (u *unpacking) written(at string) (*os.File, error) {
	info, err := u.root.Lstat(at)
	if err != nil {
		return nil, err
	}
	if !u.holds(at) || u.throughLink(at) || !info.Mode().IsRegular() {
		return nil, fs.ErrInvalid
	}
	return u.root.Open(at)
}

// file replaces anything at a path by a file, so that it writes neither through a link nor into a pipe.
func (u *unpacking) file(at string, mode fs.FileMode, content io.Reader) error {
	if info, err := u.root.Lstat(at); err == nil && !info.IsDir() {
		if err := u.root.Remove(at); err != nil {
			return err
		}
	}
	f, err := u.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// receiveFile writes the input to the path $1, or into it as $2 if it is a directory, with the mode $3. The file appears only
// when it is complete. Until then, a note names the unfinished file, so that the next call removes what a killed one left. The
// note's name is the id and the start time of its process, because ids are reused. receiveDirectory writes an archive of a
// directory's contents, without notes.
const (
	receiveFile = `set -e; t=$1; if [ -d "$t" ]; then t=${t%/}/$2; fi; mode=$3
process() { read -r stat <"/proc/$1/stat" && set -- "$1" ${stat##*) } && echo "$1-${21}"; } 2>/dev/null
notes=${TMPDIR:-/tmp}/.arbe-cp; mkdir -p -- "$notes" || true
for note in "$notes"/*; do
	by=${note##*/}
	if [ ! -f "$note" ] || [ "$(process "${by%%-*}")" = "$by" ]; then continue; fi
	left=$(cat "$note") && case ${left##*/} in .arbe-cp-*) rm -f -- "$left";; esac
	rm -f -- "$note"
done
n=$(dirname -- "$t"); n=$(cd -- "$n" && pwd)/.arbe-cp-$$; note=$notes/$(process $$ || echo $$)
trap 'rm -f -- "$n" "$note"' EXIT; trap 'exit 143' HUP INT TERM
printf '%s' "$n" >"$note" || true
cat >"$n"; chmod "$mode" "$n"; mv -f -- "$n" "$t"`
	receiveDirectory = `set -e; t=$1; if [ -d "$t" ]; then t=${t%/}/$2; fi; mkdir -p -- "$t"; exec tar -C "$t" -xf -`
)

// copyTo copies a path here to a sandbox.
func (a *app) copyTo(ctx context.Context, c *arbe.Client, from string, to remotePath) error {
	info, err := os.Stat(from)
	if err != nil {
		return fault.Newf(fault.Invalid, "name a file or a directory that you may read", "cannot read %s", from).Because(err)
	}
	absolute, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	name := filepath.Base(absolute)
	switch {
	case info.Mode().IsRegular():
		f, err := os.Open(from)
		if err != nil {
			return fault.Newf(fault.Invalid, "name a file that you may read", "cannot read %s", from).Because(err)
		}
		defer f.Close()
		return a.runFor(ctx, c, to.thread, []string{"/bin/sh", "-c", receiveFile, "receive", to.path, name, fmt.Sprintf("%o", info.Mode().Perm())}, arbe.WithStdin(f))
	case info.IsDir():
		archive, w := io.Pipe()
		go func() { w.CloseWithError(pack(w, from)) }()
		defer archive.Close()
		failing := &failingReader{from: archive}
		err := a.runFor(ctx, c, to.thread, []string{"/bin/sh", "-c", receiveDirectory, "receive", to.path, name}, arbe.WithStdin(failing))
		if failing.failed != nil {
			return fault.New(fault.Unavailable, "not all of it could be read: "+failing.failed.Error(), "copy it again")
		}
		return err
	}
	return fault.Newf(fault.Invalid, "name a file or a directory", "%s is neither", from)
}

// failingReader keeps the error of a reader.
type failingReader struct {
	from   io.Reader
	failed error
}

func (r *failingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && err != io.EOF {
		r.failed = err
	}
	return n, err
}

// pack writes an archive of a directory's contents.
func pack(to io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	w := tar.NewWriter(to)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		target := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if target, err = root.Readlink(name); err != nil {
				return err
			}
		case !info.Mode().IsRegular() && !info.IsDir():
			return nil
		}
		h, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		h.Name, h.Uname, h.Gname, h.Uid, h.Gid = name, "", "", 0, 0
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyN(w, f, info.Size()) // a growing file is copied at its first size
		return err
	})
	return errors.Join(err, w.Close())
}
