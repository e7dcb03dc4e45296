package entry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestMentions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want string // the handles, with spaces between
	}{
		// What a writer says to someone.
		{"@arbe what broke the build?", "arbe"},
		{"hi @arbe", "arbe"},
		{"@arbe", "arbe"},
		{"@Arbe and @ARBE", "arbe"},
		{"@b and @a, then @b again", "b a"},
		{"@a @b\n@c\n\n@d", "a b c d"},
		{"(@a) \"@b\" '@c' [@d] cc:@e,@f; <@g>", "a b c d e f g"},
		{"@arbe, @bob. @carl: @dora! @eve? @frank's", "arbe bob carl dora eve frank"},
		{"**@a** _@b_ *@c* __@d__ ~~@e~~", "a b c d e"},
		{"# @a\n\n- @b\n- [ ] @c\n\n1. @d\n\n| x | y |\n|---|---|\n| @e | z |", "a b c d e"},
		{"@code-review-2 please", "code-review-2"},
		{"@arbe - look", "arbe"},
		{"@arbe-", "arbe"},
		{"@arbe--", "arbe"},
		{"@a-b @a-c", "a-b a-c"},
		{"@arbe/", "arbe"},
		{"@arbe\u2026 @bob\u3002", "arbe bob"},
		{"[@arbe, look](https://example.com/@bob)", "arbe"},
		{"&lt;@arbe&gt;", "arbe"},
		{"> quoted @bob\n\n@arbe is that so?", "arbe"},
		{"```\n@bob\n```\n@arbe", "arbe"},
		{"a ` alone, @arbe", "arbe"},
		{strings.Repeat("x", entry.MaxHandle), ""},
		{"@" + strings.Repeat("x", entry.MaxHandle), strings.Repeat("x", entry.MaxHandle)},
		// Texts without a mention.
		{"", ""},
		{"nobody", ""},
		{"@", ""},
		{"@ arbe", ""},
		{"@@arbe", ""},
		{"@-arbe", ""},
		{"@" + strings.Repeat("x", entry.MaxHandle+1), ""},
		{"@arbe_bot @arbé @arbeж @äarbe x@arbe x_@arbe é@arbe", ""},
		{"@аrbe", ""}, // the first letter is Cyrillic
		{"@ar\u200bbe", ""},
		{"\\@arbe", ""},
		{"bob@arbe.dev", ""},
		{"<bob@arbe.dev>", ""},
		{"mailto:bob@arbe", ""},
		{"@arbe@example.com", ""},
		{"npm install @arbe/client", ""},
		{"https://example.com/@arbe and http://x.y/?q=@arbe and www.example.com/@arbe", ""},
		{"https://user:@arbe.dev/", ""},
		{"<https://example.com/@arbe>", ""},
		{"/home/@arbe ./@arbe a.@arbe -@arbe", ""},
		{"curl -d @arbe.json", "arbe"}, // it looks like a mention, and that does no harm
		{"curl -d data=@arbe.json", ""},
		{"`@arbe`", ""},
		{"``@arbe ` ``", ""},
		{"`x`@arbe", ""},
		{"```\n@arbe\n```", ""},
		{"~~~ text\n@arbe", ""},
		{"    @arbe", ""},
		{"\t@arbe", ""},
		{"- a\n\n      @arbe", ""},
		{"> @arbe", ""},
		{"> a\n> @arbe", ""},
		{"> a\n@arbe", ""}, // Markdown shows this line in the quote, too
		{"- > @arbe", ""},
		{"[x](@arbe)", ""},
		{"[x](<@arbe>)", ""},
		{"[x](y \"@arbe\")", ""},
		{"[x]: @arbe\n\n[x]", ""},
		{"![@arbe](x.png)", ""},
		{"<a href=\"@arbe\">x</a>", ""},
		{"x <b title='@arbe'>y</b>", ""},
		{"<!-- @arbe -->", ""},
		{"x <!-- @arbe --> y", ""},
		{"<div>\n@arbe\n</div>", ""},
		{"@a\xff @\xffb", "a"},
	} {
		want := strings.Fields(c.want)
		if got := entry.Mentions(c.text); !slices.Equal(got, want) {
			t.Errorf("%q mentions %q, want %q", c.text, got, want)
		}
	}
}

