package dispatch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/turn"
)

// This file shows people the working tree of a thread's sandbox: its folders, its files and its changes. It never builds or
// starts a sandbox. It runs the sandbox's own programs, whose output may be false, so everything is limited.

const (
	// lookTime limits the listing of a folder or the comparison with the repository, and sendTime also the sending of a file.
	lookTime, sendTime = 20 * time.Second, 10 * time.Minute
	// maxListed limits the files that are listed, and maxListing what the sandbox prints to list them, in bytes.
	maxListed, maxListing = 1000, 1 << 20
	// MaxFileSent is the size of the largest file that [Dispatcher.ReadPath] sends, in bytes.
	MaxFileSent = 256 << 20
	// maxChangesShown limits a patch, in bytes.
	maxChangesShown = 4 << 20
	// maxSecret is the size of the longest form of a secret: an escaped character has up to six bytes.
	maxSecret = 6 * secret.MaxValue
	// maxChangedAt limits the times of files, which a program may set to anything: the end of the year 9999.
	maxChangedAt = 253402300799
)

// FileKind is the kind of a file.
type FileKind string

// The kinds of files.
const (
	RegularFile FileKind = "file"
	Folder      FileKind = "folder"
	Link        FileKind = "link"
	SpecialFile FileKind = "special" // a pipe, a socket or a device
)

// ListedFile is a file of a working tree.
type ListedFile struct {
	// Name is its name in its folder. In a name that is not UTF-8, U+FFFD stands for the other bytes.
	Name      string
	Kind      FileKind
	Size      int64
	ChangedAt time.Time
}

// Listing describes what is at a path of a working tree.
type Listing struct {
	// Path is where the path leads, relative to the working tree; "." is the tree itself.
	Path string
	// Kind is the kind of file at the path, after following links. Size is its size in bytes.
	Kind FileKind
	Size int64
	// Files are the files of a folder: folders first, then by name. More means that there are others.
	Files []ListedFile
	More  bool
}

// listScript does what locateScript does for the path $1, and then lists the files of a folder, each as its mode, size, time and
// path. Busybox's stat cannot end a record with NUL, so with busybox the list leaves out names with line breaks.
const listScript = `PATH=/usr/bin:/bin:$PATH; LC_ALL=C; export LC_ALL
` + locateScript + `; printf '\0'
[ -d "$1" ] || exit 0
cd -- "$1" 2>/dev/null && [ -r . ] || exit 3
if stat --printf= . 2>/dev/null; then
	find . ! -name . -prune -exec stat --printf '%f %s %Y %n\0' -- {} + 2>/dev/null
else
	find . ! -name . -prune ! -name '*
*' -exec stat -c '%f %s %Y %n' -- {} + 2>/dev/null | tr '\n' '\0'
fi
true # although a file may have been deleted meanwhile`

// unreadable is the exit code of listScript for a folder that the box's user may not read.
const unreadable = 3

// look calls do with the thread's running sandbox, which must be done within limit.
func (d *Dispatcher) look(ctx context.Context, scope db.Scope, threadID string, limit time.Duration, do func(context.Context, box) error) error {
	return d.boxes.Look(ctx, scope, threadID, func(h sandbox.Handle) error {
		b, err := d.boxOf(ctx, scope.House, h)
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if err = do(bounded, b); err != nil && bounded.Err() != nil && ctx.Err() == nil {
			err = fault.Newf(fault.Exhausted, "try again later, or look with a command in the thread", "the sandbox took more than %s", limit)
		}
		return err
	})
}

// ReadPath reads a path of the working tree of a thread's sandbox. It calls found with what is there. For a regular file, it then
// calls send with pieces of the content: the first most bytes, or the whole file if most is 0. It stops if a call fails. Secrets
// that commands of the sandbox receive are redacted. The path may be relative to the tree, and the sandbox resolves it. If it
// leads out of the tree, the error is a [fault.Invalid]. A whole file above [MaxFileSent] is a [fault.Exhausted]. If no sandbox
// is running, see [sandbox.Resolver.Look].
func (d *Dispatcher) ReadPath(ctx context.Context, scope db.Scope, threadID, name string, most int64, found func(Listing) error, send func([]byte) error) error {
	asked, err := boxPath(cmp.Or(name, "."))
	if err != nil {
		return err
	}
	return d.look(ctx, scope, threadID, sendTime, func(ctx context.Context, b box) error {
		l, f, err := b.list(ctx, asked)
		if err == nil && most == 0 && l.Kind == RegularFile && l.Size > MaxFileSent {
			err = tooLargeToSend(f)
		}
		if err == nil {
			err = found(l)
		}
		if err == nil && l.Kind == RegularFile {
			err = b.send(ctx, f, most, send)
		}
		return err
	})
}

