package markup

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// formattedTags lists the elements and attributes of a message.
var formattedTags = map[string]string{
	"p": "", "br": "", "hr": "", "strong": "", "em": "", "del": "", "blockquote": "", "ul": "", "ol": "start", "li": "",
	"pre": "class tabindex", "code": "class", "span": "class", "h1": "", "h2": "", "h3": "", "h4": "", "h5": "", "h6": "",
	"table": "", "thead": "", "tbody": "", "tr": "", "th": "align", "td": "align",
	"a": "href rel target", "input": "type checked disabled aria-label", "div": "class tabindex",
}

// hostileMarkdown returns texts of about this many bytes that make a Markdown renderer work hard.
func hostileMarkdown(size int) map[string]string {
	of := func(unit string) string { return strings.Repeat(unit, size/len(unit)) }
	half := func(unit string) string { return strings.Repeat(unit, size/2/len(unit)) }
	growing := func(line func(i int) string) string {
		var b strings.Builder
		for i := 1; ; i++ {
			next := line(i)
			if b.Len()+len(next) > size {
				return b.String()
			}
			b.WriteString(next)
		}
	}
	texts := map[string]string{
		"a table with many columns":    "|" + strings.Repeat("a|", size/8) + "\n|" + strings.Repeat("-|", size/8) + "\n" + strings.Repeat("|\n", size/4),
		"a table with many cells":      "|" + strings.Repeat("a|", 30) + "\n|" + strings.Repeat("-|", 30) + "\n" + half("|\n"),
		"a table in a quote":           "> |" + strings.Repeat("a|", 100) + "\n> |" + strings.Repeat("-|", 100) + "\n" + half("> |\n"),
		"a deep list and empty lines":  strings.Repeat("- ", size/4) + "a\n" + half("\n"),
		"a deep list over some lines":  growing(func(i int) string { return strings.Repeat(" ", 40*(i-1)) + strings.Repeat("- ", 20) + "a\n" }) + half("\n"),
		"a deep list and lines":        strings.Repeat("1. ", size/6) + "a\n" + half("a\n"),
		"a deep quote":                 of(">"),
		"deep quotes":                  of(strings.Repeat(">", 200) + "a\n"),
		"quotes and lists":             of("> - "),
		"a list that grows":            growing(func(i int) string { return strings.Repeat(" ", 2*i) + "- a\n" }),
		"a quote that grows":           growing(func(i int) string { return strings.Repeat(">", i) + "a\n" }),
		"code in backticks that grow":  growing(func(i int) string { return "e" + strings.Repeat("`", i) }),
		"a long address for many":      "[a]: http://" + half("b") + "\n\n" + half("[a]"),
		"brackets around":              half("[") + half("]"),
		"emphasis around":              half("*a **a ") + half("a** a*"),
		"many references":              growing(func(i int) string { return fmt.Sprintf("[%d]: a\n", i) }),
		"code that is not ended":       "```go\n" + of("func "),
		"code of many kinds":           of("```go\nx\n```\n```python\nx\n```\n"),
		"code of a kind without bound": "```" + of("x") + "\n```",
	}
	units := []string{
		"[a](", "![](", "[](", "[a][", "[a]: b\n", "[a]: b\n[a] ", "[[]](", "![[", "[*", "*[", "_[", "](", "[]()", "[a]", "*a_ ", "_a*",
		"**a*", "a**b", "a*b*c_", "a**b_c ", "~a~", "~~a~~ ", "<a ", "<!--", "<?", "<!A ", "<![CDATA[", "</a", "<a>", "&#", "&a", "`a``", "```\n",
		"~~~ a\n", "http://a", "http://a.b ", "www.a.b/(", "a@b.c ", "- [ ] a\n", "|a", "a\n===\n", "\\\n", "  \n",
	}
	for c := rune(' '); c < 0x7f; c++ {
		units = append(units, string(c), string(c)+" ", string(c)+"\n", "a"+string(c), string(c)+"a\n")
	}
	for _, unit := range units {
		texts[fmt.Sprintf("%q", unit)] = of(unit)
	}
	return texts
}

