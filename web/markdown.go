package web

import (
	"bytes"
	"errors"
	"html"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	reader "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

const (
	// maxFormatted is the longest text that is rendered as Markdown, in bytes. Some texts take a time that
	// grows with the square of their length. A longer text is shown as it is.
	maxFormatted = 32 << 10
	// maxMarkup is the longest HTML that becomes of it, in bytes.
	maxMarkup = 1 << 20
	// maxDepth is how deep quotes and lists are nested, maxCells how many cells tables have in all.
	maxDepth, maxCells = 40, 5000
)

// markdown renders what somebody said as HTML that is safe to put into a page. Two fences stand between
// their text and the reader: the renderer writes HTML in it as text and images as links, and the sanitizer
// lets nothing through that a message does not need. A text that would cost too much is shown as it is.
func markdown(text string, effort *effort) string {
	if len(text) <= maxFormatted && formattable(text) && effort.time > 0 {
		start := time.Now()
		shown, err := formatted(text, effort)
		effort.time -= time.Since(start)
		if err == nil {
			return shown
		}
	}
	return `<pre class="plain">` + html.EscapeString(text) + `</pre>`
}

func formatted(text string, effort *effort) (shown string, err error) {
	source := []byte(text)
	doc := formatter().Parser().Parse(reader.NewReader(source))
	err = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		block, ok := n.(*ast.FencedCodeBlock)
		if ok && entering {
			code := strings.ReplaceAll(string(block.Lines().Value(source)), "\r\n", "\n")
			block.SetAttributeString(colouredCode, effort.highlight(string(block.Language(source)), code))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := formatter().Renderer().Render(&limited{&b, maxMarkup}, source, doc); err != nil {
		return "", err
	}
	return finished.Replace(messagePolicy().Sanitize(b.String())), nil
}

// finished adds what a page needs to HTML that is safe. What it looks for is the renderer's alone: what people write as HTML
// is text by now. A table scrolls in an element of its own, and so does code, with the keyboard too; a box to tick has a name.
var finished = strings.NewReplacer(
	"<pre", `<pre tabindex="0"`, "<table>", `<div class="table" tabindex="0"><table>`, "</table>", "</table></div>",
	`<input checked="" disabled="" type="checkbox"`, `<input checked="" disabled="" type="checkbox" aria-label="Done"`,
	`<input disabled="" type="checkbox"`, `<input disabled="" type="checkbox" aria-label="To do"`,
)

// colouredCode is the attribute of a block of code that has its HTML.
const colouredCode = "arbe-code"

// limited is a writer that fails when more than left bytes are written.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errors.New("the HTML is too long")
	}
	return l.w.Write(p)
}

// formattable reports whether the Markdown parser takes a text in a reasonable time. It does not when quotes
// and lists are nested deeply, or when a table has many cells: a cell that is missing in a row is added.
func formattable(text string) bool {
	columns, cells := 0, 0
	for line := range strings.Lines(text) {
		depth, rest := nesting(line)
		if depth > maxDepth {
			return false
		}
		rest = strings.TrimSpace(rest)
		switch {
		case rest == "":
			columns = 0
		case strings.Trim(rest, "|:- \t") == "": // the row under a table's head
			columns = max(columns, strings.Count(rest, "|")+1)
		}
		if cells += columns; cells > maxCells {
			return false
		}
	}
	return true
}

// nesting is how deep the quotes and lists can be that a line begins, and what follows their marks.
func nesting(line string) (depth int, rest string) {
	marks, columns := 0, 0
	for line != "" {
		digits := len(line) - len(strings.TrimLeft(line, "0123456789"))
		switch c := line[0]; {
		case c == ' ':
			columns++
			digits = 1
		case c == '\t':
			columns += 4
			digits = 1
		case c == '>':
			marks++
			digits = 1
		case (c == '-' || c == '+' || c == '*') && (len(line) == 1 || strings.ContainsRune(" \t\r\n", rune(line[1]))):
			marks++
			digits = 1
		case digits > 0 && digits < len(line) && (line[digits] == '.' || line[digits] == ')'):
			marks++
			digits++
		default:
			digits = 0
		}
		if digits == 0 {
			break
		}
		line = line[digits:]
	}
	if marks == 0 {
		return 0, line // code is indented deeply
	}
	return marks + columns/2, line
}

var formatter = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough, extension.Linkify, extension.TaskList,
		),
		goldmark.WithRendererOptions(
			goldmarkhtml.WithHardWraps(), // people press Enter and mean it
			renderer.WithNodeRenderers(util.Prioritized(asText{}, 100)),
		),
	)
})

var messagePolicy = sync.OnceValue(func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "strong", "em", "del", "blockquote", "ul", "ol", "li", "pre", "code", "span",
		"h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "a", "input")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true) // with rel=noopener
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^[a-z0-9]{1,12}$`)).OnElements("span", "pre", "code")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("th", "td")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowAttrs("type").Matching(regexp.MustCompile(`^checkbox$`)).OnElements("input")
	p.AllowAttrs("checked", "disabled").OnElements("input")
	return p
})

// asText renders the parts of Markdown that could bring foreign content into a page: HTML as the text it
// is, an image as a link to it. Code comes coloured already.
type asText struct{}

// RegisterFuncs takes those kinds over from goldmark's own renderer.
func (asText) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, rawHTML)
	r.Register(ast.KindHTMLBlock, htmlBlock)
	r.Register(ast.KindImage, imageLink)
	r.Register(ast.KindFencedCodeBlock, fencedCode)
}

func fencedCode(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if code, ok := n.AttributeString(colouredCode); ok && entering {
		_, _ = w.WriteString(code.(string))
	}
	return ast.WalkSkipChildren, nil
}

func rawHTML(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.Write(util.EscapeHTML(n.(*ast.RawHTML).Segments.Value(source)))
	}
	return ast.WalkSkipChildren, nil
}

func htmlBlock(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	block := n.(*ast.HTMLBlock)
	if !entering {
		return ast.WalkContinue, nil
	}
	text := block.Lines().Value(source)
	if block.HasClosure() {
		text = append(text, block.ClosureLine.Value(source)...)
	}
	_, _ = w.WriteString("<p>")
	_, _ = w.Write(bytes.ReplaceAll(util.EscapeHTML(bytes.TrimSpace(text)), []byte("\n"), []byte("<br>\n")))
	_, _ = w.WriteString("</p>\n")
	return ast.WalkContinue, nil
}

func imageLink(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	image := n.(*ast.Image)
	if !entering {
		_, _ = w.WriteString("</a>")
		return ast.WalkContinue, nil
	}
	_, _ = w.WriteString(`<a href="`)
	_, _ = w.Write(util.EscapeHTML(util.URLEscape(image.Destination, true)))
	_, _ = w.WriteString(`">`)
	if !image.HasChildren() {
		_, _ = w.WriteString("image")
	}
	return ast.WalkContinue, nil
}
