package terminal_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/web/terminal"
)

// shown returns the screen of a small terminal after an output, without the empty rows at its end.
func shown(output string) string {
	t := terminal.New(5, 10)
	_, _ = t.Write([]byte(output))
	return strings.TrimRight(t.Text(), "\n")
}

func TestSequences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ output, want string }{
		"text":                              {"a\r\nb", "a\nb"},
		"a line feed keeps the column":      {"ab\nc", "ab\n  c"},
		"a long line wraps":                 {"0123456789ab", "0123456789\nab"},
		"a full line wraps with the next":   {"0123456789\r\nab", "0123456789\nab"},
		"without wrapping":                  {"\x1b[?7l0123456789ab", "012345678b"},
		"the screen scrolls":                {"1\r\n2\r\n3\r\n4\r\n5\r\n6", "2\n3\n4\n5\n6"},
		"backspace and tab":                 {"abc\b\bX\tY", "aXc     Y"},
		"the cursor moves":                  {"\x1b[3;4Hx\x1b[Ay\x1b[2Dz\x1b[Bw", "\n   zy\n   xw"},
		"positions beyond the screen":       {"\x1b[99;99Hx\x1b[99A\x1b[99Dy", "y\n\n\n\n         x"},
		"erasing a line":                    {"abcdef\x1b[3D\x1b[K", "abc"},
		"erasing to the cursor":             {"abcdef\x1b[3D\x1b[1K", "    ef"},
		"erasing the screen":                {"a\r\nb\r\nc\x1b[2J\x1b[Hd", "d"},
		"erasing characters":                {"abcdef\x1b[1;2H\x1b[2X", "a  def"},
		"inserting and deleting characters": {"abcdef\x1b[1;2H\x1b[2@\x1b[1;6H\x1b[P", "a  bcef"},
		"inserting and deleting lines":      {"1\r\n2\r\n3\r\n4\x1b[2;1H\x1b[L\x1b[4;1H\x1b[M", "1\n\n2\n4"},
		"insert mode":                       {"abc\x1b[1;1H\x1b[4hXY\x1b[4l", "XYabc"},
		"a region scrolls":                  {"1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[4;1H\n\x1b[r", "1\n3\n4\n\n5"},
		"a region at the top scrolls":       {"1\r\n2\r\n3\r\n4\r\n5\x1b[1;3r\x1b[3;1H\nx", "2\n3\nx\n4\n5"},
		"a region scrolls back":             {"1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[2;1H\x1bM\x1b[r", "1\n\n2\n3\n5"},
		"scrolling up and down":             {"1\r\n2\r\n3\x1b[2S\x1b[T", "\n3"},
		"origin mode":                       {"\x1b[2;4r\x1b[?6h\x1b[Hx\x1b[99;1Hy", "\nx\n\ny"},
		"the alternate screen":              {"shell\x1b[?1049h\x1b[Heditor", "editor"},
		"and back":                          {"shell\x1b[?1049h\x1b[Heditor\x1b[?1049l!", "shell!"},
		"the saved cursor":                  {"ab\x1b7\x1b[5;5H\x1b8c", "abc"},
		"repeating":                         {"x\x1b[3b", "xxxx"},
		"line drawing":                      {"\x1b(0lqk\x1b(Blqk", "┌─┐lqk"},
		"the other set of characters":       {"\x1b)0\x0eq\x0fq", "─q"},
		"wide characters":                   {"世界", "世界"},
		"a wide character wraps as a whole": {"12345678世x世", "12345678世\nx世"},
		"half of a wide character":          {"世界\x1b[1;2Hx", " x界"},
		"combining characters":              {"e\u0301x", "e\u0301x"},
		"marks of direction are dropped":    {"a\u202eb\u2066c", "abc"},
		"a character in two pieces":         {"\xe4\xb8" + "\x96", "世"},
		"invalid UTF-8":                     {"a\xffb", "a\ufffdb"},
		"unknown sequences":                 {"a\x1b[>4;2m\x1b[?9999h\x1b[1 q\x1b]8;;http://x\x07b\x1b]8;;\x07\x1bP+q\x1b\\c", "abc"},
		"an invalid sequence":               {"\x1b[12\u4e16x", "x"},
		"a cancelled sequence":              {"\x1b[12\x18x", "x"},
		"tab stops":                         {"\x1b[3g\x1b[1;4H\x1bH\r\tx", "   x"},
		"a reset":                           {"abc\x1bcx", "x"},
		"erasing with nothing":              {"\x1b[999X\x1b[999P\x1b[999@\x1b[999L\x1b[999M\x1b[999S\x1b[999Tx", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := shown(c.output); got != c.want {
				t.Errorf("shows\n%s\nnot\n%s", got, c.want)
			}
		})
	}
}

