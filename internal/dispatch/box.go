package dispatch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/turn"
)

// This file gives the tools of bots access to the files of a thread's sandbox. Paths are resolved in the box, so nothing in a
// repository (links, pipes, devices) can lead to a file of the server or block the server: only regular files are opened, and
// every access is limited in bytes and time.

const (
	// boxTime limits one access to a sandbox's files, not counting the time to build the sandbox.
	boxTime = 30 * time.Second
	// maxFileRead limits how much of a file is read to show it, and maxFileEdited the size of a file to edit.
	maxFileRead, maxFileEdited = 8 << 20, 2 << 20
	// maxPath limits a path, in bytes.
	maxPath = 4096
	// newFileMode is the mode of new files.
	newFileMode = fs.FileMode(0o644)
)

// box gives the file tools access to a thread's sandbox.
type box struct {
	sandbox.Handle
	// redactor removes the secrets that the sandbox's commands receive: a command may have written one into a file.
	redactor *secret.Redactor
}

// inBox calls do with the sandbox of a call's thread, building it first if there is none. If only another machine can reach
// it, the turn moves there: the error is a [*turn.ElsewhereError].
func (d *Dispatcher) inBox(ctx context.Context, c turn.Call, do func(context.Context, box) error) error {
	err := d.boxes.Use(ctx, c.Scope, c.Thread, "", func(h sandbox.Handle) error {
		b, err := d.boxOf(ctx, c.Scope.House, h)
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, boxTime)
		defer cancel()
		err = do(bounded, b)
		if err != nil && bounded.Err() != nil && ctx.Err() == nil {
			err = fault.Newf(fault.Exhausted, "try something smaller, or use run_command", "the sandbox took more than %s", boxTime)
		}
		return err
	})
	away, ok := errors.AsType[*sandbox.OtherMachineError](err)
	if !ok {
		return err
	}
	absent, err := d.boxes.MachineAway(ctx, away.Machine)
	switch {
	case err != nil:
		return err
	case absent:
		return fault.New(fault.Precondition, "the machine of the thread's sandbox is offline", "go on without its files, or ask again when its server is back")
	}
	return &turn.ElsewhereError{Machine: away.Machine}
}

// boxOf returns a sandbox and the redactor for its files.
func (d *Dispatcher) boxOf(ctx context.Context, house string, h sandbox.Handle) (box, error) {
	b := box{Handle: h}
	if len(h.Secrets()) == 0 || d.config.Secrets == nil {
		return b, nil
	}
	received, err := d.config.Secrets.Receive(ctx, house, h.Secrets())
	b.redactor = received.Redactor
	return b, err
}

// shown redacts a text of the sandbox.
func (b box) shown(text string) string {
	if b.redactor == nil {
		return text
	}
	return b.redactor.String(text)
}

// run runs a program and returns the beginning of its output.
func (b box) run(ctx context.Context, most int, argv ...string) (string, sandbox.Result, error) {
	out := &beginningOf{most: most}
	got, err := b.Exec(ctx, sandbox.Command{Argv: argv, Stdout: out, Timeout: boxTime})
	return out.String(), got, err
}

// beginningOf keeps the first bytes written to it. It accepts and drops the rest, so that the writer can finish.
type beginningOf struct {
	bytes.Buffer
	most int
	// cut reports that bytes were dropped. full, if not nil, is called then.
	cut  bool
	full func()
}

func (w *beginningOf) Write(p []byte) (int, error) {
	room := w.most - w.Len()
	_, _ = w.Buffer.Write(p[:min(len(p), room)])
	if len(p) > room && !w.cut {
		w.cut = true
		if w.full != nil {
			w.full()
		}
	}
	return len(p), nil
}

// boxFile is a file of a sandbox.
type boxFile struct {
	// asked is the requested path, and path what it resolves to, both absolute.
	asked, path string
	// exists reports whether something is at path, and kind says what.
	exists bool
	kind   string
	mode   fs.FileMode
	size   int64
}

// Kinds of files. Other kinds are in stat's own words.
const regularFile, directory = "a regular file", "a directory"

// locateScript prints the path that a path resolves to, and the kind of file there.
const locateScript = `readlink -fn -- "$1"; printf '\0'; stat -L -c '%f %s' -- "$1" 2>/dev/null; true`

// boxPath returns an absolute path in the sandbox. Only the sandbox can resolve it.
func boxPath(name string) (string, error) {
	switch next := "give a path, absolute or relative to " + sandbox.Workspace; {
	case name == "" || strings.ContainsRune(name, 0):
		return "", fault.New(fault.Invalid, "the path is empty or has a NUL byte", next)
	case len(name) > maxPath:
		return "", fault.Newf(fault.Invalid, next, "the path has more than %d bytes", maxPath)
	}
	if !path.IsAbs(name) {
		name = sandbox.Workspace + "/" + name
	}
	return name, nil // not cleaned, because a/.. differs if a is a link
}

