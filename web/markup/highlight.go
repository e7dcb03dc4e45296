// Package markup converts text from programs, models and people to HTML: Markdown, code, and the output of commands. The HTML
// is safe to put into a page whatever the text is. Its size, and the time to make it, are bounded. [ParseDiff] converts
// patches to data. The package knows nothing about entries or pages.
package markup

import (
	"embed"
	"html"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/chroma/v2"
)

// Highlighting runs backtracking regular expressions over text from strangers, and a running match cannot be stopped.
// Therefore only languages whose expressions were tested against hostile text are highlighted
// (TestHostileCodeCostsLittle), each block is short, and the time limit is checked between tokens.

const (
	// maxCode limits a highlighted block of code, in bytes.
	maxCode = 8 << 10
	// blockTime limits the highlighting of one block.
	blockTime = 100 * time.Millisecond
)

// Effort is the remaining budget for formatting. All messages of a page share it. When it is spent, the rest is shown as
// plain text, so that a page takes a bounded time. It is not safe for concurrent use.
type Effort struct {
	// code is the number of bytes of code that may still be highlighted.
	code int
	// block limits the highlighting of one block.
	block time.Duration
	time  time.Duration
	// loading limits how much of the time for loading lexers is not counted.
	loading time.Duration
	// Mentions are shown as links. Defaults to none.
	Mentions Mentions
}

// NewEffort returns the budget of one page.
func NewEffort() *Effort {
	return &Effort{code: 256 << 10, block: blockTime, time: time.Second, loading: time.Second}
}

// EffortOf returns a budget that ends after d.
func EffortOf(d time.Duration) *Effort {
	e := NewEffort()
	e.time = d
	return e
}

// Spent reports whether nothing more will be formatted.
func (e *Effort) Spent() bool { return e.time <= 0 }

//go:generate env -C lexers go run .
//go:embed lexers/*.xml
var lexerFiles embed.FS

// registry holds the tested lexers. A lexer that looks up others by name, as the one for HTML does, finds only these, not
// chroma's untested ones.
var registry = sync.OnceValue(func() *chroma.LexerRegistry {
	r := chroma.NewLexerRegistry()
	files, err := fs.Glob(lexerFiles, "lexers/*.xml")
	if err != nil {
		panic(err) // impossible: the pattern is a constant
	}
	for _, name := range files {
		r.Register(chroma.MustNewXMLLexer(lexerFiles, name))
	}
	return r
})

// lexerOf returns the lexer of a language by its name, an alias or a file extension, or nil if the language is unknown.
func lexerOf(language string) chroma.Lexer {
	if language == "" || len(language) > 30 {
		return nil
	}
	return registry().Get(language)
}

// Code renders the text of a file, highlighted if it is short and in a known language: a name, an alias or a file extension.
func Code(language, text string) string { return NewEffort().highlight(language, text) }

// highlight renders a block of code, highlighted if the language and the remaining effort allow it.
func (e *Effort) highlight(language, text string) string {
	var b strings.Builder
	b.WriteString(`<pre class="chroma"><code>`)
	lexer := e.load(func() chroma.Lexer { return lexerOf(language) })
	if lexer == nil || len(text) > min(maxCode, e.code) {
		b.WriteString(html.EscapeString(text))
	} else {
		e.code -= len(text)
		for _, t := range tokens(lexer, text, time.Now().Add(e.block)) {
			appendToken(&b, t)
		}
	}
	b.WriteString("</code></pre>\n")
	return b.String()
}

// load returns a compiled lexer. Compiling takes long for the first page that needs the lexer. This time is not counted,
// because otherwise the page's other messages would be plain. Time beyond e.loading is counted, so that a page takes a
// bounded time.
func (e *Effort) load(lexerOf func() chroma.Lexer) chroma.Lexer {
	start := time.Now()
	lexer := lexerOf()
	if lexer != nil {
		_, _ = lexer.Tokenise(nil, "") // compiles it; the text gives the same error
	}
	free := min(time.Since(start), e.loading)
	e.loading -= free
	e.time += free
	return lexer
}

// tokens splits a text into tokens until the deadline, or until the lexer changes the text. The rest is one plain
// token, so that the text is always shown as it was written. If the lexer fails or panics, there are no other tokens.
func tokens(lexer chroma.Lexer, text string, deadline time.Time) (all []chroma.Token) {
	plain := chroma.Token{Type: chroma.Text, Value: text}
	defer func() {
		if recover() != nil {
			all = []chroma.Token{plain}
		}
	}()
	next, err := lexer.Tokenise(nil, text)
	if err != nil {
		return []chroma.Token{plain}
	}
	for time.Now().Before(deadline) {
		t := next()
		after, ok := strings.CutPrefix(plain.Value, t.Value)
		if t == chroma.EOF || !ok {
			break
		}
		all, plain.Value = append(all, t), after
	}
	return append(all, plain)
}

func appendToken(b *strings.Builder, t chroma.Token) {
	class := ""
	for kind := t.Type; class == "" && kind > 0 && kind < chroma.Text; kind = kind.Parent() {
		class = chroma.StandardTypes[kind]
	}
	if class == "" {
		b.WriteString(html.EscapeString(t.Value))
		return
	}
	b.WriteString(`<span class="`)
	b.WriteString(class)
	b.WriteString(`">`)
	b.WriteString(html.EscapeString(t.Value))
	b.WriteString(`</span>`)
}
