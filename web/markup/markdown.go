package markup

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
	// maxFormatted is the length in bytes up to which a text is rendered as Markdown. A longer text is shown unformatted,
	// because rendering some texts takes quadratic time.
	maxFormatted = 32 << 10
	// maxMarkup limits the HTML of a text, in bytes.
	maxMarkup = 1 << 20
	// maxDepth limits the nesting of quotes and lists, and maxCells the cells of all tables together.
	maxDepth, maxCells = 40, 5000
)

// Markdown renders a message as HTML that is safe to put into a page. Two defences protect the reader: the renderer shows
// HTML in the message as text and images as links, and the sanitizer allows only what a message needs. A text that is too
// expensive to render is shown unformatted.
func Markdown(text string, effort *Effort) string {
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

func formatted(text string, effort *Effort) (shown string, err error) {
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
	effort.Mentions.mark(doc, source)
	var b bytes.Buffer
	if err := formatter().Renderer().Render(&limited{&b, maxMarkup}, source, doc); err != nil {
		return "", err
	}
	return effort.Mentions.link(finished.Replace(messagePolicy().Sanitize(b.String()))), nil
}

// finished completes safe HTML for a page: it puts tables and code into elements that also scroll by keyboard, and names
// checkboxes. Plain replacement is enough, because only the renderer writes the tags that it looks for. HTML that people
// wrote is text by now.
var finished = strings.NewReplacer(
	"<pre", `<pre tabindex="0"`, "<table>", `<div class="table" tabindex="0"><table>`, "</table>", "</table></div>",
	`<input checked="" disabled="" type="checkbox"`, `<input checked="" disabled="" type="checkbox" aria-label="Done"`,
	`<input disabled="" type="checkbox"`, `<input disabled="" type="checkbox" aria-label="To do"`,
)

// colouredCode is the attribute of a code block that holds its highlighted HTML. The code is highlighted before it is
// rendered, because all pages share the renderer and each has its own effort.
const colouredCode = "arbe-code"

// limited is a writer that fails after more than left bytes, so that rendering stops before it fills memory.
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

// formattable reports whether the Markdown parser handles a text in a reasonable time. Deeply nested quotes and lists take
// too long, and so do tables with many cells, because the parser adds the cells that rows lack.
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
		case strings.Trim(rest, "|:- \t") == "": // the row below a table's head
			columns = max(columns, strings.Count(rest, "|")+1)
		}
		if cells += columns; cells > maxCells {
			return false
		}
	}
	return true
}

// nesting returns how many quotes and lists a line may open, and the rest of the line.
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
		return 0, line // not nested: deep indentation without marks is code
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
			goldmarkhtml.WithHardWraps(), // people press Enter for a line break
			renderer.WithNodeRenderers(util.Prioritized(asText{}, 100), util.Prioritized(mentionRenderer{}, 100)),
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

// asText renders the parts of Markdown that could bring foreign content into a page: HTML as text, and an image as a link to
// it. Code has already been highlighted.
type asText struct{}

// RegisterFuncs replaces goldmark's own renderers of these nodes.
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
