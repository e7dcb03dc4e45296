package markup

import (
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Diff is a patch in readable form. It has no HTML: whoever shows it must escape its texts.
type Diff struct {
	Files []DiffFile
	// Added and Removed are the lines of all files.
	Added, Removed int
	// MoreFiles is the number of files left out after Files.
	MoreFiles int
}

// DiffFile is what a patch does to one file.
type DiffFile struct {
	// Name is its path. From is its earlier path, if it was renamed or copied.
	Name, From string
	// Change is "added", "deleted", "renamed", "copied" or "changed". Mode describes a change of its permissions, if any.
	Change, Mode string
	// Binary files have no hunks. Generated files were written by a program, judging by their names or first lines.
	Binary, Generated bool
	// Added and Removed count its lines, including those left out. Cut is the number of lines left out.
	Added, Removed, Cut int
	Hunks               []DiffHunk
}

// Lines returns the number of lines in its hunks.
func (f DiffFile) Lines() (n int) {
	for _, h := range f.Hunks {
		n += len(h.Lines)
	}
	return n
}

// DiffHunk is a run of changed lines, with those around them.
type DiffHunk struct {
	// Heading is the patch's description of its location, such as the name of a function.
	Heading string
	Lines   []DiffLine
}

// DiffLine is one line. Kind is ' ', '+' or '-', or '\\' for a remark of git. Old and New are its line numbers before and
// after the change, or 0 where the line does not exist.
type DiffLine struct {
	Kind     byte
	Old, New int
	Text     string
}

// DiffLimits limits how much of a patch is shown.
type DiffLimits struct {
	// Lines limits the lines of all files together, and FileLines those of one file.
	Lines, FileLines int
	// Bytes limits the approximate size on a page of all lines and hunk headers, where an invisible character takes several
	// bytes; 0 means no limit.
	Bytes int
	// Only is the number of the file whose lines are shown, from 1; 0 for all.
	Only int
}

const (
	// maxDiffFiles limits the files of a patch that are shown, and maxDiffLine a line, in bytes.
	maxDiffFiles, maxDiffLine = 1000, 2000
	// maxDiffName limits a path, in bytes, and maxDiffNames the approximate size of all paths on a page.
	maxDiffName, maxDiffNames = 1000, 512 << 10
	// hunkSize is the approximate size of a hunk on a page, without its lines, and lineSize that of a line, without its text.
	hunkSize, lineSize = 800, 80
)

// ParseDiff reads a patch in git's format, or any unified diff. It never fails: it leaves out parts that it does not
// understand, because the patch may be damaged or deceptive. Its time and memory grow with the size of the patch, never with
// the sizes that the patch claims. It uses no library, because libraries unpack compressed parts.
func ParseDiff(text string, most DiffLimits) Diff {
	p := diffParser{most: most}
	for line := range strings.Lines(text) {
		p.line(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
	}
	p.endFile()
	return p.diff
}

type diffParser struct {
	diff  Diff
	most  DiffLimits
	shown int // lines
	count int // files
	// bytes is the size on a page of the part that is shown, and names is the size of the names.
	bytes, names int

	file *DiffFile
	// before and after are the names in the lines --- and +++. named reports that the file has a name from a more reliable line.
	before   string
	named    bool
	old, new int // the numbers of the next line
	// oldLeft and newLeft are the numbers of lines left in the hunk.
	oldLeft, newLeft int
	// lines counts the lines of the file so far, and kept those that are shown.
	lines, kept int
	// binary reports that a binary patch follows. Its lines mean nothing to a reader.
	binary bool
}

// line takes the next line. In a hunk the header's counts decide, because its lines may look like headers.
func (p *diffParser) line(line string) {
	if p.oldLeft > 0 || p.newLeft > 0 {
		if p.body(line) {
			return
		}
		p.oldLeft, p.newLeft = 0, 0
	}
	rest, begins := strings.CutPrefix(line, "diff --git ")
	switch {
	case begins:
		p.begin()
		p.file.Name = clipBytes(gitName(rest), maxDiffName)
	case p.binary:
	case strings.HasPrefix(line, "--- "):
		p.beforeName(line[4:])
	case p.file == nil:
	case strings.HasPrefix(line, "+++ "):
		p.afterName(line[4:])
	case strings.HasPrefix(line, "@@ "):
		p.hunk(line)
	case strings.HasPrefix(line, `\ `) && len(p.file.Hunks) > 0:
		p.add(DiffLine{Kind: '\\', Text: line[2:]})
	default:
		p.extended(line)
	}
}

// extended takes a line of git's extended header.
func (p *diffParser) extended(line string) {
	for _, h := range extendedHeaders {
		if rest, ok := strings.CutPrefix(line, h.prefix); ok {
			h.take(p, p.file, rest)
			return
		}
	}
}

var extendedHeaders = []struct {
	prefix string
	take   func(p *diffParser, f *DiffFile, rest string)
}{
	{"rename from ", func(_ *diffParser, f *DiffFile, rest string) { f.From, f.Change = diffName(rest, ""), "renamed" }},
	{"copy from ", func(_ *diffParser, f *DiffFile, rest string) { f.From, f.Change = diffName(rest, ""), "copied" }},
	{"rename to ", func(p *diffParser, f *DiffFile, rest string) { f.Name, p.named = diffName(rest, ""), true }},
	{"copy to ", func(p *diffParser, f *DiffFile, rest string) { f.Name, p.named = diffName(rest, ""), true }},
	{"new file mode ", func(_ *diffParser, f *DiffFile, rest string) { f.Change, f.Mode = "added", executable(rest) }},
	{"deleted file mode ", func(_ *diffParser, f *DiffFile, _ string) { f.Change = "deleted" }},
	{"old mode ", func(_ *diffParser, f *DiffFile, rest string) { f.Mode = "mode " + clipBytes(rest, 20) }},
	{"new mode ", func(_ *diffParser, f *DiffFile, rest string) {
		f.Mode = clipBytes(f.Mode, 40) + " → " + clipBytes(rest, 20)
	}},
	{"Binary files ", func(_ *diffParser, f *DiffFile, _ string) { f.Binary = true }},
	{"GIT binary patch", func(p *diffParser, f *DiffFile, _ string) { f.Binary, p.binary = true, true }},
}

// executable returns the mode of a new file if it is unusual.
func executable(mode string) string {
	if mode == "100644" {
		return ""
	}
	return "mode " + clipBytes(mode, 20)
}

// beforeName takes a line "--- a/name". Without a git header, the line begins a file.
func (p *diffParser) beforeName(text string) {
	if p.file == nil || len(p.file.Hunks) > 0 {
		p.begin()
	}
	p.before = diffName(text, "a/")
}

func (p *diffParser) afterName(text string) {
	after := diffName(text, "b/")
	switch f := p.file; {
	case after == "/dev/null":
		f.Change, f.Name = "deleted", p.before
	case p.before == "/dev/null":
		f.Change, f.Name = "added", after
	case !p.named:
		f.Name = after
	}
}

// hunk takes a header: "@@ -1,4 +1,5 @@ func main()".
func (p *diffParser) hunk(line string) {
	at, heading, ok := strings.Cut(line[3:], " @@")
	before, after, both := strings.Cut(at, " ")
	if !ok || !both || !strings.HasPrefix(before, "-") || !strings.HasPrefix(after, "+") {
		return
	}
	p.old, p.oldLeft = lineRange(before[1:])
	p.new, p.newLeft = lineRange(after[1:])
	if n := len(p.file.Hunks); n > 0 && len(p.file.Hunks[n-1].Lines) == 0 {
		p.file.Hunks = p.file.Hunks[:n-1] // drop it, so that any number of hunks without lines takes no memory
	}
	heading = strings.ToValidUTF8(clipBytes(strings.TrimSpace(heading), 200), "\uFFFD")
	p.file.Hunks = append(p.file.Hunks, DiffHunk{Heading: heading})
}

// lineRange reads "12,4" or "12".
func lineRange(text string) (from, count int) {
	first, length, ok := strings.Cut(text, ",")
	from, _ = strconv.Atoi(first) // 0 if it is not a number; the lines then have no numbers
	if count = 1; ok {
		count, _ = strconv.Atoi(length)
	}
	return min(max(from, 0), 1<<30), min(max(count, 0), 1<<30)
}

// body processes a line of a hunk. It returns false for any other line.
func (p *diffParser) body(line string) bool {
	kind := byte(' ')
	if line != "" { // some programs drop the space of an empty line
		kind, line = line[0], line[1:]
	}
	l := DiffLine{Kind: kind, Text: line}
	switch {
	case kind == '\\':
		l.Text = strings.TrimSpace(line)
	case kind == ' ' && p.oldLeft > 0 && p.newLeft > 0:
		l.Old, l.New = p.old, p.new
		p.old, p.new, p.oldLeft, p.newLeft = p.old+1, p.new+1, p.oldLeft-1, p.newLeft-1
	case kind == '-' && p.oldLeft > 0:
		l.Old = p.old
		p.old, p.oldLeft = p.old+1, p.oldLeft-1
		p.file.Removed++
		p.diff.Removed++
	case kind == '+' && p.newLeft > 0:
		l.New = p.new
		p.new, p.newLeft = p.new+1, p.newLeft-1
		p.file.Added++
		p.diff.Added++
	default:
		return false
	}
	p.add(l)
	return true
}

// add adds a line to the last hunk, if there is room.
func (p *diffParser) add(l DiffLine) {
	f := p.file
	if p.lines++; p.lines <= 5 && isGeneratedLine(l.Text) {
		f.Generated = true
	}
	if p.most.Only != 0 && p.most.Only != p.count || p.shown >= p.most.Lines || p.kept >= p.most.FileLines {
		f.Cut++
		return
	}
	l.Text = strings.ToValidUTF8(clipBytes(l.Text, maxDiffLine), "\uFFFD")
	h := &f.Hunks[len(f.Hunks)-1]
	p.bytes += lineSize + sizeOf(l.Text)
	if len(h.Lines) == 0 {
		p.bytes += hunkSize + sizeOf(h.Heading)
	}
	if p.most.Bytes > 0 && p.bytes > p.most.Bytes {
		p.shown = p.most.Lines // stop here, so that only the beginning of the patch is shown
		f.Cut++
		return
	}
	h.Lines = append(h.Lines, l)
	p.shown, p.kept = p.shown+1, p.kept+1
}

func (p *diffParser) begin() {
	p.endFile()
	p.count++
	p.file, p.before, p.named, p.binary, p.lines, p.kept = &DiffFile{Change: "changed"}, "", false, false, 0, 0
}

func (p *diffParser) endFile() {
	f := p.file
	if p.file = nil; f == nil {
		return
	}
	if f.Name == "" {
		f.Name = p.before
	}
	if n := len(f.Hunks); n > 0 && len(f.Hunks[n-1].Lines) == 0 {
		f.Hunks = f.Hunks[:n-1]
	}
	f.Generated = f.Generated || isGeneratedName(f.Name)
	if p.most.Only == 0 {
		p.names += sizeOf(f.Name) + sizeOf(f.From)
	}
	if len(p.diff.Files) >= maxDiffFiles || p.names > maxDiffNames {
		p.diff.MoreFiles++
		return
	}
	p.diff.Files = append(p.diff.Files, *f)
}

// gitName returns the name in "a/name b/name". Without quotes, the text is unambiguous only if both names are the same. A
// rename has its names on separate lines.
func gitName(text string) string {
	if strings.HasPrefix(text, `"`) {
		_, second := cutQuoted(text)
		return diffName(strings.TrimSpace(second), "b/")
	}
	if half := len(text) / 2; len(text)%2 == 1 && text[half] == ' ' {
		return diffName(text[half+1:], "b/")
	}
	_, second, _ := strings.Cut(text, " b/")
	return second
}

// diffName returns a path without a prefix, and without the quotes and the time that follow it in some patches.
func diffName(text, prefix string) string {
	if strings.HasPrefix(text, `"`) {
		text, _ = cutQuoted(text)
	} else {
		text, _, _ = strings.Cut(text, "\t")
	}
	return strings.ToValidUTF8(clipBytes(strings.TrimPrefix(text, prefix), maxDiffName), "\uFFFD")
}

// cutQuoted returns a path that git has quoted like a C string, and the rest of the text.
func cutQuoted(text string) (name, rest string) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:]
		case c != '\\' || i+1 == len(text):
			b.WriteByte(c)
		case i+3 < len(text) && isOctal(text[i+1:i+4]):
			n, _ := strconv.ParseUint(text[i+1:i+4], 8, 16)
			b.WriteByte(byte(n))
			i += 3
		default:
			i++
			if at := strings.IndexByte("abtnvfr", text[i]); at >= 0 {
				b.WriteByte(byte('\a' + at)) // these letters are consecutive
			} else {
				b.WriteByte(text[i])
			}
		}
	}
	return b.String(), ""
}

