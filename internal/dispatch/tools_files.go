package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/turn"
)

const (
	// defaultLines is the number of lines of a file that are shown, and maxLineShown limits each line, in bytes.
	defaultLines, mostLines, maxLineShown = 1000, 5000, 2000
	// maxDiffShown limits the diff in a result, in bytes. A longer diff becomes an artifact.
	maxDiffShown = 32 << 10
	// maxMatches limits the result of a search, in bytes.
	maxMatches = 32 << 10
)

// fileTools returns the tools that read and write files of the thread's sandbox.
func (d *Dispatcher) fileTools() []turn.Tool {
	return []turn.Tool{
		d.inSandbox(tool(entry.ReadFileTool, `Reads a text file of this thread's sandbox. Each line comes with its number and a tab, which are not part of the
file. Relative paths begin in /workspace.`,
			`{"type":"object","properties":{
			"path":{"type":"string","minLength":1},
			"offset":{"type":"integer","minimum":1,"description":"the first line to read; leave it out for the beginning"},
			"limit":{"type":"integer","minimum":1,"maximum":5000,"description":"how many lines; leave it out for 1000"}},
			"required":["path"],"additionalProperties":false}`, d.readFileForBot)),
		d.inSandbox(resultTool(entry.WriteFileTool, `Writes a file of this thread's sandbox, and replaces it if it exists. Directories are created. To change a part of
a file, use edit_file.`,
			`{"type":"object","properties":{
			"path":{"type":"string","minLength":1},
			"content":{"type":"string","maxLength":1048576}},"required":["path","content"],"additionalProperties":false}`, d.writeFileForBot)),
		d.inSandbox(resultTool(entry.EditFileTool, `Replaces a text in a file of this thread's sandbox. old_text must be in the file exactly once, as it is there with all
spaces and line breaks; add lines around it to make it unique, or set replace_all.`,
			`{"type":"object","properties":{
			"path":{"type":"string","minLength":1},
			"old_text":{"type":"string","minLength":1,"maxLength":1048576},
			"new_text":{"type":"string","maxLength":1048576},
			"replace_all":{"type":"boolean"}},"required":["path","old_text","new_text"],"additionalProperties":false}`, d.editFileForBot)),
		d.inSandbox(tool(entry.SearchFilesTool, `Searches files of this thread's sandbox, without .git and node_modules. With a pattern it returns the lines that match
it; with only a name, the files with such a name.`,
			`{"type":"object","properties":{
			"pattern":{"type":"string","minLength":1,"maxLength":1000,"description":"an extended regular expression (grep -E), for one line"},
			"name":{"type":"string","minLength":1,"maxLength":200,"description":"a file name with wildcards, such as *.go"},
			"path":{"type":"string","minLength":1,"description":"a directory or a file; leave it out for /workspace"},
			"ignore_case":{"type":"boolean"}},"additionalProperties":false}`, d.searchFilesForBot)),
	}
}

