package web

import (
	"embed"
	"html"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/chroma/v2"
)

// Colouring code runs regular expressions that backtrack over text that strangers wrote, and one of them
// cannot be stopped. So only languages are coloured whose expressions were tested against hostile text
// (TestHostileCodeCostsLittle), each block is short, and the time is bounded from one token to the next.

const (
	// maxCode is the longest block of code that is coloured, in bytes.
	maxCode = 8 << 10
	// blockTime is how long colouring one block may take.
	blockTime = 100 * time.Millisecond
)

// effort is what is left to spend on formatting: a page has one for all of its messages. What is beyond is
// shown as plain text. It is not safe for concurrent use.
type effort struct {
	// code is how many bytes of code may be coloured.
	code int
	time time.Duration
}

// newEffort is what a page may spend.
func newEffort() *effort { return &effort{code: 256 << 10, time: time.Second} }

//go:generate env -C lexers go run .
//go:embed lexers/*.xml
var lexerFiles embed.FS

// registry has the lexers that are used. Those that find others by name, as HTML does, find only these.
var registry = sync.OnceValue(func() *chroma.LexerRegistry {
	r := chroma.NewLexerRegistry()
	files, err := fs.Glob(lexerFiles, "lexers/*.xml")
	if err != nil {
		panic(err) // a malformed pattern
	}
	for _, name := range files {
		r.Register(chroma.MustNewXMLLexer(lexerFiles, name))
	}
	return r
})

// lexerOf is the lexer of a language by its name, an alias or the end of its files' names; nil if there is none.
func lexerOf(language string) chroma.Lexer {
	if language == "" || len(language) > 30 {
		return nil
	}
	return registry().Get(language)
}

// highlight renders a block of code, in colours if the language and the effort that is left allow it.
func (e *effort) highlight(language, text string) string {
	var b strings.Builder
	b.WriteString(`<pre class="chroma"><code>`)
	lexer := lexerOf(language)
	if lexer == nil || len(text) > min(maxCode, e.code) {
		b.WriteString(html.EscapeString(text))
	} else {
		e.code -= len(text)
		for _, t := range tokens(lexer, text, time.Now().Add(blockTime)) {
			appendToken(&b, t)
		}
	}
	b.WriteString("</code></pre>\n")
	return b.String()
}

// tokens splits a text into tokens until the deadline; the rest is one token of plain text. A lexer that
// panics, or that does not give back what it was given, has no tokens.
func tokens(lexer chroma.Lexer, text string, deadline time.Time) []chroma.Token {
	var all []chroma.Token
	rest := text
	err := guarded(func() error {
		next, err := lexer.Tokenise(nil, text)
		if err != nil {
			return err
		}
		for time.Now().Before(deadline) {
			t := next()
			if t == chroma.EOF {
				break
			}
			after, ok := strings.CutPrefix(rest, t.Value)
			if !ok {
				break
			}
			all, rest = append(all, t), after
		}
		return nil
	})
	if err != nil {
		all, rest = nil, text
	}
	return append(all, chroma.Token{Type: chroma.Text, Value: rest})
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