func isOctal(text string) bool {
	return strings.Trim(text, "01234567") == ""
}

// sizeOf returns the approximate size of a text on a page, which shows invisible characters as their codes.
func sizeOf(text string) (n int) {
	for _, c := range text {
		switch {
		case strings.ContainsRune("<>&\"'", c):
			n += len("&quot;")
		case c == '\t' || unicode.IsPrint(c):
			n += utf8.RuneLen(c)
		default:
			n += len("&lt;U+10FFFF&gt;")
		}
	}
	return n
}

func clipBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// isGeneratedName reports whether files with this name are usually generated and rarely read.
func isGeneratedName(name string) bool {
	switch base := path.Base(name); base {
	case "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "go.sum", "Cargo.lock", "poetry.lock", "uv.lock", "Pipfile.lock",
		"composer.lock", "Gemfile.lock", "flake.lock", "deno.lock":
		return true
	default:
		for _, end := range []string{".pb.go", "_templ.go", "_pb2.py", "_pb.ts", "_pb.js", ".min.js", ".min.css", ".map", ".snap"} {
			if strings.HasSuffix(base, end) {
				return true
			}
		}
	}
	for _, folder := range []string{"node_modules", "vendor", "dist", "third_party"} {
		if strings.HasPrefix(name, folder+"/") || strings.Contains(name, "/"+folder+"/") {
			return true
		}
	}
	return false
}

// isGeneratedLine reports whether a line says that a program wrote its file.
func isGeneratedLine(line string) bool {
	return len(line) < 300 && (strings.Contains(line, "DO NOT EDIT") || strings.Contains(line, "@generated"))
}
