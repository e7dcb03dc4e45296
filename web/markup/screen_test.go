package markup

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

func TestScreen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, output, want string }{
		{"text is escaped", "a <b> & \"c\" 'd'\n", `a &lt;b&gt; &amp; "c" 'd'`},
		{"lines", "a\n\nb\n", "a\n\nb"},
		{"a line without its end", "a\nb", "a\nb"},
		{"the end of a line of Windows", "a\r\nb\r\n", "a\nb"},
		{"a tab", "a\tb", "a\tb"},
		{"trailing blanks", "a  \nb", "a\nb"},
		{"other control characters", "a\x00\x07\x0e\x7f\u0085b", "ab"},
		{"what is not UTF-8", "a\xff\xc3b", "a\ufffd\ufffdb"},
		{"several bytes for a character", "äöü€😀", "äöü€😀"},
		{"a progress bar", "10%\r20%\r100%\n", "100%"},
		{"backspace", "ab\b\b\b\bc", "cb"},
		{"a colour", "\x1b[31mred\x1b[0m plain", `<span class="term-fg31">red</span> plain`},
		{"a bright colour on another", "\x1b[92;101mx", `<span class="term-fgi92 term-bgi101">x</span>`},
		{"the palette", "\x1b[38;5;196mx\x1b[48:5:17my\x1b[39;49mz", `<span class="term-fgx196">x</span><span class="term-fgx196 term-bgx17">y</span>z`},
		{"the first sixteen of the palette", "\x1b[38;5;1mx\x1b[48;5;9my", `<span class="term-fg31">x</span><span class="term-fg31 term-bgi101">y</span>`},
		{"any colour", "\x1b[38;2;255;0;0mx", `<span class="term-fgx196">x</span>`},
		{"a colour that does not exist", "\x1b[38;5;256mx\x1b[38;9mx\x1b[38mx", "xxx"},
		{"styles", "\x1b[1;3;4;5;9mx\x1b[22;23;24;25;29my", `<span class="term-fg1 term-fg3 term-fg4 term-fg5 term-fg9">x</span>y`},
		{"faint instead of bold", "\x1b[1m\x1b[2mx", `<span class="term-fg2">x</span>`},
		{"a colour over two lines", "\x1b[32ma\nb", "<span class=\"term-fg32\">a</span>\n<span class=\"term-fg32\">b</span>"},
		{"going up and back", "one\ntwo\n\x1b[2AONE\x1b[B\rTWO", "ONE\nTWO"},
		{"going down where nothing is", "a\x1b[2Bb", "a\n\n b"},
		{"going to a column", "abc\x1b[2GX\x1b[5GY", "aXc Y"},
		{"lines up and down", "a\nb\x1b[Fc\x1b[Ed", "c\nd"},
		{"going to a place keeps what was there", "abc\x1b[1;1Hdef", "abc\ndef"},
		{"erasing the end of a line", "abcdef\x1b[3D\x1b[K", "abc"},
		{"erasing the beginning of a line", "abcdef\x1b[3D\x1b[1K", "    ef"},
		{"erasing a line", "abc\x1b[2K\rx", "x"},
		{"erasing what is below", "a\nb\nc\x1b[2A\r\x1b[J", "\n"},
		{"erasing what is above", "a\nb\nc\x1b[1J", "\n\n"},
		{"clearing the screen", "a\nb\x1b[2Jc", " c"},
		{"clearing it twice", "a\x1b[2Jb\x1b[2J\x1b[3Jc", "  c"},
		{"what clear prints", "old\nlines\n\x1b[H\x1b[2J\x1b[3Jnew\nlines\n", "new\nlines"},
		{"a program that draws its screen again", "\x1b[2J\x1b[1;1Hone\x1b[2;1H10%\x1b[1;1HONE\x1b[2;1H100%", "ONE\n100%"},
		{"inverse", "\x1b[7ma\x1b[27mb", `<span class="term-inverse">a</span>b`},
		{"inverse colours", "\x1b[7;31ma\x1b[0;7;42mb\x1b[0;7;31;42mc\x1b[0;7;38;5;196md\x1b[0;7;92me",
			`<span class="term-bg41">a</span><span class="term-fg32">b</span><span class="term-fg32 term-bg41">c</span><span class="term-bgx196">d</span><span class="term-bgi102">e</span>`},
		{"any other colour is the nearest of the palette", "\x1b[38;2;95;95;95mx\x1b[48;2;95;135;175my\x1b[38;2;9;9;9mz\x1b[38;2;999;0;0m!",
			`<span class="term-fgx59">x</span><span class="term-fgx59 term-bgx67">y</span><span class="term-fgx232 term-bgx67">z</span><span class="term-fgx196 term-bgx67">!</span>`},
		{"saving the cursor", "ab\x1b7cd\x1b8X", "abXd"},
		{"a line longer than the screen is one line", strings.Repeat("x", 1000) + "\nb", strings.Repeat("x", 1000) + "\nb"},
		{"private modes", "\x1b[?25la\x1b[?1049hb\x1b[>4;1mc\x1b[1 qd", "abcd"},
		{"character sets", "\x1b(Ba\x1b)0b\x1b=c\x1bcd", "abcd"},
		{"a title", "\x1b]0;a title\x07a\x1b]2;another\x1b\\b", "ab"},
		{"strings for others", "\x1bPabc\x1b\\a\x1b_abc\x1b\\b\x1b^abc\x07c", "abc"},
		{"a string without an end hides its line only", "\x1b]0;abc\nnext", "\nnext"},
		{"a link", "\x1b]8;;https://example.com/a?b=1&c=\"\x07here\x1b]8;;\x07 there",
			`<a href="https://example.com/a?b=1&amp;c=&#34;" rel="nofollow noopener" target="_blank">here</a> there`},
		{"a link in two colours", "\x1b]8;id=1;http://e.com\x1b\\\x1b[31ma\x1b[32mb",
			`<a href="http://e.com" rel="nofollow noopener" target="_blank"><span class="term-fg31">a</span><span class="term-fg32">b</span></a>`},
		{"links that lead elsewhere", "\x1b]8;;javascript:alert(1)\x07a\x1b]8;;data:text/html,x\x07b\x1b]8;;/logout\x07c\x1b]8;;//e.com\x07d\x1b]8;;http:\x07e", "abcde"},
		{"an address that is too long", "\x1b]8;;http://e.com/" + strings.Repeat("x", 4000) + "\x07a", "a"},
		{"images", "\x1b]1337;File=name=YQ==;inline=1:YQ==\x07a\x1b]1338;url=http://e.com/x.png\x07b\x1b]1339;url=http://e.com\x07c", "abc"},
		{"a sequence in a sequence", "\x1b[3\x1b[31mx", `<span class="term-fg31">x</span>`},
		{"a newline in a sequence", "\x1b[3\nx", "\nx"},
		{"a sequence that ends the output", "a\x1b[3", "a"},
	} {
		if got := WholeOutput(c.output).HTML; got != c.want {
			t.Errorf("%s: %q is shown as\n%q, want\n%q", c.name, beginningOf(c.output, 200), beginningOf(got, 500), beginningOf(c.want, 500))
		}
		if got := OutputEnd(c.output, 200).HTML; got != c.want {
			t.Errorf("%s: the end of %q is shown as\n%q, want\n%q", c.name, beginningOf(c.output, 200), beginningOf(got, 500), beginningOf(c.want, 500))
		}
	}
}