// A text of the length that a page shows costs little, and the longest formatted text costs not much more.
func TestHostileMarkdownCostsLittle(t *testing.T) {
	t.Parallel()
	for _, language := range registry().Names(false) {
		NewEffort().highlight(language, "") // loads the lexer, which is not measured
	}
	for name, text := range hostileMarkdown(shownAtOnce) {
		var shown string
		if took := cpuTime(t, func() { shown = Markdown(text, NewEffort()) }); took > limitOf(200*time.Millisecond) {
			t.Errorf("%s: took %v", name, took)
		}
		if len(shown) > 512<<10 {
			t.Errorf("%s: is shown as %d bytes", name, len(shown))
		}
	}
	for _, name := range []string{`"_a*"`, `"[]("`, `"[a]("`, "a deep list over some lines", "a table with many columns", "a long address for many", "brackets around"} {
		text := hostileMarkdown(maxFormatted - 100)[name]
		if took := cpuTime(t, func() { Markdown(text, NewEffort()) }); text == "" || took > limitOf(time.Second) {
			t.Errorf("%s of %d bytes: took %v", name, len(text), took)
		}
	}
}

// A page stops formatting when its time is used up, whatever its messages are.
func TestAPageHasItsTimeForAllOfItsMessages(t *testing.T) {
	t.Parallel()
	e := NewEffort()
	e.time = time.Nanosecond
	if shown := Markdown("**one**", e); !strings.Contains(shown, "<strong>") {
		t.Errorf("the first message is shown as %s", shown)
	}
	if shown := Markdown("**two**", e); shown != `<pre class="plain">**two**</pre>` {
		t.Errorf("the second message is shown as %s", shown)
	}
}

func TestWhatIsTooMuchForMarkdownIsPlain(t *testing.T) {
	t.Parallel()
	plain := func(text string) bool {
		return strings.HasPrefix(Markdown(text, NewEffort()), `<pre class="plain">`)
	}
	for name, text := range map[string]string{
		"a long text":       strings.Repeat("x ", maxFormatted),
		"a deep list":       strings.Repeat("- ", maxDepth+1) + "a",
		"a deep quote":      strings.Repeat("> ", maxDepth+1) + "a",
		"a list far inside": strings.Repeat(" ", 2*maxDepth) + "- a",
		"a wide table":      strings.Repeat("a|", 200) + "\n" + strings.Repeat("-|", 200) + "\n" + strings.Repeat("a\n", 40),
	} {
		if !plain(text) {
			t.Errorf("%s is formatted", name)
		}
	}
	for name, text := range map[string]string{
		"a line across":           strings.Repeat("- ", 20),
		"a long line across":      strings.Repeat("-", 500),
		"code that is far inside": strings.Repeat("\t", 100) + "return",
		"a table":                 "|a|b|c|\n|-|-|-|\n" + strings.Repeat("|1|2|3|\n", 500),
		"a list":                  strings.Repeat("1. a\n   - b\n     * c\n", 200),
	} {
		if plain(text) {
			t.Errorf("%s is not formatted", name)
		}
	}
}

// FuzzMarkdown feeds texts to the message renderer. The result must be safe HTML, within limits of time and size.
func FuzzMarkdown(f *testing.F) {
	for _, text := range hostileMarkdown(500) {
		f.Add(text)
	}
	f.Add("# a\n\n[x](javascript:a) <script>b</script> ![i](http://e.com/i.png)\n\n```go\nfunc main() {}\n```\n\n- [x] **c** `d`\n\n| a | b |\n|--:|---|\n| 1 |")
	f.Add("```diff\n" + hunk + "```\n")
	f.Add(hunk)
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // no log has it
		}
		var shown string
		var took time.Duration
		n := allocated(func() { took = cpuTime(t, func() { shown = Markdown(text, NewEffort()) }) })
		if took > limitOf(2*time.Second) {
			t.Errorf("%d bytes took %v", len(text), took)
		}
		if n > 128<<20 {
			t.Errorf("%d bytes allocated %d", len(text), n)
		}
		if len(shown) > 2*maxMarkup && len(shown) > 6*len(text)+100 {
			t.Errorf("%d bytes are shown as %d", len(text), len(shown))
		}
		hasOnly(t, shown, formattedTags)
	})
}

// shownAtOnce is how much of a text pages show at first, in bytes.
const shownAtOnce = 12 << 10
