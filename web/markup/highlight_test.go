package markup

import (
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

// unhurried returns a budget whose time does not run out on a busy machine.
func unhurried() *Effort {
	e := NewEffort()
	e.block, e.time = time.Hour, time.Hour
	return e
}

func TestHighlight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ language, code, want string }{
		{"go", "var a = \"<\" // x\n", `<span class="kd">var</span> <span class="nx">a</span> <span class="p">=</span> <span class="s">&#34;&lt;&#34;</span> <span class="c1">// x</span>
`},
		{"Python", "def a(): pass", `<span class="k">def</span> <span class="nf">a</span><span class="p">(</span><span class="p">)</span><span class="p">:</span> <span class="k">pass</span>`},
		{"diff", "-a\n+b\n", "<span class=\"gd\">-a\n</span><span class=\"gi\">+b\n</span>"},
		{"", "var a <b>", "var a &lt;b&gt;"},
		{"jsonata", "var a", "var a"},
		{strings.Repeat("go", 20), "var a", "var a"},
		{"go", strings.Repeat("var\n", maxCode/4+1), strings.Repeat("var\n", maxCode/4+1)},
	} {
		want := `<pre class="chroma"><code>` + c.want + "</code></pre>\n"
		got := unhurried().highlight(c.language, c.code)
		for tries := 0; got != want && tries < interrupted; tries++ {
			got = unhurried().highlight(c.language, c.code)
		}
		if got != want {
			t.Errorf("%s is shown as\n%s, want\n%s", c.language, beginningOf(got, 500), beginningOf(want, 500))
		}
	}
	t.Run("stops when a page has coloured enough", func(t *testing.T) {
		e := unhurried()
		e.code = 10
		first, second := e.highlight("go", "var a\n"), e.highlight("go", "var a\n")
		if !strings.Contains(first, "<span") || strings.Contains(second, "<span") {
			t.Errorf("got %s, then %s", first, second)
		}
	})
	t.Run("is plain from where its time ended", func(t *testing.T) {
		got := tokens(lexerOf("go"), "var a", time.Now())
		if len(got) != 1 || got[0].Value != "var a" {
			t.Errorf("got %v", got)
		}
	})
	t.Run("loads a language at the cost of no message, up to a limit", func(t *testing.T) {
		e := &Effort{time: time.Second, loading: 30 * time.Millisecond}
		load := func(takes time.Duration) {
			e.load(func() chroma.Lexer {
				time.Sleep(takes) // a lexer that is slow to load
				return nil
			})
		}
		load(10 * time.Millisecond)
		if e.time < time.Second+10*time.Millisecond {
			t.Errorf("of the time to load a language, %v came back", e.time-time.Second)
		}
		load(time.Second / 10)
		if most := time.Second + 30*time.Millisecond; e.time != most || e.loading != 0 {
			t.Errorf("the page has %v, want at most %v", e.time, most)
		}
	})
	t.Run("knows every language by the names that people use", func(t *testing.T) {
		for _, name := range strings.Fields("bash sh shell c cpp c++ c# csharp css bash-session console diff docker dockerfile go golang html ini graphql lua nginx perl powershell protobuf r scala scss tsx elixir haskell java javascript js json kotlin make makefile php py python rb ruby rs rust sql swift toml ts typescript xml yaml yml") {
			if lexerOf(name) == nil {
				t.Errorf("%s is not coloured", name)
			}
		}
	})
}

// interrupted limits the retries of highlighting before a difference counts. A match that takes 250 ms fails, and a busy
// machine may interrupt even a short match for that long.
const interrupted = 20

// The files of the lexers match chroma's own lexers.
func TestLexersAreChromas(t *testing.T) {
	t.Parallel()
	var samples []string
	for _, name := range []string{"../../Makefile", "../../README.md", "../../.ci/run", "../../proto/ts/package.json", "../../proto/ts/src/client.ts", "../static/arbe.css", "../script/reading.js", "../thread.templ", "../../db/queries/thread.sql"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, string(text[:min(len(text), 1000)]))
	}
	spell := func(lexer chroma.Lexer, text string) string {
		next, err := chroma.Coalesce(lexer).Tokenise(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(next.Tokens())
	}
	names := registry().Names(false)
	if len(names) < 44 {
		t.Errorf("only %d languages are coloured: %v", len(names), names)
	}
	for _, language := range names {
		for _, text := range samples {
			got, want := spell(registry().Get(language), text), spell(lexers.Get(language), text)
			for tries := 0; got != want && tries < interrupted; tries++ {
				got, want = spell(registry().Get(language), text), spell(lexers.Get(language), text)
			}
			if got != want {
				t.Errorf("%s: %s\nis %s\nwant %s", language, beginningOf(text, 200), beginningOf(got, 500), beginningOf(want, 500))
			}
		}
	}
}