// A text that is too long to be parsed is read line by line, with the same result where the rules are the same.
func TestMentionsOfALongText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("of a log that was pasted\n", 1000)
	for text, want := range map[string]string{
		"@arbe what is this?": "arbe", "(@a, **@b** @C)": "a b c", "@x/y bob@arbe.dev": "", "`@arbe` and @bob": "bob", "`@arbe": "",
		"> @arbe": "", "    @arbe": "", "```go\n@arbe\n```\n@bob": "bob", "~~~\n```\n@arbe\n~~~": "", "<b>@arbe</b>": "",
		"``a ` @arbe`` @bob": "bob", "``x @arbe y` z`` @bob": "bob", "```x``y @arbe```, @bob:\n```diff\n+ @eve\n```\n@carl": "bob carl",
		"see https://example.com/@arbe": "", "[x](@arbe)": "", "[x](/y/@arbe)": "", "www.example.com/(@arbe)": "",
	} {
		for place, whole := range map[string]string{"at the end": long + "\n" + text, "at the beginning": text + "\n\n" + long} {
			if place == "at the beginning" && strings.Count(text, "`")%2 == 1 {
				continue
			}
			if got := entry.Mentions(whole); !slices.Equal(got, strings.Fields(want)) {
				t.Errorf("%q %s mentions %q, want %q", text, place, got, want)
			}
		}
	}
}

func TestFiftyMentionsCount(t *testing.T) {
	t.Parallel()
	for _, between := range []string{" ", strings.Repeat("\n", 500)} {
		var text strings.Builder
		var want []string
		for i := range 3 * entry.MaxMentions {
			fmt.Fprintf(&text, "@bot-%d%s", i, between)
			want = append(want, fmt.Sprintf("bot-%d", i))
		}
		if got := entry.Mentions(text.String()); !slices.Equal(got, want[:entry.MaxMentions]) {
			t.Errorf("%d bytes mention %d: %v", text.Len(), len(got), got)
		}
	}
}

// hostile returns texts of about this many bytes that make a Markdown parser work hard, each with mentions.
func hostile(size int) []string {
	var texts []string
	for _, unit := range []string{"[a](", "![](", "[](", "[a][", "[a]: @b\n", "[[]](", "[*", "_a*", "](", "[]()", "<a ", "<!--", "<?", "<![CDATA[", "&#", "`a``",
		"```\n", "http://a", "http://a.b ", "www.a.b/(", "a@b.c ", "- [ ] a\n", "> - ", ">", "- ", "1. ", "\\\n", "@", "@a", "@a ", "@a_", "_", "@-", "((", "x@y "} {
		texts = append(texts, strings.Repeat(unit, size/len(unit))+" @arbe", "@arbe "+strings.Repeat(unit, size/len(unit)))
	}
	var grows strings.Builder
	for i := 0; grows.Len() < size; i++ {
		fmt.Fprintf(&grows, "e%s", strings.Repeat("`", i))
	}
	return append(texts, grows.String()+" @arbe", strings.Repeat("[", size/2)+"@arbe"+strings.Repeat("]", size/2))
}

func TestMentionsOfAHostileTextCostLittle(t *testing.T) {
	t.Parallel()
	for _, size := range []int{8 << 10, 256 << 10} {
		for _, text := range hostile(size - 10) {
			start := time.Now()
			entry.Mentions(text)
			if took := time.Since(start); took > 20*time.Second { // quadratic time would be minutes
				t.Errorf("%d bytes of %.20q took %v", len(text), text, took)
			}
		}
	}
}

func TestIsHandle(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a", "0", "arbe", "code-review", "a--b", strings.Repeat("a", entry.MaxHandle)} {
		if !entry.IsHandle(s) {
			t.Errorf("%q is none", s)
		}
	}
	for _, s := range []string{"", "-", "-a", "a-", "A", "a_b", "a.b", "a b", "é", "@a", "a\n", strings.Repeat("a", entry.MaxHandle+1)} {
		if entry.IsHandle(s) {
			t.Errorf("%q is one", s)
		}
	}
}

// FuzzMentions checks that mentions are handles that occur in the text, each once, whatever people write.
func FuzzMentions(f *testing.F) {
	for _, text := range append(hostile(200), "@a `@b` > @c", "> @a\n\n@b", "[@a](@b)", "@a\n```\n@b", "\u202e@a") {
		f.Add(text)
		f.Add(strings.Repeat("x\n", 5000) + text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := entry.Mentions(text)
		if len(got) > entry.MaxMentions {
			t.Errorf("%d mentions", len(got))
		}
		lower := strings.ToLower(text)
		for i, handle := range got {
			if !entry.IsHandle(handle) || !strings.Contains(lower, "@"+handle) || slices.Contains(got[:i], handle) {
				t.Errorf("it mentions %q", got)
			}
		}
		if !utf8.ValidString(text) || strings.Contains(text, "`") || len(text) > 1000 {
			return
		}
		// Text in a code block is code whatever it contains.
		if in := entry.Mentions("```\n" + text + "\n```"); len(in) > 0 && !strings.Contains(text, "```") {
			t.Errorf("as code it mentions %q", in)
		}
	})
}
