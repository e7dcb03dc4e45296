package web

import (
	"bytes"
	"html"
	"regexp"
	"sync"

	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	highlighting "github.com/yuin/goldmark-highlighting/v2"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/util"
)

// maxFormatted is the longest text that is rendered as Markdown, in bytes. Colouring code and laying out
// tables is made for what people read; a longer text is shown as it is.
const maxFormatted = 64 << 10

// markdown renders what somebody said as HTML that is safe to put into a page. Two fences stand between
// their text and the reader: the renderer writes HTML in it as text and images as links, and the sanitizer
// lets nothing through that a message does not need.
func markdown(text string) string {
	if len(text) > maxFormatted {
		return `<pre class="plain">` + html.EscapeString(text) + `</pre>`
	}
	var b bytes.Buffer
	if err := formatter().Convert([]byte(text), &b); err != nil {
		return `<p>` + html.EscapeString(text) + `</p>`
	}
	return messagePolicy().Sanitize(b.String())
}

var formatter = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough, extension.Linkify, extension.TaskList,
			highlighting.NewHighlighting(highlighting.WithFormatOptions(chromahtml.WithClasses(true))),
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
// is, an image as a link to it.
type asText struct{}

// RegisterFuncs takes those kinds over from goldmark's own renderer.
func (asText) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, rawHTML)
	r.Register(ast.KindHTMLBlock, htmlBlock)
	r.Register(ast.KindImage, imageLink)
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