func TestColoursAreLegibleInBothThemes(t *testing.T) {
	t.Parallel()
	css, err := os.ReadFile("../static/arbe.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{
		fmt.Sprintf("--term: light-dark(%s, %s);", lightGround, darkGround), fmt.Sprintf("--term-ink: light-dark(%s, %s);", lightInk, darkInk),
	} {
		if !strings.Contains(string(css), token) {
			t.Errorf("the style sheet lacks %s", token)
		}
	}
	rules := regexp.MustCompile(`\.term-(fg|bg)x?i?\d+[^{]*\{ ?(?:color|background): ?light-dark\((#\w{6}), ?(#\w{6})\)`).FindAllStringSubmatch(string(css)+Palette(), -1)
	if len(rules) < 2*240+17 {
		t.Fatalf("there are %d rules", len(rules))
	}
	for _, rule := range rules {
		with := map[string][2]rgb{"fg": {lightGround, darkGround}, "bg": {lightInk, darkInk}}[rule[1]]
		for i, other := range with {
			var c rgb
			if _, err := fmt.Sscanf(rule[2+i], "#%02x%02x%02x", &c[0], &c[1], &c[2]); err != nil {
				t.Fatal(err)
			}
			if got := contrast(c, other); got < legible {
				t.Errorf("%s has a contrast of %.2f with %s", rule[0], got, other)
			}
		}
	}
}

