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

func TestFilterPrintsALineForEachResult(t *testing.T) {
	t.Parallel()
	view := struct {
		Name string         `json:"name"`
		Size int64          `json:"size"`
		Tags []string       `json:"tags"`
		More map[string]any `json:"more,omitempty"`
	}{Name: "a <b>\n\"c\"", Size: 1<<53 + 1, Tags: []string{"x", "y"}}
	for expression, want := range map[string]string{
		".name":                   "a <b>\n\"c\"\n",
		".tags":                   "[\"x\",\"y\"]\n",
		".tags[]":                 "x\ny\n",
		".size, .size + 1":        "9007199254740993\n9007199254740994\n",
		"{n: .name}":              "{\"n\":\"a <b>\\n\\\"c\\\"\"}\n",
		".more, .none":            "\n\n",
		"1.25, true, [null]":      "1.25\ntrue\n[null]\n",
		"empty":                   "",
		"1, halt, 2":              "1\n",
		"has(\"more\")":           "false\n",
		"env, $ENV":               "{}\n{}\n", // ARBE_TOKEN, for example, is no part of the answer
		"limit(2; repeat(.size))": "9007199254740993\n9007199254740993\n",
	} {
		f, err := newFilter(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		var got strings.Builder
		if err := f.print(t.Context(), &got, view); err != nil || got.String() != want {
			t.Errorf("%s prints %q (%v), want %q", expression, got.String(), err, want)
		}
	}
}

func TestAWrongExpressionIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		".a | ]":             `unexpected token "]" at line 1, column 6`,
		"\"é\" |\n  } | .":   `unexpected token "}" at line 2, column 3`,
		".[":                 "unexpected EOF at line 1, column 3",
		`"abc`:               "unterminated string literal at line 1, column 5",
		"":                   `missing query (try ".")`,
		"nothing(1)":         "function not defined: nothing/1",
		"$x":                 "variable not defined: $x",
		"input":              "input(s)/0 is not allowed",
		`import "a" as a; .`: `cannot load module: "a"`,
		`include "a"; .`:     `cannot load module: "a"`,
	} {
		if _, err := newFilter(expression); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", expression, err, want)
		}
	}
}

func TestAFilterThatFailsPrintsWholeLinesBefore(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`"one", error("no")`:          "--jq cannot be applied to this JSON: error: no",
		`"one", .[]`:                  `--jq cannot be applied to this JSON: cannot iterate over: string ("a value")`,
		`"one", ("x" * 1000 | error)`: "--jq cannot be applied to this JSON: error: " + strings.Repeat("x", maxReason-len("error: ")) + "…",
	} {
		f, err := newFilter(expression)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		err = f.print(t.Context(), &got, "a value")
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Message != want || e.Code.ExitCode() != 1 {
			t.Errorf("%s fails with %v, want %s", expression, err, want)
		}
		if got.String() != "one\n" {
			t.Errorf("%s prints %q before it fails", expression, got.String())
		}
	}
}

func TestAFilterWithoutAnEndEnds(t *testing.T) {
	t.Parallel()
	t.Run("with its context", func(t *testing.T) {
		t.Parallel()
		for _, expression := range []string{"repeat(.)", "range(1e9)", "last(repeat(.))", "def f: f; f", "[limit(1e9; repeat(0)) | empty]"} {
			f, err := newFilter(expression)
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithTimeout(t.Context(), time.Millisecond)
			if err := f.print(ctx, io.Discard, 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s ends with %v", expression, err)
			}
			end()
		}
	})
	t.Run("with its reader", func(t *testing.T) {
		t.Parallel()
		f, err := newFilter("repeat(.)")
		if err != nil {
			t.Fatal(err)
		}
		reader, writer := io.Pipe()
		reader.CloseWithError(syscall.EPIPE)
		if err := f.print(t.Context(), writer, "a value"); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("it ends with %v", err)
		}
	})
	// Some verbs handle signals themselves. A filter ends with a signal in all of them.
	for name, takeOver := range map[string]bool{"with a signal": false, "with a signal that its verb takes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, end := context.WithCancel(t.Context())
			s := &signals{end: end, exit: func(int) { t.Error("a signal ends the process") }}
			if takeOver {
				_, giveBack := s.takeOver()
				defer giveBack()
			}
			f, err := newFilter("repeat(.)")
			if err != nil {
				t.Fatal(err)
			}
			reader, writer := io.Pipe()
			a, ended := &app{out: writer, json: true, filter: f, signals: s}, make(chan error, 1)
			go func() { ended <- a.printJSON("a value"); writer.Close() }()
			printed := bufio.NewReader(reader)
			if line, err := printed.ReadString('\n'); err != nil || line != "a value\n" {
				t.Fatalf("it prints %q (%v)", line, err)
			}
			s.take(syscall.SIGINT)
			if _, err := io.Copy(io.Discard, printed); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
			// A verb that handled the signal itself continues, and so do its filters.
			a.out = io.Discard
			if f, err = newFilter("."); err != nil {
				t.Fatal(err)
			}
			if a.filter = f; (a.printJSON("next") == nil) != takeOver || (ctx.Err() == nil) != takeOver {
				t.Errorf("afterwards it prints, or does not: %v", ctx.Err())
			}
		})
	}
	t.Run("when a person presses Ctrl-C", func(t *testing.T) {
		t.Parallel()
		s := startTypist(t, exec.Command("arbe", "--help", "--jq", `.name, last(repeat(.))`))
		s.shows("arbe")
		s.types("\x03")
		s.exits(exitInterrupted)
	})
}

func TestAFilterCannotChangeWhatATerminalShows(t *testing.T) {
	t.Parallel()
	s := startTypist(t, exec.Command("arbe", "--help", "--jq", `"a\u001b]0;x\u0007b", ["c\u202ed\u009be"], "end"`))
	s.shows("a\uFFFD]0;x\uFFFDb")
	s.shows(`["c` + "\uFFFDd\uFFFDe")
	s.shows("end")
	s.exits(0)
}
