package entry

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	reader "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

const (
	// MaxHandle limits a handle, in characters.
	MaxHandle = 39
	// MaxMentions limits the mentions of a text that count. A text with more is a mistake or an attack.
	MaxMentions = 50
	// maxParsed is the length, in bytes, up to which a text's Markdown is parsed for mentions. Parsing some texts takes
	// quadratic time, and longer ones are mostly pasted output.
	maxParsed = 8 << 10
	// maxNesting limits the quotes and lists that a line of a parsed text may open, because nested ones are expensive.
	maxNesting = 40
)

// IsHandle reports whether s is a handle: 1 to [MaxHandle] lowercase ASCII letters, digits and hyphens, with no hyphen at
// either end.
func IsHandle(s string) bool {
	return s != "" && len(s) <= MaxHandle && s[0] != '-' && s[len(s)-1] != '-' &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// HandlesOf returns the handles of a person with a name: ada-lovelace, and ada. If several people have the same handle, it
// means all of them. A name without ASCII letters or digits has none.
func HandlesOf(name string) []string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	if len(words) == 0 {
		return nil
	}
	whole := strings.Join(words, "-")
	whole = strings.Trim(whole[:min(len(whole), MaxHandle)], "-")
	return slices.Compact([]string{whole, words[0][:min(len(words[0]), MaxHandle)]})
}

// Mentions returns the handles that a chat's text mentions as @handle, in lowercase, each once, in the order of the text. It
// returns at most [MaxMentions], or nil. It does not check whether anybody has such a handle.
//
// Mentions reads the text as Markdown, as a page shows it. A mention counts where the writer speaks: not in code, quotes,
// HTML, URLs, e-mail addresses, images and the destinations of links, and not behind a backslash. A text of more than 8 KiB
// is read line by line instead, by simpler rules to the same effect. Apart from that limit, the time is linear in the length
// of the text.
func Mentions(text string) []string {
	if !strings.Contains(text, "@") || !mayMention(text) {
		return nil
	}
	source := []byte(text)
	m := &mentions{source: source}
	if len(text) <= maxParsed && shallow(text) {
		m.parse()
	} else {
		m.readLines()
	}
	return m.handles
}

// mentions collects the handles of one text.
type mentions struct {
	source  []byte
	handles []string
}

// markdown parses only constructs that decide whether a mention counts. Emphasis and tables do not.
var markdown = sync.OnceValue(func() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(parser.DefaultBlockParsers()...),
		parser.WithInlineParsers(
			util.Prioritized(parser.NewCodeSpanParser(), 100), util.Prioritized(parser.NewLinkParser(), 200),
			util.Prioritized(parser.NewAutoLinkParser(), 300), util.Prioritized(parser.NewRawHTMLParser(), 400),
			util.Prioritized(extension.NewLinkifyParser(), 999),
		),
		parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
	)
})

func (m *mentions) parse() {
	_ = ast.Walk(markdown().Parse(reader.NewReader(m.source)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Blockquote, *ast.CodeSpan, *ast.Image, *ast.AutoLink, *ast.RawHTML, *ast.HTMLBlock, *ast.CodeBlock, *ast.FencedCodeBlock:
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			m.scan(n.Segment.Start, n.Segment.Stop)
		}
		return ast.WalkContinue, nil
	})
}

// scan adds the mentions that begin between two positions of the source, if they are separate words: not parts of an address,
// a path or a longer word.
func (m *mentions) scan(from, to int) {
	for at := from; at < to && len(m.handles) < MaxMentions; at++ {
		if m.source[at] != '@' {
			continue
		}
		handle, end := handleAt(m.source[:to], at+1)
		if handle == "" || !startsWord(m.source[:at]) || !endsWord(m.source[end:]) {
			continue
		}
		if !slices.Contains(m.handles, handle) {
			m.handles = append(m.handles, handle)
		}
	}
}

// MentionsIn returns the ranges of the mentions in a text without markup: from the first byte of each, its @, to the byte
// after it.
func MentionsIn(text []byte) (spans [][2]int) {
	for at := 0; at < len(text) && len(spans) < MaxMentions; at++ {
		if text[at] != '@' {
			continue
		}
		if handle, end := handleAt(text, at+1); handle != "" && startsWord(text[:at]) && endsWord(text[end:]) {
			spans = append(spans, [2]int{at, end})
		}
	}
	return spans
}