func TestScreenEnd(t *testing.T) {
	t.Parallel()
	t.Run("has the last lines and counts those before", func(t *testing.T) {
		t.Parallel()
		got := OutputEnd(strings.Repeat("line\n", 1000)+"last\n", 3)
		if got.HTML != "line\nline\nlast" || got.Lines != 1001 || got.Hidden != 998 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("has a wrapped line whole", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("y", 3*screenColumns)
		if got := OutputEnd("x\n"+long+"\nz\n", 2); got.HTML != long+"\nz" || got.Lines != 3 || got.Hidden != 1 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("of live output is the same, however the output is cut", func(t *testing.T) {
		t.Parallel()
		output := strings.Repeat("\x1b[1mline\x1b[m\n", 5000) + "last"
		s := NewLiveOutput()
		for i := range len(output) {
			s.Write(int64(i), []byte(output[i:i+1]))
		}
		got, whole := s.Text(), OutputEnd(output, FoldedLines)
		if got != whole {
			t.Errorf("got %+v, want %+v", got, whole)
		}
	})
}

func TestLiveScreenCountsWhatItMissed(t *testing.T) {
	t.Parallel()
	s := NewLiveOutput()
	s.Write(5, []byte("abc"))
	s.Write(6, []byte("bcd"))
	s.Write(2, []byte("x"))
	if got := s.Text().HTML; got != "abcd" || s.Missed != 5 {
		t.Errorf("it shows %q and missed %d", got, s.Missed)
	}
}

// hostileOutputs are outputs that try to harm the reader's browser or the server.
func hostileOutputs() map[string]string {
	const most = "9223372036854775807"
	outputs := map[string]string{
		"newlines":                     strings.Repeat("\n", 1<<18),
		"one line":                     strings.Repeat("x", 1<<18),
		"colours":                      strings.Repeat("\x1b[1;3;4;5;9;38;5;200;48;5;201mx\x1b[mx", 10_000),
		"links":                        strings.Repeat("\x1b]8;;http://e.com/"+strings.Repeat("y", 1900)+"\x07", 300) + strings.Repeat("\x1b[31mx\x1b[my\n", 12_000),
		"links of many":                strings.Repeat("\x1b]8;;http://e.com/a\x07a\x1b]8;;http://e.com/b\x07b", 8_000),
		"a command without an end":     "\x1b]" + strings.Repeat("x", 1<<18),
		"a control without an end":     "\x1b[" + strings.Repeat("1;", 1<<15),
		"a number without an end":      "\x1b[" + strings.Repeat("9", 1<<18) + "C",
		"columns at the end":           strings.Repeat("\x1b[160Gx\n", 1<<15),
		"erasing":                      strings.Repeat("x\n", 1<<15) + strings.Repeat("\x1b[3J", 1<<15),
		"the saved cursor":             strings.Repeat("\n", 1<<16) + "\x1b7" + strings.Repeat("\x1b8x", 1<<16),
		"going down":                   strings.Repeat("\x1b["+most+"Bx\n", 12_000),
		"metadata":                     strings.Repeat("\x1b_bk;t=1\x07x\n", 12_000),
		"characters that are not ours": strings.Repeat("\xf0\x9f\x98", 1<<18),
		"markup":                       strings.Repeat("<&>", 1<<18),
	}
	for _, final := range "ABCDEFGHJKLMPSTXZ@`abcdefghlmnpqrsu" {
		outputs["the largest number of "+string(final)] = "x\x1b[" + most + string(final) + "x\x1b[" + most + ";" + most + string(final) + "x\nx"
		outputs["a number of "+string(final)] = strings.Repeat("x\x1b[99"+string(final), 12_000)
	}
	return outputs
}

// A screen interprets all output of commands, so its time and memory must be bounded by the size of any output.
func TestHostileOutputCostsLittle(t *testing.T) {
	for name, output := range hostileOutputs() {
		costsLittle(t, name, 64<<20, func() { OutputEnd(output, FailedLines) })
		costsLittle(t, name+", whole", 128<<20, func() {
			if got := WholeOutput(output); len(got.HTML) > wholeShown*5/4 {
				t.Errorf("%s: %d bytes are shown as %d", name, len(output), len(got.HTML))
			}
		})
		costsLittle(t, name+", live", 64<<20, func() {
			s := NewLiveOutput()
			for i := 0; i < len(output); i += 8 << 10 {
				s.Write(int64(i), []byte(output[i:min(i+8<<10, len(output))]))
			}
			if got := s.Text(); len(got.HTML) > 2*foldedStyled {
				t.Errorf("%s: the end is shown as %d bytes", name, len(got.HTML))
			}
		})
	}
}

// limitOf returns the time limit for a test of something that takes at most d on a fast processor. The limit is larger than
// d, because other processors are slower, and much larger with the race detector. The defects that tests look for take
// minutes, because their time grows with a power of the size.
func limitOf(d time.Duration) time.Duration {
	if raceEnabled {
		return 20 * d
	}
	return 3 * d
}

// costsLittle fails the test if f takes much more than half a second or allocates more than a number of bytes.
func costsLittle(t *testing.T, name string, bytes uint64, f func()) {
	t.Helper()
	var took time.Duration
	n := allocated(func() { took = cpuTime(t, f) })
	if took > limitOf(500*time.Millisecond) {
		t.Errorf("%s: took %v", name, took)
	}
	if n > bytes {
		t.Errorf("%s: allocated %d bytes", name, n)
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// hunk is a diff as tools print it, for the fuzzers' seeds.
const hunk = "diff --git a/x.go b/x.go\nindex 83db48f..bf2a1c0 100644\n--- a/x.go\n+++ b/x.go\n@@ -1,3 +1,4 @@ func a() {\n a\n-b <c>\n+b &amp; \x1b[31md\x1b[m\n+```\n\\ No newline at end of file\n"

// hasOnly fails the test if a piece of HTML has elements or attributes that are not allowed, a link that runs a script, or tags
// that do not match.
func hasOnly(t *testing.T, piece string, allowed map[string]string) {
	t.Helper()
	var open []string
	for z := html.NewTokenizer(strings.NewReader(piece)); ; {
		kind := z.Next()
		token := z.Token()
		switch kind {
		case html.ErrorToken:
			if len(open) > 0 {
				t.Errorf("%q are not closed", open)
			}
			return
		case html.EndTagToken:
			if len(open) == 0 || open[len(open)-1] != token.Data {
				t.Errorf("</%s> closes %q", token.Data, open)
				return
			}
			open = open[:len(open)-1]
		case html.StartTagToken, html.SelfClosingTagToken:
			attributes, ok := allowed[token.Data]
			if !ok {
				t.Errorf("there is a <%s>", token.Data)
			}
			for _, a := range token.Attr {
				if !slices.Contains(strings.Fields(attributes), a.Key) {
					t.Errorf("<%s> has the attribute %s", token.Data, a.Key)
				}
				if a.Key == "href" {
					u, err := url.Parse(a.Val)
					if err != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto" {
						t.Errorf("a link leads to %q", a.Val)
					}
				}
			}
			if kind == html.StartTagToken && !slices.Contains([]string{"br", "hr", "input"}, token.Data) {
				open = append(open, token.Data)
			}
		case html.CommentToken, html.DoctypeToken:
			t.Errorf("there is %q", token)
		}
	}
}

// FuzzScreen feeds terminal output to a screen, whole and in pieces. Both must give the same safe HTML, within limits of time
// and size.
func FuzzScreen(f *testing.F) {
	for _, output := range hostileOutputs() {
		f.Add([]byte(output[:min(len(output), 4<<10)]), uint64(1))
	}
	f.Add([]byte("\x1b]8;;http://e.com\x1b\\x\x1b[1;31mä\x1b7\x1b[3A\x1b8\xe2\x82\xac\r\b\n"), uint64(2))
	f.Add([]byte(hunk), uint64(3))
	f.Add([]byte(strings.ReplaceAll(hunk, "\n", "\x1b[K\x1b[m\r\n")), uint64(4))
	f.Fuzz(func(t *testing.T, output []byte, seed uint64) {
		var whole Output
		s := NewLiveOutput()
		var took time.Duration
		n := allocated(func() {
			took = cpuTime(t, func() {
				whole = WholeOutput(string(output))
				random := rand.New(rand.NewPCG(seed, 0))
				for rest := output; len(rest) > 0; {
					n := 1 + random.IntN(min(len(rest), 9))
					s.Write(s.next, rest[:n])
					rest = rest[n:]
				}
			})
		})
		if limit := uint64(64<<20 + len(output)*(16<<10)); n > limit {
			t.Errorf("%d bytes allocated %d", len(output), n)
		}
		if took > limitOf(500*time.Millisecond+time.Duration(len(output))*10*time.Microsecond) {
			t.Errorf("%d bytes took %v", len(output), took)
		}
		once := NewLiveOutput()
		once.Write(0, output)
		if got, want := s.Text(), once.Text(); got != want {
			t.Errorf("in pieces it is\n%q, in one\n%q", got.HTML, want.HTML)
		}
		for _, shown := range []string{whole.HTML, s.Text().HTML, OutputEnd(string(output), FailedLines).HTML} {
			if limit := 4<<10 + len(output)*2100; len(shown) > limit {
				t.Errorf("%d bytes are shown as %d", len(output), len(shown))
			}
			hasOnly(t, shown, map[string]string{"span": "class", "a": "href rel target"})
		}
	})
}

// beginningOf shortens a text for the message of a test.
func beginningOf(text string, n int) string { return text[:min(len(text), n)] }
