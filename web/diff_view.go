package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

const (
	// maxPatch limits how much of a patch is read, in bytes.
	maxPatch = 4 << 20
	// Files of up to openLines lines are open at first, up to openInAll lines in total.
	openLines, openInAll = 400, 2000
	// maxRemarks limits the comments in one message, and quotedLines the lines quoted for each.
	maxRemarks, quotedLines = 200, 12
)

// The limits of a patch on its page, in a thread, for a single file, and for looking up the lines of comments.
var (
	pageOfDiff   = markup.DiffLimits{Lines: 4000, FileLines: 1000, Bytes: 2 << 20}
	pieceOfDiff  = markup.DiffLimits{Lines: 600, FileLines: 300, Bytes: 1 << 20}
	fileOfDiff   = markup.DiffLimits{Lines: 20_000, FileLines: 20_000, Bytes: 5 << 20}
	quotedOfDiff = markup.DiffLimits{Lines: 200_000, FileLines: 200_000}
)

// diffScope is something whose changes people look at: a run, or the files as they are now. Its page is at Path.
type diffScope struct{ Words, Path string }

// diffView is a patch with its surroundings.
type diffView struct {
	Layout layout
	// Path is the path of the page that shows it.
	Path     string
	Artifact *arbev1.Artifact
	Diff     markup.Diff
	// Part reports that only the beginning of the patch was read.
	Part bool
	// Only is the number of the only file shown; 0 for all.
	Only int
	// Thread, if not nil, is the thread that the patch comes from, where comments are posted. Reader is the name of the bot
	// that reads them.
	Thread *arbev1.Thread
	Reader string
	// Run, if not nil, is the run that left the patch as its changes.
	Run *arbev1.Run
	// Entry is the id of the message.
	Entry string
	// Split shows lines side by side. Scopes are the pages of the other changes of the thread.
	Split  bool
	Scopes []diffScope
	// Of identifies the changes in a sandbox; empty for an artifact. Uncommitted reports that they are only those since the
	// last commit.
	Of          string
	Uncommitted bool
}

// lostRemark is a comment on a line that has changed since it was written. Place describes the line.
type lostRemark struct{ Place, Text string }

// lostRemarksOf reads the comments of a form whose lines are gone. Fields are named "o-number", and "p-number" for the place.
func lostRemarksOf(form map[string][]string) (list []lostRemark) {
	for i := range maxRemarks {
		if text := form["o-"+decimal(i)]; len(text) > 0 && strings.TrimSpace(text[0]) != "" {
			place := append(form["p-"+decimal(i)], "")[0]
			list = append(list, lostRemark{entry.OneLine(entry.Literal(place), 300), strings.TrimSpace(strings.ReplaceAll(text[0], "\r\n", "\n"))})
		}
	}
	return list
}

// treeRemarksText makes one message of comments on the files of a sandbox.
func treeRemarksText(d markup.Diff, list []remark, lost []lostRemark) string {
	var b strings.Builder
	b.WriteString("Comments on the changes in the sandbox. The blocks quote them; only what stands below them is said by me.\n")
	writeRemarks(&b, d, list)
	for _, r := range lost {
		fmt.Fprintf(&b, "\n%s, which has changed since:\n%s\n", inCode(r.Place), r.Text)
	}
	return b.String()
}

// looseRemarks makes one text of comments whose lines are not known any more.
func looseRemarks(list []remark, lost []lostRemark) string {
	var texts []string
	for _, r := range list {
		texts = append(texts, r.Text)
	}
	for _, r := range lost {
		texts = append(texts, r.Text)
	}
	return strings.Join(texts, "\n\n")
}

// discards reports whether the page can discard the uncommitted changes to a file.
func (v diffView) discards(f markup.DiffFile) bool {
	return v.Uncommitted && f.Name != "" && f.Change != "renamed" && f.Change != "copied" && literalName(f.Name) == f.Name
}

