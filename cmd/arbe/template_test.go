package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// templated returns a template that finds no terminal, with colours or without.
func templated(t *testing.T, text string, colours bool) *goTemplate {
	t.Helper()
	parsed, err := newTemplate(text, func(any) bool { return colours })
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return parsed
}

func TestATemplatePrintsItsOutput(t *testing.T) {
	t.Parallel()
	view := map[string]any{
		"name": "a <b>\u001b[31m", "size": 1<<53 + 1, "part": 1.25, "ok": true, "none": nil, "at": time.Now().Add(-5 * time.Minute),
		"day": "2026-11-28T09:05:00Z", "tags": []string{"x", "y"},
		"list": []map[string]any{{"id": "one", "n": 1}, {"id": "two", "n": 22}, {"id": "three"}},
	}
	for text, want := range map[string]string{
		"{{.name}}":                       "a <b>\u001b[31m\n",
		"{{.name}}\n\n":                   "a <b>\u001b[31m\n\n",
		"{{.size}} {{.part}} {{.ok}}":     "9007199254740993 1.25 true\n",
		"{{if false}}no{{end}}":           "",
		"{{.missing}} {{.none}}":          "<no value> <no value>\n",
		"{{or .missing `-`}}":             "-\n",
		"{{with .missing}}no{{end}}":      "",
		"{{if gt .size 5}}large{{end}}":   "large\n",
		"{{index .tags 1}} {{len .list}}": "y 3\n",
		"{{range .list}}{{.id}}\n{{end}}": "one\ntwo\nthree\n",
		`{{range .list}}{{if eq .id "two"}}{{break}}{{end}}{{.id}}{{else}}none{{end}}`:           "one\n",
		"{{timeago .at}}, {{timeago .missing}}":                                                  "5 min ago, \n",
		"{{timefmt `Jan 2, 15:04` .day}}, {{timefmt `Jan 2` .none}}":                             "Nov 28, 09:05, \n",
		"{{truncate 4 .day}} {{.day | truncate 30}}":                                             "202… 2026-11-28T09:05:00Z\n",
		"{{join `, ` .tags}}; {{pluck `id` .list | join `+`}}":                                   "x, y; one+two+three\n",
		"{{range .list}}{{tablerow .id .n}}{{end}}{{tablerender}}end":                            "one    1\ntwo    22\nthree\nend\n",
		"{{range .list}}{{tablerow .id .n}}{{end}}":                                              "one    1\ntwo    22\nthree\n",
		"{{autocolor `green` .size}}":                                                            "9007199254740993\n",
		"{{color `red+bold` .ok}}{{color `red` .missing}}":                                       "\x1b[31;1mtrue\x1b[0m\n",
		"{{define `each`}}{{.id}} {{end}}{{range .list}}{{template `each` .}}{{end}}":            "one two three \n",
		"{{define `a`}}{{if .}}x{{template `a` (slice . 1)}}{{end}}{{end}}{{template `a` .day}}": strings.Repeat("x", 20) + "\n",
	} {
		var got strings.Builder
		if err := templated(t, text, false).print(t.Context(), &got, view); err != nil || got.String() != want {
			t.Errorf("%s prints %q (%v), want %q", text, got.String(), err, want)
		}
	}
	var got strings.Builder
	coloured := templated(t, "{{range .list}}{{tablerow (autocolor `green` .id | truncate 4) .n}}{{end}}", true)
	if err := coloured.print(t.Context(), &got, view); err != nil || got.String() != "\x1b[32mone\x1b[0m   1\n\x1b[32mtwo\x1b[0m   22\n\x1b[32mthr…\x1b[0m\n" {
		t.Errorf("a coloured table is %q (%v)", got.String(), err)
	}
}

func TestAWrongTemplateIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "the template is empty",
		"é {{.id}} {{nothing .id}}":     `function "nothing" not defined at line 1, column 11`,
		"{{.id}}\n {{.id | 1}}":         "non executable command in pipeline stage 2 at line 2, column 2",
		"{{range .}}{{.id}}":            "unexpected EOF at line 1, column 19",
		"{{.id}}{{end}}{{.id}}":         "unexpected {{end}} at line 1, column 8",
		"{{.id":                         "unclosed action at line 1, column 6",
		"{{define `a`}}{{env}}{{end}}":  `function "env" not defined at line 1, column 15`,
		"{{range .}}{{$x}}{{end}}{{.}}": `undefined variable "$x" at line 1, column 12`,
	} {
		if _, err := newTemplate(text, nil); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A value for which the template fails prints nothing.
func TestATemplateThatFailsSaysWhere(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"one\n{{.name.first}}":   "<.name.first> at line 2: can't evaluate field first in type interface {}",
		"{{index .list 2}}":      "<index .list 2> at line 1: reflect: slice index out of range",
		"{{timeago .name}}":      `<timeago .name> at line 1: "ann" is not a time such as 2006-01-02T15:04:05Z`,
		"{{tablerow .list}}":     "<tablerow .list> at line 1: a list or an object is not text",
		"{{pluck `id` .list}}":   "<pluck `id` .list> at line 1: number 0 of the list is not an object",
		"{{color `blu` .name}}":  "<color `blu` .name> at line 1: there is no colour \"blu\"; use black, red, green, yellow, blue, magenta, cyan, white or gray, and bold, dim or underline after a +",
		"{{call .name}}":         "<call .name> at line 1: non-function .name of type string",
		"{{template `nothing`}}": "<{{template \"nothing\"}}> at line 1: template \"nothing\" not defined",
	} {
		var got strings.Builder
		err := templated(t, text, false).print(t.Context(), &got, map[string]any{"name": "ann", "list": []int{1, 2}})
		want = "--template cannot be applied to this JSON: " + want
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Message != want || e.Code.ExitCode() != 1 || got.String() != "" {
			t.Errorf("%s prints %q and fails with %v, want %s", text, got.String(), err, want)
		}
	}
}