// TestPrograms shows what vim, less and top wrote to a terminal of 24 rows and 80 columns, in pieces of any size.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"vim", "less", "top"} {
		output, err := os.ReadFile("testdata/" + program + ".output")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("testdata/" + program + ".screen")
		if err != nil {
			t.Fatal(err)
		}
		tty := terminal.New(24, 80)
		for rest := output; len(rest) > 0; {
			n := min(1+rand.N(40), len(rest))
			_, _ = tty.Write(rest[:n])
			rest = rest[n:]
		}
		if got := tty.Text(); got != string(want) {
			t.Errorf("%s shows\n%s\nnot\n%s", program, got, want)
		}
	}
}

func frame(t *testing.T, tty *terminal.Terminal, seen *terminal.Seen) (terminal.Frame, string) {
	t.Helper()
	f := tty.Frame(seen)
	rows, err := json.Marshal(f.Rows)
	if err != nil {
		t.Fatal(err)
	}
	return f, string(rows)
}

func TestAFrameHasWhatChanged(t *testing.T) {
	t.Parallel()
	tty := terminal.New(3, 20)
	var seen terminal.Seen
	_, _ = tty.Write([]byte("one\r\ntwo"))
	if _, rows := frame(t, tty, &seen); rows != `[[0,"one",""],[1,"two",""],[2]]` {
		t.Errorf("at first: %s", rows)
	}
	if _, rows := frame(t, tty, &seen); rows != "null" {
		t.Errorf("without a change: %s", rows)
	}
	_, _ = tty.Write([]byte("\r\nthree\r\nfour"))
	f, rows := frame(t, tty, &seen)
	if rows != `[[2,"three",""],[3,"four",""]]` || f.First != 0 || f.Top != 1 || f.Y != 3 || f.X != 4 {
		t.Errorf("after a scroll: %s %+v", rows, f)
	}
	_, _ = tty.Write([]byte("\x1b[?1049h\x1b[?1h\x1b[?2004h\x1b[?25l\x1b]2;<b>vim</b>\u202e\x07"))
	f, _ = frame(t, tty, &seen)
	if !f.Other || !f.CursorKeys || !f.Paste || !f.Hidden || f.Title != "<b>vim</b>" {
		t.Errorf("an editor: %+v", f)
	}
	_, _ = tty.Write([]byte("\x1b[?1049l"))
	if f, rows = frame(t, tty, &seen); f.Other || !strings.Contains(rows, "four") {
		t.Errorf("after the editor: %s", rows)
	}
}

func TestLooks(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"\x1b[1;31mx\x1b[0my":                    `[[0,"x","term-fg31 term-fg1","y",""]]`,
		"\x1b[38;5;208mx":                        `[[0,"x","term-fgx208"]]`,
		"\x1b[38;2;255;0;0mx":                    `[[0,"x","term-fgx196"]]`,
		"\x1b[38:2::255:0:0mx":                   `[[0,"x","term-fgx196"]]`,
		"\x1b[4:3mx\x1b[4:0my":                   `[[0,"x","term-fg4","y",""]]`,
		"\x1b[58;5;1;4mx":                        `[[0,"x","term-fg4"]]`,
		"\x1b[7mx":                               `[[0,"x","term-inverse"]]`,
		"\x1b[41m\x1b[K\x1b[0mx":                 `[[0,"x","","   ","term-bg41"]]`,
		"<b>\x1b[31m&":                           `[[0,"\u003cb\u003e","","\u0026","term-fg31"]]`,
		"世":                                      `[[0,"世","tty-wide"]]`,
		"\x1b]0;\x1b\\\x1b]8;;javascript:1\x07a": `[[0,"a",""]]`,
	} {
		tty := terminal.New(1, 4)
		_, _ = tty.Write([]byte(output))
		var seen terminal.Seen
		if _, rows := frame(t, tty, &seen); rows != want {
			t.Errorf("%q: %s, not %s", output, rows, want)
		}
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	tty := terminal.New(5, 10)
	_, _ = tty.Write([]byte("\x1b[2;3H\x1b[6n\x1b[5n\x1b[c\x1b]2;rm -rf\x07\x1b[21t"))
	if got := string(tty.Replies()); got != "\x1b[2;3R\x1b[0n\x1b[?62;22c" {
		t.Errorf("answers %q", got)
	}
	_, _ = tty.Write([]byte(strings.Repeat("\x1b[c", 100_000)))
	if got := tty.Replies(); len(got) > 1024 || len(tty.Replies()) != 0 {
		t.Errorf("answers %d bytes", len(got))
	}
}