// runOf returns the run whose changes an artifact claims to be, or 0. Anyone can make an artifact with such a claim.
func runOf(a *arbev1.Artifact) int64 {
	epoch, err := strconv.ParseInt(a.RunId, 10, 64)
	if err != nil || a.Kind != "patch" || a.ThreadId == "" {
		return 0
	}
	return epoch
}

// applies reports whether the patch can be applied to the files of the thread that delegated the task. pushes reports whether it
// can be pushed as a branch.
func (v diffView) applies() bool { return v.Run != nil && v.Thread.GetParentThreadId() != "" }
func (v diffView) pushes() bool  { return v.Run.GetBranchRepository() != "" }

// unfolded reports which files of a patch are open at first: not generated or long ones, and not too many.
func unfolded(d markup.Diff) []bool {
	open, lines := make([]bool, len(d.Files)), 0
	for i, f := range d.Files {
		n := f.Lines()
		if open[i] = n > 0 && !f.Generated && n+f.Cut <= openLines && lines+n <= openInAll; open[i] {
			lines += n
		}
	}
	if len(open) == 1 {
		open[0] = true
	}
	return open
}

// diffFileText describes what a patch does to a file, apart from its lines.
func diffFileText(f markup.DiffFile) string {
	var parts []string
	switch {
	case f.From != "":
		parts = append(parts, f.Change+" from "+literalName(f.From))
	case f.Change != "changed":
		parts = append(parts, f.Change)
	}
	if f.Mode != "" {
		parts = append(parts, entry.Literal(f.Mode))
	}
	if f.Binary {
		parts = append(parts, "binary")
	}
	if f.Generated {
		parts = append(parts, "generated")
	}
	return strings.Join(parts, " · ")
}

// diffLineClass returns the class of a line.
func diffLineClass(l markup.DiffLine) string {
	switch l.Kind {
	case '+':
		return "dl added"
	case '-':
		return "dl removed"
	case '\\':
		return "dl said"
	}
	return "dl"
}

func lineNumber(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// placeOf describes the location of the lines from i to j of a hunk: "line 12", "lines 12 to 20".
func placeOf(h markup.DiffHunk, i, j int) string {
	var numbers []int
	for _, l := range h.Lines[i : j+1] {
		if n := cmp.Or(l.New, l.Old); n > 0 {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return "a line"
	}
	first, last := slices.Min(numbers), slices.Max(numbers)
	if first == last {
		word := "line "
		if i == j && h.Lines[i].New == 0 {
			word = "removed line "
		}
		return word + strconv.Itoa(first)
	}
	return fmt.Sprintf("lines %d to %d", first, last)
}

func hunkPlace(h markup.DiffHunk) string { return placeOf(h, 0, len(h.Lines)-1) }

// remark is a comment on a line of a patch, or on a hunk if Line is -1. All numbers start at 0.
type remark struct {
	File, Hunk, Line int
	Text             string
}

// remarksOf reads the comments of a form, in the order of the patch. Fields are named "r-file-hunk" and "r-file-hunk-line".
func remarksOf(form map[string][]string) (list []remark) {
	for name, values := range form {
		parts := strings.Split(name, "-")
		text := strings.TrimSpace(strings.ReplaceAll(values[0], "\r\n", "\n"))
		if parts[0] != "r" || len(parts) < 3 || len(parts) > 4 || text == "" {
			continue
		}
		at := []int{0, 0, -1}
		valid := true
		for i, part := range parts[1:] {
			n, err := strconv.Atoi(part)
			valid = valid && err == nil && n >= 0
			at[i] = n
		}
		if valid {
			list = append(list, remark{at[0], at[1], at[2], text})
		}
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Hunk, b.Hunk), cmp.Compare(a.Line, b.Line)) < 0
	})
	return list
}

