package harnesstest

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Flood is the beginning of an agent's output, in the agent's format, with which [Floods] overwhelms its reader.
type Flood struct {
	// Begin are lines up to one that starts the tool call [FloodCall].
	Begin []string
	// Call starts another tool call, whose id takes the place of "ID".
	Call string
	// Result is the beginning of a line with the result of FloodCall, up to its text.
	Result string
	// Piece is a line with a piece of an answer, whose text takes the place of "TEXT".
	Piece string
}

// FloodCall is the id of the tool call in a [Flood].
const FloodCall = "call1"

// The sizes of a line and of many lines, and how much of them a reader may remember, in bytes.
const (
	lineSize      = 200 << 20
	linesSize     = 64 << 20
	maxRemembered = 40 << 20
)

// Floods checks that a reader's memory is bounded, and that it comes to an end, whatever an agent writes. It measures this
// process's memory, so no test may run in parallel.
func Floods(t *testing.T, h harness.Harness, f Flood) {
	begin := strings.Join(f.Begin, "\n") + "\n"
	for what, end := range map[string]string{"a tool's result of 200 MB on one line": "\n{}\n", "a line that never ends": ""} {
		t.Run(what, func(t *testing.T) {
			s := newSink(t, h)
			s.pour(begin+f.Result, lineSize, func(int) string { return mebibyte }, end)
			var results []entry.PiToolResult
			for _, m := range s.messages {
				if r, ok := m.(entry.PiToolResult); ok {
					results = append(results, r)
				}
			}
			if len(results) != 1 || results[0].ToolCallID != FloodCall || !strings.Contains(results[0].Text(), "MB and is not kept") {
				t.Errorf("the results are %.500s", fmt.Sprint(results))
			}
		})
	}
	t.Run("an answer that never ends", func(t *testing.T) {
		s := newSink(t, h)
		piece := strings.Replace(f.Piece, "TEXT", mebibyte, 1) + "\n"
		s.pour(begin, linesSize, func(int) string { return piece }, "")
	})
	t.Run("tool calls that never end", func(t *testing.T) {
		s := newSink(t, h)
		s.pour(begin, linesSize, func(n int) string {
			return strings.Replace(strings.Replace(f.Call, "ID", fmt.Sprintf("%d-%s", n, mebibyte[:500<<10]), 1), "TEXT", mebibyte[:500<<10], 1) + "\n" +
				strings.Replace(strings.Replace(f.Call, "ID", fmt.Sprint("call", n+2), 1), "TEXT", mebibyte[:500<<10], 1) + "\n"
		}, "")
	})
}

var mebibyte = strings.Repeat("x", 1<<20)

// sink reads an agent's output as the runner does. It keeps only the results of tools.
type sink struct {
	t        *testing.T
	reader   harness.Reader
	messages []entry.Payload
	before   uint64
}

func newSink(t *testing.T, h harness.Harness) *sink {
	job := harness.Job{Model: harness.Model{Provider: "test", ID: "m", Dialect: h.Info().Dialects[0]}}
	return &sink{t: t, reader: h.Read(job, "", "go on"), before: remembered()}
}

// remembered returns how much memory is in use.
func remembered() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// pour has the reader read a text, then pieces of a total size, then another text.
func (s *sink) pour(begin string, total int64, piece func(n int) string, end string) {
	s.t.Helper()
	from := &source{pieces: func(n int, size int64) (string, bool) {
		switch {
		case n == 0:
			return begin, true
		case size < total:
			if n%16 == 0 {
				if now := remembered(); now > s.before+maxRemembered {
					s.t.Fatalf("after %d MB, %d MB are remembered", size>>20, (now-s.before)>>20)
				}
			}
			return piece(n), true
		}
		text := end
		end = ""
		return text, text != ""
	}}
	err := harness.ReadLines(from, func(line []byte, cut int64) {
		for _, e := range s.reader.Line(line, cut) {
			if r, ok := e.Message.(entry.PiToolResult); ok {
				s.messages = append(s.messages, harness.Shorten(r))
			}
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if o := s.reader.Decide(harness.Exit{Code: 1}); o.Failed == "" {
		s.t.Errorf("the outcome is %.500s", fmt.Sprintf("%+v", o))
	}
}

// source is an agent's output that is made while it is read.
type source struct {
	pieces func(n int, size int64) (text string, more bool)
	n      int
	size   int64
	rest   bytes.Buffer
}

func (s *source) Read(to []byte) (int, error) {
	for s.rest.Len() == 0 {
		text, more := s.pieces(s.n, s.size)
		if !more {
			return 0, io.EOF
		}
		s.n++
		s.size += int64(len(text))
		s.rest.WriteString(text)
	}
	return s.rest.Read(to)
}