// hostileCode returns texts of this many bytes that make regular expressions backtrack.
func hostileCode(size int) map[string]string {
	texts := map[string]string{}
	units := strings.Split("/* // <!-- <a| <a b= </ <? <% <script> <style> ${ #{ {{ {% [[ (( $(( \"\"\" ''' '''a <<EOF\n << =begin\n r#\" R\"( @\" $\" "+
		"{- (* --[[ %{ %q( %w[ q{ /a s/a/ 0x 1. 1e 1_ a.b. a:: a<b< a(b( a[b[ a|b| if| function| def| class| import|a. public| static|int| int|a( "+
		"type| let| fn| a:| -|a:| a|=| a=\" [a]( #[ #define|a\\\n #if|0\n SELECT|*|FROM| 'a'' \"a\"\" \"\\ \"a\\ \"${ \"#{ `${ $( $' f\"{ f'{a return|/ "+
		"+a\n a\tb {a:b; a{b{ :a( :not( @media| url( export| new|a( a<b, impl<'a 'a:| macro!( end\n <?php| $a-> \"$a[ {$a func|( map[ interface{ "+
		"FROM|a\n RUN|a|\\\n a:|b\n\t $(a| ${a:- #!a\n 'a' \"a\" a|?|b|:| a|<|b|>| <a> <a/> &a; a|& \"a\":| {\"a\":| [1,| key|=|[ =|a\n", " ")
	for _, unit := range units {
		texts[fmt.Sprintf("%q", unit)] = strings.Repeat(strings.ReplaceAll(unit, "|", " "), size/len(unit))
	}
	for c := range strings.SplitSeq("a1 \t\n!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "") {
		for _, unit := range []string{c, "a" + c} {
			texts[fmt.Sprintf("%q", unit)] = strings.Repeat(unit, size/len(unit))
		}
	}
	for name, text := range texts {
		texts[name] = text + "\x01\n" // so that a match up to the end fails
	}
	return texts
}

// Highlighting any language stops soon after its time limit, whatever the text. Add a language to the list only if it passes.
func TestHostileCodeCostsLittle(t *testing.T) {
	t.Parallel()
	size := 256
	if raceEnabled {
		size = 128
	}
	for _, language := range registry().Names(false) {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if lexerOf(language) == nil {
				t.Fatal("it is not coloured")
			}
			NewEffort().highlight(language, "") // loads the lexer, which is not measured
			for name, text := range hostileCode(size) {
				if took := cpuTime(t, func() { NewEffort().highlight(language, text) }); took > limitOf(3*blockTime) {
					t.Errorf("%s: took %v", name, took)
				}
			}
		})
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

// FuzzHighlight feeds code to the lexer of every language. The code must be shown unchanged, in colours, and soon.
func FuzzHighlight(f *testing.F) {
	languages := registry().Names(false)
	for i := range languages {
		for _, code := range []string{"func a() { return \"b\" } // c", "<a b='c'>d</a><!-- e", "a: [1, \"b\", 'c']\n# d\n", "${a:-\"$(b)\"} <<EOF\nc", hunk, "'''\"\"\"/*{-`\\"} {
			f.Add(uint8(i), code)
		}
	}
	f.Fuzz(func(t *testing.T, language uint8, code string) {
		if !utf8.ValidString(code) || strings.Contains(code, "\r") {
			return // no log has the first, and the renderer removes the second
		}
		name := languages[int(language)%len(languages)]
		var shown string
		var took time.Duration
		n := allocated(func() { took = cpuTime(t, func() { shown = NewEffort().highlight(name, code) }) })
		if took > limitOf(5*blockTime) {
			t.Errorf("%s: %d bytes took %v", name, len(code), took)
		}
		if n > 128<<20 {
			t.Errorf("%s: %d bytes allocated %d", name, len(code), n)
		}
		hasOnly(t, shown, map[string]string{"pre": "class", "code": "", "span": "class"})
		if text := html.UnescapeString(tags.ReplaceAllString(shown, "")); text != code+"\n" {
			t.Errorf("%s: %q is shown as %q", name, code, text)
		}
	})
}
