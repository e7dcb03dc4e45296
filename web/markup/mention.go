package markup

import (
	"html"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	reader "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Mentions finds the mentions in a message, such as @arbe, and their links.
type Mentions struct {
	// Find returns the ranges of the mentions in a text: the offset of the first byte of each, and the offset after its last.
	Find func(text []byte) [][2]int
	// Address returns the link for a handle without its @, or "" if the handle means nobody.
	Address func(handle string) string
}

// mention is an inline node around the text of a mention.
type mention struct{ ast.BaseInline }

var kindMention = ast.NewNodeKind("Mention")

func (*mention) Kind() ast.NodeKind { return kindMention }

func (m *mention) Dump(source []byte, level int) { ast.DumpHelper(m, source, level, nil, nil) }

// mark puts the mentions of a document into their own nodes. It skips code, quotes and links, which mention nobody.
func (m Mentions) mark(doc ast.Node, source []byte) {
	if m.Find == nil || m.Address == nil {
		return
	}
	var texts []*ast.Text
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Blockquote, *ast.CodeSpan, *ast.Image, *ast.Link, *ast.AutoLink, *ast.RawHTML, *ast.HTMLBlock, *ast.CodeBlock, *ast.FencedCodeBlock:
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			if entering {
				texts = append(texts, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, t := range texts {
		from, at := t.Segment.Start, t.Segment.Start
		for _, span := range m.Find(t.Segment.Value(source)) {
			start, end := from+span[0], from+span[1]
			if m.Address(strings.ToLower(string(source[start+1:end]))) == "" {
				continue
			}
			node := &mention{}
			node.AppendChild(node, ast.NewTextSegment(reader.NewSegment(start, end)))
			if start > at {
				t.Parent().InsertBefore(t.Parent(), t, ast.NewTextSegment(reader.NewSegment(at, start)))
			}
			t.Parent().InsertBefore(t.Parent(), t, node)
			at = end
		}
		t.Segment = t.Segment.WithStart(at)
	}
}

type mentionRenderer struct{}

func (mentionRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(kindMention, func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
		tag := "</span>"
		if entering {
			tag = `<span class="mention">`
		}
		_, _ = w.WriteString(tag)
		return ast.WalkContinue, nil
	})
}

var marked = lazyregexp.New(`<span class="mention">(@([A-Za-z0-9-]+))</span>`)

// link turns the mentions in safe HTML into links. Only the renderer writes elements for mentions, because HTML that people
// wrote is text. The links are added after the sanitizer, which would remove them: people may not link to the house's own
// pages by a path.
func (m Mentions) link(safe string) string {
	if m.Address == nil || !strings.Contains(safe, `class="mention"`) {
		return safe
	}
	return marked.ReplaceAllStringFunc(safe, func(found string) string {
		parts := marked.FindStringSubmatch(found)
		address := m.Address(strings.ToLower(parts[2]))
		if address == "" {
			return found
		}
		return `<a class="mention" href="` + html.EscapeString(address) + `">` + parts[1] + `</a>`
	})
}