func TestResize(t *testing.T) {
	t.Parallel()
	tty := terminal.New(4, 10)
	_, _ = tty.Write([]byte("1\r\n2\r\n3\r\n4\r\n5 and more$ "))
	var seen terminal.Seen
	check := func(rows, columns int, want string) {
		t.Helper()
		tty.Resize(rows, columns)
		f := tty.Frame(&seen)
		if got := tty.Text(); got != want {
			t.Errorf("%d × %d: %q, not %q", rows, columns, got, want)
		}
		if f.Y < f.Top || f.Y >= f.Top+rows || f.X >= columns {
			t.Errorf("%d × %d: the cursor is at %d, %d of %d", rows, columns, f.X, f.Y, f.Top)
		}
	}
	check(2, 10, "5 and more\n$\n")
	check(6, 10, "1\n2\n3\n4\n5 and more\n$\n")
	check(6, 3, "1\n2\n3\n4\n5 a\n$\n")
	_, _ = tty.Write([]byte("\x1b[1;1H"))
	check(3, 3, "1\n2\n3\n")
	if rows, columns := terminal.Limit(1<<30, -5); rows != terminal.MaxRows || columns != 2 {
		t.Errorf("the limits are %d × %d", rows, columns)
	}
}

// hostile are outputs that would cost much if a terminal were careless.
var hostile = map[string]string{
	"large numbers":          "\x1b[9999999999;9999999999H\x1b[999999999L\x1b[9999999M\x1b[999999S\x1b[99999T\x1b[9999999@\x1b[9999P",
	"a sequence without end": "\x1b[" + strings.Repeat("1;", 50_000),
	"a string without end":   "\x1b]0;" + strings.Repeat("x", 100_000),
	"repetitions":            "x" + strings.Repeat("\x1b[9999b", 100),
	"every look":             strings.Repeat("\x1b[38;5;1mx\x1b[48;2;1;2;3my", 4_000),
	"lines":                  strings.Repeat("\n", 100_000),
	"marks":                  strings.Repeat("\u0301", 50_000),
	"insertions":             strings.Repeat("\x1b[L\x1b[@", 20_000),
	"screens":                strings.Repeat("\x1b[?1049h\x1b[?1049l", 5_000),
	"resets":                 strings.Repeat("\x1bc", 5_000),
	"tab stops":              strings.Repeat("\x1bH\x1b[99I\x1b[99Z", 10_000),
}

func TestHostileOutputCostsLittle(t *testing.T) {
	t.Parallel()
	for name, output := range hostile {
		tty := terminal.New(terminal.MaxRows, terminal.MaxColumns)
		began := time.Now()
		for range 3 {
			_, _ = tty.Write([]byte(output))
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s", name, took)
		}
		var seen terminal.Seen
		f, rows := frame(t, tty, &seen)
		if most := terminal.KeptLines + terminal.MaxRows; len(f.Rows) > most || len(rows) > most*terminal.MaxColumns*60 {
			t.Errorf("%s: a frame of %d rows, %d bytes", name, len(f.Rows), len(rows))
		}
		if len(f.Title) > 400 {
			t.Errorf("%s: a title of %d bytes", name, len(f.Title))
		}
	}
}

func FuzzTerminal(f *testing.F) {
	for _, output := range hostile {
		f.Add([]byte(output[:min(len(output), 400)]), uint16(5), uint16(10))
	}
	for _, program := range []string{"vim", "less", "top"} {
		if output, err := os.ReadFile("testdata/" + program + ".output"); err == nil {
			f.Add(output, uint16(24), uint16(80))
		}
	}
	f.Fuzz(func(t *testing.T, output []byte, rows, columns uint16) {
		tty := terminal.New(int(rows), int(columns))
		var seen terminal.Seen
		for i := 0; len(output) > 0; i++ {
			n := min(7+i%50, len(output))
			_, _ = tty.Write(output[:n])
			output = output[n:]
			switch i % 5 {
			case 1:
				tty.Resize(int(rows)+i%9-4, int(columns)+i%7-3)
			case 3:
				fr := tty.Frame(&seen)
				if fr.Y < fr.Top || fr.Y >= fr.Top+fr.Height || fr.X < 0 || fr.X >= fr.Width || fr.First > fr.Top {
					t.Fatalf("the cursor is at %d, %d of %+v", fr.X, fr.Y, fr)
				}
				for _, row := range fr.Rows {
					if n := row[0].(int); n < fr.First || n >= fr.Top+fr.Height {
						t.Fatalf("row %d is outside of %d to %d", n, fr.First, fr.Top+fr.Height)
					}
				}
			}
			_ = tty.Replies()
		}
		if text := tty.Text(); strings.ContainsAny(text, "\x1b\x00\x07\r") {
			t.Errorf("control characters reach the page: %q", text)
		}
	})
}