// handleAt returns the longest handle at a position, in lowercase, and its end; "" if there is none.
func handleAt(source []byte, at int) (handle string, end int) {
	for end = at; end < len(source) && isHandleByte(source[end]) && end-at <= MaxHandle; end++ {
	}
	for end > at && source[end-1] == '-' { // as in "@arbe - look"
		end--
	}
	if handle = strings.ToLower(string(source[at:end])); !IsHandle(handle) {
		return "", end
	}
	return handle, end
}

func isHandleByte(c byte) bool {
	return c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// startsWord reports whether a mention may follow this text.
func startsWord(before []byte) bool {
	before = bytes.TrimRight(before, "_") // it may be emphasis
	r, size := utf8.DecodeLastRune(before)
	return size == 0 || !isWord(r) && !strings.ContainsRune("@/\\`.-+=&?#%$", r)
}

// endsWord reports whether a mention may precede this text.
func endsWord(after []byte) bool {
	after = bytes.TrimLeft(after, "_")
	r, size := utf8.DecodeRune(after)
	switch {
	case size == 0:
		return true
	case r == '/': // as in @scope/package
		next, _ := utf8.DecodeRune(after[size:])
		return !isWord(next)
	}
	return r != '@' && !isWord(r) // not as in @user@host
}

func isWord(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Cf, r)
}

// mayMention reports whether any @ is followed by a possible handle.
func mayMention(text string) bool {
	for {
		_, rest, found := strings.Cut(text, "@")
		if !found {
			return false
		}
		if rest != "" && rest[0] != '-' && isHandleByte(rest[0]) {
			return true
		}
		text = rest
	}
}

// shallow reports whether no line of a text opens many quotes or lists. Indentation counts, because it keeps them open.
func shallow(text string) bool {
	for line := range strings.Lines(text) {
		head := line[:len(line)-len(strings.TrimLeft(line, " \t>-+*.)0123456789"))]
		if marks := strings.Count(head, ">") + strings.Count(head, " ")/2 + 2*strings.Count(head, "\t"); marks > maxNesting {
			return false
		}
	}
	return true
}

// readLines reads a text without parsing it: a line is quoted, in a fenced block, indented code, or the writer's own words
// with code between backticks.
func (m *mentions) readLines() {
	fence := ""
	at := 0
	for line := range strings.Lines(string(m.source)) {
		from := at
		at += len(line)
		trimmed := strings.TrimLeft(line, " \t")
		mark := fenceOf(trimmed)
		switch {
		case fence != "":
			if strings.HasPrefix(mark, fence) && strings.TrimSpace(strings.TrimLeft(trimmed, fence[:1])) == "" {
				fence = ""
			}
		case mark != "" && (mark[0] == '~' || !strings.Contains(trimmed[len(mark):], "`")): // otherwise it is code in a line
			fence = mark
		case strings.HasPrefix(trimmed, ">"), strings.HasPrefix(trimmed, "<"), strings.HasPrefix(line, "    "), strings.HasPrefix(line, "\t"):
		default:
			m.readLine(from, at)
		}
	}
}

// readLine scans the parts of a line outside code and URLs. Code is enclosed in two runs of equally many backticks.
func (m *mentions) readLine(from, to int) {
	last := map[int]int{} // where the last run of this many backticks begins
	for at := from; at < to; {
		n := m.ticks(at, to)
		if n > 0 {
			last[n] = at
		}
		at += max(n, 1)
	}
	for at := from; at < to; {
		end := at
		for end < to && m.source[end] != '`' {
			end++
		}
		m.readWords(at, end)
		n := m.ticks(end, to)
		if at = end + n; last[n] <= end {
			continue // nothing closes it
		}
		for run := 0; run != n; {
			at += run
			for m.source[at] != '`' {
				at++
			}
			run = m.ticks(at, to)
		}
		at += n
	}
}

// ticks returns the number of backticks at a position.
func (m *mentions) ticks(at, to int) (n int) {
	for at+n < to && m.source[at+n] == '`' {
		n++
	}
	return n
}

// readWords scans the words of a part of a line that are neither URLs nor link destinations.
func (m *mentions) readWords(from, to int) {
	for from < to {
		end := from
		for end < to && m.source[end] != ' ' && m.source[end] != '\t' {
			end++
		}
		if word := string(m.source[from:end]); !strings.Contains(word, "://") && !strings.Contains(word, "](") && !strings.HasPrefix(word, "www.") {
			m.scan(from, end)
		}
		from = end + 1
	}
}

// fenceOf returns the backticks or tildes with which a line opens or closes a code block; "" if it does not.
func fenceOf(line string) string {
	for _, c := range []string{"`", "~"} {
		if mark := line[:len(line)-len(strings.TrimLeft(line, c))]; len(mark) >= 3 {
			return mark
		}
	}
	return ""
}