// remarksText makes one message of comments. A program or a stranger wrote the lines that it quotes. So the quotes are in
// blocks that they cannot end, every character in them is visible, and the message says who wrote them.
func remarksText(a *arbev1.Artifact, d markup.Diff, list []remark) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Comments on %s (artifact %s). The blocks quote it; only what stands below them is said by me.\n", inCode(entry.OneLine(artifactName(a), maxWord)), a.Id)
	writeRemarks(&b, d, list)
	return b.String()
}

func writeRemarks(b *strings.Builder, d markup.Diff, list []remark) {
	for _, r := range list {
		if r.File >= len(d.Files) || r.Hunk >= len(d.Files[r.File].Hunks) || r.Line >= len(d.Files[r.File].Hunks[r.Hunk].Lines) {
			fmt.Fprintf(b, "\n%s\n", r.Text) // the form was tampered with; keep the text
			continue
		}
		f := d.Files[r.File]
		h := f.Hunks[r.Hunk]
		from, to := quotedPart(h, r.Line)
		place := hunkPlace(h)
		if r.Line >= 0 {
			place = placeOf(h, r.Line, r.Line)
		}
		fmt.Fprintf(b, "\n%s, %s:\n%s\n%s\n", inCode(fileName(f)), place, quotedBlock(h.Lines[from:to+1]), r.Text)
	}
}

// quotedPart returns which lines are quoted for a comment: the line with the two before it, or the changes of the hunk.
func quotedPart(h markup.DiffHunk, line int) (from, to int) {
	if line >= 0 {
		return max(line-2, 0), line
	}
	changed := func(l markup.DiffLine) bool { return l.Kind != ' ' }
	from = max(slices.IndexFunc(h.Lines, changed), 0)
	for to = from; to+1 < len(h.Lines) && to-from+1 < quotedLines && slices.ContainsFunc(h.Lines[to+1:], changed); to++ {
	}
	return from, to
}

// quotedBlock quotes lines in a code block with a fence that they cannot close.
func quotedBlock(lines []markup.DiffLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(string(l.Kind) + entry.Literal(clip(l.Text, 500)) + "\n")
	}
	fence := strings.Repeat("`", max(3, longestTicks(b.String())+1))
	return fence + "diff\n" + b.String() + fence
}

// inCode returns a name as inline code in Markdown.
func inCode(name string) string {
	ticks := strings.Repeat("`", longestTicks(name)+1)
	if strings.HasPrefix(name, "`") || strings.HasSuffix(name, "`") {
		name = " " + name + " "
	}
	return ticks + name + ticks
}

// longestTicks returns the length of the longest run of backticks.
func longestTicks(text string) (most int) {
	run := 0
	for i := range len(text) {
		if run++; text[i] != '`' {
			run = 0
		}
		most = max(most, run)
	}
	return most
}

// remarkName returns the name of the field for a comment on a hunk. Numbers start at 0.
func remarkName(file, hunk int) string { return fmt.Sprintf("r-%d-%d", file, hunk) }

// filesChanged says how many files a patch changes.
func filesChanged(n int) string {
	if n == 1 {
		return "1 file changed"
	}
	return grouped(n) + " files changed"
}

// sendRemarks returns the label of the button that sends comments.
func (v diffView) sendRemarks() string {
	if v.Reader != "" {
		return "Send comments to " + v.Reader
	}
	return "Send comments"
}

// changesKey returns the id of a patch's element in a thread, and fileKey that of a file's element.
func changesKey(artifact string) string { return "changes-" + url.PathEscape(artifact) }

func fileKey(v diffView, page bool, i int) string {
	if page || v.Layout.House != nil {
		return "f" + decimal(i+1)
	}
	return changesKey(v.Artifact.Id) + "-" + decimal(i+1)
}

// hunkWords returns the heading of a hunk: its location and context.
func hunkWords(h markup.DiffHunk) string {
	if h.Heading == "" {
		return hunkPlace(h)
	}
	return hunkPlace(h) + " · " + entry.Literal(h.Heading)
}

// lineText returns a line with its sign.
func lineText(l markup.DiffLine) string { return string(l.Kind) + entry.Literal(l.Text) }