// list describes what is at a path.
func (b box) list(ctx context.Context, asked string) (l Listing, f boxFile, err error) {
	ctx, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	out := &beginningOf{most: maxListing, full: stop}
	got, err := b.Exec(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", listScript, "sh", asked}, Dir: "/", Stdout: out})
	switch {
	case err == nil || out.cut:
		return b.listing(asked, out, got.ExitCode)
	case ctx.Err() != nil:
		err = fault.Newf(fault.Exhausted, "try again later, or look with a command in the thread", "the sandbox took more than %s", lookTime)
	}
	return l, f, err
}

// listing parses the output of listScript.
func (b box) listing(asked string, out *beginningOf, exitCode int) (l Listing, f boxFile, err error) {
	located, rest, _ := strings.Cut(out.String(), "\x00")
	stat, records, _ := strings.Cut(rest, "\x00")
	closed := exitCode == unreadable
	if closed || out.cut {
		exitCode = 0
	}
	f, err = parseLocated(asked, located+"\x00"+stat, exitCode)
	if err != nil {
		return l, f, err
	}
	if l.Path, err = b.inTree(f); err != nil {
		return l, f, err
	}
	if closed {
		return l, f, fault.Newf(fault.Precondition, "change its mode with a command", "the folder %s cannot be read", turn.Name(l.Path))
	}
	l.Kind, l.Size = SpecialFile, f.size
	switch f.kind {
	case regularFile:
		l.Kind = RegularFile
	case directory:
		l.Kind = Folder
		l.Files, l.More = b.listed(records, out.cut)
	}
	return l, f, nil
}

// inTree returns the path of a file relative to the working tree. The file must exist.
func (b box) inTree(f boxFile) (string, error) {
	inside, below := strings.CutPrefix(f.path, sandbox.Workspace+"/")
	switch {
	case f.path == sandbox.Workspace:
		inside = "."
	case !below:
		return "", fault.Newf(fault.Invalid, "look at it with a command in the thread", "%s leads out of the working tree", turn.Name(f.asked))
	}
	if !f.exists {
		return "", fault.Newf(fault.NotFound, "list the folder that it was in", "there is no file %s", turn.Name(f.asked))
	}
	return b.shown(strings.ToValidUTF8(inside, "\uFFFD")), nil
}

// listed parses the records of listScript. If they were cut, the last one may be a part.
func (b box) listed(records string, cut bool) (files []ListedFile, more bool) {
	list := strings.Split(records, "\x00")
	for _, record := range list[:len(list)-1] {
		fields := strings.SplitN(record, " ", 4)
		if len(fields) != 4 || !strings.HasPrefix(fields[3], "./") {
			continue
		}
		mode, _ := strconv.ParseUint(fields[0], 16, 32)
		f := ListedFile{Name: b.shown(strings.ToValidUTF8(fields[3][2:], "\uFFFD")), Kind: kindOfMode(mode)}
		f.Size, _ = strconv.ParseInt(fields[1], 10, 64)
		changed, _ := strconv.ParseInt(fields[2], 10, 64)
		f.ChangedAt = time.Unix(min(max(changed, 0), maxChangedAt), 0)
		files = append(files, f)
	}
	sort.Slice(files, func(i, j int) bool {
		if x, y := files[i].Kind == Folder, files[j].Kind == Folder; x != y {
			return x
		}
		return files[i].Name < files[j].Name
	})
	if len(files) > maxListed {
		return files[:maxListed], true
	}
	return files, cut
}

// kindOfMode returns the kind of a file by the mode that stat shows.
func kindOfMode(mode uint64) FileKind {
	switch mode & 0o170000 {
	case 0o100000:
		return RegularFile
	case 0o040000:
		return Folder
	case 0o120000:
		return Link
	}
	return SpecialFile
}

func tooLargeToSend(f boxFile) error {
	return fault.Newf(fault.Exhausted, "copy it with arbe cp", "%s is larger than %d MiB", turn.Name(f.asked), MaxFileSent>>20)
}

// bounded sends bytes until a limit, or until sending fails.
type bounded struct {
	left   int64
	send   func([]byte) error
	failed error
}

func (b *bounded) write(p []byte) {
	p = p[:min(int64(len(p)), b.left)]
	b.left -= int64(len(p))
	if b.failed == nil && len(p) > 0 {
		b.failed = b.send(p)
	}
}

// send sends a file; see [Dispatcher.ReadPath]. The file may still be growing.
func (b box) send(ctx context.Context, f boxFile, most int64, send func([]byte) error) error {
	file, err := b.Download(ctx, f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	defer context.AfterFunc(ctx, func() { file.Close() })() // a provider that sends nothing must not hold up the caller
	sent := &bounded{left: min(cmp.Or(most, MaxFileSent), MaxFileSent), send: send}
	out := b.redactor.Stream(sent.write)
	// Read beyond the last byte to send, because the redactor finds only complete secrets.
	from, read := io.LimitReader(file, sent.left+maxSecret), int64(0)
	for piece := make([]byte, 64<<10); err == nil && sent.failed == nil; {
		var n int
		n, err = from.Read(piece)
		_, _ = out.Write(piece[:n])
		read += int64(n)
	}
	out.Flush()
	switch {
	case sent.failed != nil:
		return sent.failed
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.Is(err, io.EOF):
		return err
	case most == 0 && read > MaxFileSent:
		return tooLargeToSend(f)
	}
	return nil
}

// TreeChanges returns the changes in the running sandbox of a thread; see [sandbox.Resolver.Changes] and [sandbox.Resolver.Look].
// Secrets that commands of the sandbox receive are redacted.
func (d *Dispatcher) TreeChanges(ctx context.Context, scope db.Scope, threadID string, uncommitted bool) (c sandbox.Changes, err error) {
	err = d.look(ctx, scope, threadID, lookTime, func(ctx context.Context, b box) error {
		c, err = d.boxes.Changes(ctx, scope, b.Handle, uncommitted, maxChangesShown)
		c.Patch = b.redactor.Bytes(c.Patch)
		return err
	})
	return c, err
}