type readFileArguments struct {
	Path   string `json:"path"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

func (d *Dispatcher) readFileForBot(ctx context.Context, c turn.Call, a readFileArguments) (text string, err error) {
	err = d.inBox(ctx, c, func(ctx context.Context, b box) error {
		f, err := b.locate(ctx, a.Path)
		if err != nil {
			return err
		}
		content, more, err := b.read(ctx, f, maxFileRead)
		if err != nil {
			return err
		}
		if isBinary(content) {
			text = fmt.Sprintf("%s is a binary file of %d bytes (%s)", turn.Name(f.asked), max(f.size, int64(len(content))), http.DetectContentType(content))
			return nil
		}
		if more {
			content = wholeLines(content)
		}
		text = numbered(b.shown(string(content)), a, more)
		return nil
	})
	return text, err
}

// numbered returns the requested lines of a text with their numbers. more reports that the file is longer than the text.
func numbered(text string, a readFileArguments, more bool) string {
	first, limit := max(a.Offset, 1), min(cmp.Or(a.Limit, defaultLines), mostLines)
	text = strings.ToValidUTF8(text, "\uFFFD")
	total := countLines(text)
	switch {
	case total == 0:
		return "(the file is empty)"
	case first > total:
		return fmt.Sprintf("(the file has %d lines)", total)
	}
	var out strings.Builder
	n, last := 0, 0
	for line := range strings.Lines(text) {
		if n++; n < first {
			continue
		}
		if n >= first+limit || out.Len() > command.PeekMost-maxLineShown {
			break
		}
		line = shortLine(strings.TrimRight(line, "\r\n"))
		last = n
		fmt.Fprintf(&out, "%6d\t%s\n", n, line)
	}
	switch {
	case last < total:
		fmt.Fprintf(&out, "(lines %d to %d of %d; read on with offset %d)", first, last, total, last+1)
	case more:
		fmt.Fprintf(&out, "(the file is longer than %d MiB; see the rest with run_command, for example tail or sed -n)", maxFileRead>>20)
	}
	return out.String()
}

func countLines(text string) int {
	total := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		total++
	}
	return total
}

// shortLine returns the beginning of a line that is too long to be shown.
func shortLine(line string) string {
	if len(line) <= maxLineShown {
		return line
	}
	return entry.Clip(line, maxLineShown) + fmt.Sprintf(" (the line has %d bytes)", len(line))
}

type writeFileArguments struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func (d *Dispatcher) writeFileForBot(ctx context.Context, c turn.Call, a writeFileArguments) (turn.Result, error) {
	return d.changeFile(ctx, c, a.Path, func(f boxFile, _ []byte) (string, string, error) {
		what := "wrote %s (%d bytes)"
		if f.exists {
			what = "replaced %s (%d bytes)"
		}
		return a.Content, fmt.Sprintf(what, turn.Name(f.asked), len(a.Content)), nil
	})
}

type editFileArguments struct {
	Path string `json:"path"`
	Old  string `json:"old_text"`
	New  string `json:"new_text"`
	All  bool   `json:"replace_all"`
}

func (d *Dispatcher) editFileForBot(ctx context.Context, c turn.Call, a editFileArguments) (turn.Result, error) {
	return d.changeFile(ctx, c, a.Path, func(f boxFile, old []byte) (string, string, error) {
		name := turn.Name(f.asked)
		n := strings.Count(string(old), a.Old)
		switch {
		case !f.exists:
			return "", "", fault.Newf(fault.Invalid, "look for it with search_files, or write it with write_file", "there is no file %s", name)
		case a.Old == a.New:
			return "", "", fault.New(fault.Invalid, "old_text and new_text are the same", "give a new_text that differs from old_text")
		case n == 0:
			return "", "", fault.Newf(fault.Invalid, "read the file, and copy the text exactly", "old_text is not in %s", name)
		case n > 1 && !a.All:
			return "", "", fault.Newf(fault.Invalid, "add lines around it until it is unique, or set replace_all", "old_text is in %s %d times", name, n)
		case len(old)+n*(len(a.New)-len(a.Old)) > maxFileEdited: // checked before it is built
			return "", "", tooLarge(name)
		}
		places := "1 place"
		if n > 1 {
			places = strconv.Itoa(n) + " places"
		}
		return strings.ReplaceAll(string(old), a.Old, a.New), fmt.Sprintf("edited %s in %s", name, places), nil
	})
}

func tooLarge(name string) error {
	return fault.Newf(fault.Exhausted, "change it with run_command", "%s is or becomes larger than the %d MiB that this tool changes", name, maxFileEdited>>20)
}

// changeFile replaces a file's content by the result of change, and keeps its mode. what describes the change in words. A
// repeated call recognizes its first attempt by its id, and does not change the file again.
func (d *Dispatcher) changeFile(ctx context.Context, c turn.Call, name string, change fileChange) (result turn.Result, err error) {
	err = d.inBox(ctx, c, func(ctx context.Context, b box) (err error) {
		result, err = d.changeIn(ctx, c, b, name, change)
		return err
	})
	if err != nil {
		return turn.Result{}, err
	}
	return result, nil
}

// fileChange returns the new content of a file, and describes the change in words.
type fileChange func(f boxFile, old []byte) (text, what string, err error)

// changeIn is changeFile in a sandbox.
func (d *Dispatcher) changeIn(ctx context.Context, c turn.Call, b box, name string, change fileChange) (turn.Result, error) {
	f, err := b.locate(ctx, name)
	if err != nil {
		return turn.Result{}, err
	}
	unlock, err := d.files.lock(ctx, b.ID+"\x00"+f.path)
	if err != nil {
		return turn.Result{}, err
	}
	defer unlock()
	old, before, err := b.original(ctx, f)
	if err != nil {
		return turn.Result{}, err
	}
	if result, done, err := d.repeated(ctx, c, f, before); done || err != nil {
		return result, err
	}
	text, what, err := change(f, old)
	if err != nil {
		return turn.Result{}, err
	}
	if len(text) > maxFileEdited {
		return turn.Result{}, tooLarge(turn.Name(f.asked))
	}
	result := d.changed(ctx, c, b, f, string(old), text, what)
	if err := d.recordEdit(ctx, c, f.path, before, hashOf([]byte(text)), result); err != nil {
		return turn.Result{}, err
	}
	return result, b.Upload(ctx, f.path, f.mode, strings.NewReader(text))
}

// original returns the content of a file and its hash; nil if the file does not exist.
func (b box) original(ctx context.Context, f boxFile) (old, hash []byte, err error) {
	if !f.exists {
		return nil, nil, nil
	}
	old, more, err := b.read(ctx, f, maxFileEdited)
	if err != nil {
		return nil, nil, err
	} else if more {
		return nil, nil, tooLarge(turn.Name(f.asked))
	}
	return old, hashOf(old), nil
}

// repeated returns the result of a call that was interrupted after it changed the file. done is false if it has not
// changed it.
func (d *Dispatcher) repeated(ctx context.Context, c turn.Call, f boxFile, now []byte) (result turn.Result, done bool, err error) {
	edit, found, err := d.editOf(ctx, c)
	switch {
	case err != nil:
		return result, false, err
	case found && edit.Path != storable(f.path):
		return result, false, fault.New(fault.Precondition, "this call was interrupted, and its path now leads elsewhere", "read the file before you change it again")
	case found && bytes.Equal(edit.After, now):
		err = json.Unmarshal(edit.Result, &result)
		return result, true, err
	case found && !bytes.Equal(edit.Before, now):
		return result, false, fault.New(fault.Precondition, "this call was interrupted, and the file is no longer as it was before or after it", "read the file before you change it again")
	}
	return result, false, nil
}

// storable returns a path as the database takes it.
func storable(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }

func hashOf(content []byte) []byte {
	sum := sha256.Sum256(content)
	return sum[:]
}

// changed describes a change: in a line for the model, as a diff for everyone else.
func (d *Dispatcher) changed(ctx context.Context, c turn.Call, b box, f boxFile, old, text, what string) turn.Result {
	details := &entry.PiDetails{Path: storable(f.path)}
	result := turn.Result{Text: what, Details: details}
	if isBinary([]byte(old)) || isBinary([]byte(text)) || !utf8.ValidString(old) || !utf8.ValidString(text) {
		return result
	}
	diff := udiff.Unified(label(f, f.exists), label(f, true), b.shown(old), b.shown(text))
	for line := range strings.Lines(diff) {
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
		case strings.HasPrefix(line, "+"):
			details.Added++
		case strings.HasPrefix(line, "-"):
			details.Removed++
		}
	}
	result.Text += fmt.Sprintf(", +%d −%d lines", details.Added, details.Removed)
	if details.Diff = diff; len(diff) <= maxDiffShown {
		return result
	}
	details.Diff = entry.Clip(diff, maxDiffShown)
	if d.config.Artifacts != nil {
		details.ArtifactID = d.keepDiff(ctx, c, f, diff)
	}
	return result
}

// keepDiff keeps a diff as an artifact, and returns its id; "" if that fails.
func (d *Dispatcher) keepDiff(ctx context.Context, c turn.Call, f boxFile, diff string) string {
	sum := sha256.Sum256([]byte("diff\x00" + c.Thread + "\x00" + c.ID))
	made, err := d.config.Artifacts.Create(ctx, c.Scope, artifact.Draft{
		ID: hex.EncodeToString(sum[:16]), Kind: "diff", Label: entry.Clip(turn.Name(path.Base(f.path)), 100) + ".diff", MIMEType: "text/x-diff; charset=utf-8", Thread: c.Thread,
	}, strings.NewReader(diff))
	if err != nil {
		d.logger.WarnContext(ctx, "a diff is not kept whole", "error", fault.From(err).Detail())
		return ""
	}
	return made.ID
}

// label returns a file's name in a diff, on one line.
func label(f boxFile, exists bool) string {
	if !exists {
		return "/dev/null"
	}
	return turn.Name(f.path)
}

// editOf returns the edit that an earlier attempt of a call recorded.
func (d *Dispatcher) editOf(ctx context.Context, c turn.Call) (row query.FileEditRow, found bool, err error) {
	err = d.db.In(ctx, c.Scope, func(tx pgx.Tx) (err error) {
		row, err = queries.FileEdit(ctx, tx, c.Turn, c.ID)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return row, false, nil
	}
	return row, err == nil, err
}

// recordEdit records the edit that a call is about to make.
func (d *Dispatcher) recordEdit(ctx context.Context, c turn.Call, name string, before, after []byte, result turn.Result) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	step, _ := entry.StepOfResult(c.ID)
	return d.db.In(ctx, c.Scope, func(tx pgx.Tx) error {
		if err := queries.ForgetFileEdits(ctx, tx, c.Turn, step); err != nil {
			return err
		}
		return queries.InsertFileEdit(ctx, tx, query.InsertFileEditParams{
			HouseID: c.Scope.House, TurnID: c.Turn, CallID: c.ID, Step: step, Path: storable(name), Before: before, After: after, Result: text,
		})
	})
}

type searchFilesArguments struct {
	Pattern    string `json:"pattern"`
	Name       string `json:"name"`
	Path       string `json:"path"`
	IgnoreCase bool   `json:"ignore_case"`
}

// searchScript searches the path $1 for files with a name like $2 and, if there is a $3, for lines that match it with grep's
// option $4. It uses only POSIX options, follows no links, and opens only regular files. It ends after printing $5 bytes.
const searchScript = `
if [ -n "$3" ]; then
  find "$1" \( -name .git -o -name node_modules \) ! -path "$1" -prune -o -type f -name "$2" -exec grep "$4" -e "$3" /dev/null {} + 2>/dev/null
else
  find "$1" \( -name .git -o -name node_modules \) ! -path "$1" -prune -o -type f -name "$2" -print 2>/dev/null
fi | head -c "$5"`

func (d *Dispatcher) searchFilesForBot(ctx context.Context, c turn.Call, a searchFilesArguments) (text string, err error) {
	if err := a.check(); err != nil {
		return "", err
	}
	err = d.inBox(ctx, c, func(ctx context.Context, b box) error {
		f, err := b.locate(ctx, cmp.Or(a.Path, "."))
		if err != nil {
			return err
		}
		if !f.exists {
			return fault.Newf(fault.Invalid, "give a directory or a file", "there is no %s", turn.Name(f.asked))
		}
		options := "-nE"
		if a.IgnoreCase {
			options = "-niE"
		}
		out, got, err := b.run(ctx, 8*maxMatches, "/bin/sh", "-c", searchScript, "sh", f.path, cmp.Or(a.Name, "*"), a.Pattern, options, strconv.Itoa(8*maxMatches))
		if err != nil {
			return err
		}
		cut := len(out) == 8*maxMatches
		if cut {
			out = string(wholeLines([]byte(out)))
		}
		text = matches(b.shown(out), cut, got.TimedOut)
		return nil
	})
	return text, err
}

func (a searchFilesArguments) check() error {
	if a.Pattern == "" && a.Name == "" {
		return fault.New(fault.Invalid, "there is neither a pattern nor a name", "give one of them, or both")
	}
	if strings.ContainsAny(a.Pattern+a.Name, "\x00\n") {
		return fault.New(fault.Invalid, "the pattern or the name has a line break or a NUL byte", "search for one line")
	}
	return nil
}

// matches shortens the lines that a search printed. cut reports that there were more.
func matches(out string, cut, timedOut bool) string {
	var text strings.Builder
	shown, left := 0, 0
	for line := range strings.Lines(strings.ToValidUTF8(out, "\uFFFD")) {
		if line = strings.TrimRight(line, "\r\n"); len(line) > 400 {
			line = entry.Clip(line, 400)
		}
		if text.Len()+len(line) > maxMatches {
			left++
			continue
		}
		shown++
		text.WriteString(line + "\n")
	}
	switch {
	case shown == 0 && !timedOut:
		return "nothing was found"
	case timedOut:
		fmt.Fprintf(&text, "(the search took longer than %s, so there may be more)", boxTime)
	case cut:
		text.WriteString("(there is more; make the search more specific, or search a smaller directory)")
	case left > 0:
		fmt.Fprintf(&text, "(and %d more lines)", left)
	}
	return text.String()
}