func TestATemplateWithoutAnEndEnds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{{define `a`}}{{template `a`}}{{end}}{{template `a`}}":                       "templates call each other more than 1000 deep",
		"{{range 1000000000}}{{end}}":                                                 "it takes more than 10000000 steps",
		"{{range 1000000000}}" + strings.Repeat("x", 100000) + "{{end}}":              "it prints more than 16 MB",
		"{{$s := `ab`}}{{range 1000000000}}{{$s = print $s $s}}{{end}}":               "<print $s $s> at line 1: the text has more than 16 MB",
		"{{$s := `\"`}}{{range 1000000000}}{{$s = js $s}}{{end}}":                     "<js $s> at line 1: the text has more than 16 MB",
		"{{$s := printf `%1000000d` 1}}{{range 1000000000}}{{tablerow $s $s}}{{end}}": "<tablerow $s $s> at line 1: the table has more than 16 MB",
	} {
		if err := templated(t, text, false).print(t.Context(), io.Discard, nil); err == nil || !strings.Contains(err.Error(), "this JSON: "+want) {
			t.Errorf("%.70s ends with %v, want %s", text, err, want)
		}
	}
	t.Run("with its context", func(t *testing.T) {
		t.Parallel()
		ctx, end := context.WithCancel(t.Context())
		end()
		if err := templated(t, "{{range 1000000000}}{{end}}", false).print(ctx, io.Discard, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("with its reader", func(t *testing.T) {
		t.Parallel()
		reader, writer := io.Pipe()
		reader.CloseWithError(syscall.EPIPE)
		if err := templated(t, "{{.}}", false).print(t.Context(), writer, "a value"); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// Each value has its own limits and its own table.
func TestATemplateBeginsAgainForEachValue(t *testing.T) {
	t.Parallel()
	each := templated(t, "{{range .}}{{tablerow .}}{{end}}", false)
	reader, writer := io.Pipe()
	go func() {
		for range 3 {
			_ = each.print(t.Context(), writer, []string{"a", "b"})
		}
		writer.Close()
	}()
	lines := 0
	for read := bufio.NewScanner(reader); read.Scan(); lines++ {
		if want := []string{"a", "b"}[lines%2]; read.Text() != want {
			t.Errorf("line %d is %q, want %q", lines, read.Text(), want)
		}
	}
	if lines != 6 {
		t.Errorf("there are %d lines", lines)
	}
	if each.steps != 3 || each.depth != 0 {
		t.Errorf("the last value took %d steps and ended at depth %d", each.steps, each.depth)
	}
}

// Colours come only from the template.
func TestATemplateShowsTextOfOthersSafelyOnATerminal(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b]0;x\x07\x1b[31mb\u202ec\u009be"
	s := startTypist(t, exec.Command("arbe", "--help", "--template",
		`{{autocolor "green" .name}} {{"a\x1b]0;x\x07b\u202ec\u009b"}} {{printf "%c[2J" 27}} {{slice "部" 0 2}} end`))
	s.shows("\x1b[32marbe\x1b[0m a\uFFFD]0;x\uFFFDb\uFFFDc\uFFFD \uFFFD[2J \uFFFD\uFFFD end")
	s.exits(0)
	if got := templateValue(map[string]any{"l": []any{hostile}}, true).(map[string]any)["l"].([]any)[0]; got != "a\uFFFD]0;x\uFFFDb\uFFFDc\uFFFDe" {
		t.Errorf("the template gets %q", got)
	}
}

// The terminal has 90 columns.
func TestATableOfATemplateFitsTheTerminal(t *testing.T) {
	t.Parallel()
	s := startTypist(t, exec.Command("arbe", "--help", "--template",
		`{{range .verbs}}{{tablerow (color "red" .name) .short .short .short}}{{end}}{{tablerender}}end`))
	s.shows("\r\nend\r\n") // the table has the word, too
	s.exits(0)
	for line := range strings.SplitSeq(strings.TrimSpace(s.text()), "\r\n") {
		if cellsOf(line) > 90 || line != "end" && !strings.HasPrefix(line, "\x1b[31m") {
			t.Errorf("a line has %d columns: %q", cellsOf(line), line)
		}
	}
}