// locate finds a file. The sandbox resolves the path, so that an edit applies to the target of a link.
func (b box) locate(ctx context.Context, name string) (f boxFile, err error) {
	if f.asked, err = boxPath(name); err != nil {
		return f, err
	}
	out, got, err := b.run(ctx, 3*maxPath, "/bin/sh", "-c", locateScript, "sh", f.asked)
	if err != nil {
		return f, err
	}
	return parseLocated(f.asked, out, got.ExitCode)
}

// parseLocated parses the output of locateScript.
func parseLocated(asked, out string, exitCode int) (f boxFile, err error) {
	f.asked = asked
	resolved, stat, found := strings.Cut(out, "\x00")
	if exitCode != 0 || !found {
		return f, fault.New(fault.Precondition, "the sandbox has no sh, readlink and stat, which this needs", "use run_command, or another image")
	}
	if f.path = resolved; f.path == "" {
		f.path = path.Clean(f.asked)
	}
	hex, size, _ := strings.Cut(strings.TrimSpace(stat), " ")
	mode, err := strconv.ParseUint(hex, 16, 32)
	if err != nil { // nothing is there
		f.mode = newFileMode
		return f, nil
	}
	f.exists, f.mode = true, fs.FileMode(mode&0o777)
	f.size, _ = strconv.ParseInt(size, 10, 64)
	switch mode & 0o170000 {
	case 0o100000:
		f.kind = regularFile
	case 0o040000:
		f.kind = directory
	case 0o010000:
		f.kind = "a pipe"
	case 0o140000:
		f.kind = "a socket"
	default:
		f.kind = "a device"
	}
	return f, nil
}

// read returns a regular file's first bytes, and whether there are more.
func (b box) read(ctx context.Context, f boxFile, most int64) (content []byte, more bool, err error) {
	switch {
	case !f.exists:
		return nil, false, fault.Newf(fault.Invalid, "look for it with search_files", "there is no file %s", turn.Name(f.asked))
	case f.kind == directory:
		return nil, false, fault.Newf(fault.Invalid, "list it with search_files", "%s is a directory", turn.Name(f.asked))
	case f.kind != regularFile:
		return nil, false, fault.Newf(fault.Invalid, "name a regular file", "%s is %s", turn.Name(f.asked), f.kind)
	}
	return b.download(ctx, f.path, most)
}

// download returns the first bytes of a file, which may still be growing.
func (b box) download(ctx context.Context, name string, most int64) (content []byte, more bool, err error) {
	file, err := b.Download(ctx, name)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	defer context.AfterFunc(ctx, func() { file.Close() })() // a provider that sends nothing must not hold up the turn
	content, err = io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if int64(len(content)) > most {
		return content[:most], true, err
	}
	return content, false, err
}

const (
	// instructionsFile has the instructions for work in a workspace. maxInstructions limits how much of it a bot reads, in
	// bytes.
	instructionsFile = sandbox.Workspace + "/AGENTS.md"
	maxInstructions  = 16 << 10
)

// instructions returns the AGENTS.md of a thread's sandbox; empty if it has none, or if this server cannot reach the sandbox.
// It starts nothing.
func (d *Dispatcher) instructions(ctx context.Context, c turn.Call) string {
	th, err := d.threads.Get(ctx, c.Scope, c.Thread)
	if err != nil || th.Sandbox == "" {
		return ""
	}
	h, err := d.boxes.Handle(ctx, c.Scope, th.Sandbox)
	if err != nil {
		return ""
	}
	b, err := d.boxOf(ctx, c.Scope.House, h)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	content, more, err := b.download(ctx, instructionsFile, maxInstructions)
	if err != nil || isBinary(content) {
		return ""
	}
	if more {
		content = wholeLines(content)
	}
	text := strings.TrimSpace(b.shown(strings.ToValidUTF8(string(content), "")))
	if more {
		text += "\n(it is longer; read_file has the rest)"
	}
	return text
}

// wholeLines drops the last line of a text that was cut off, because the cut may have left half of a secret, which redaction
// would miss.
func wholeLines(content []byte) []byte { return content[:bytes.LastIndexByte(content, '\n')+1] }

// isBinary reports whether a file is not text.
func isBinary(content []byte) bool {
	start := content[:min(len(content), 8<<10)]
	if bytes.IndexByte(start, 0) >= 0 {
		return true
	}
	invalid := 0
	for rest := start; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 && len(rest) >= utf8.UTFMax {
			invalid++
		}
		rest = rest[size:]
	}
	return invalid > len(start)/20
}

// inSandbox marks a tool that uses the thread's sandbox. The first such call of a turn also returns the workspace's
// instructions.
func (d *Dispatcher) inSandbox(t turn.Tool) turn.Tool {
	t.Sandbox = true
	run := t.Run
	t.Run = func(ctx context.Context, c turn.Call) (turn.Result, error) {
		got, err := run(ctx, c)
		if err == nil && c.Uninstructed {
			got.Instructions = d.instructions(ctx, c)
		}
		return got, err
	}
	return acts(runsAsBot, t)
}
