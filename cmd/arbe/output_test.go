package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestOutput(t *testing.T) {
	t.Parallel()
	at := func(offset int64, data string) *arbev1.Delta {
		return &arbev1.Delta{Offset: offset, Data: []byte(data)}
	}
	whole := func(text string) entry.CommandResult {
		return entry.CommandResult{Output: text, OutputBytes: int64(len(text))}
	}
	cases := []struct {
		name    string
		patient bool
		deltas  []*arbev1.Delta
		result  entry.CommandResult
		want    string
		missed  int64
	}{
		{name: "a result without deltas is written whole", result: whole("abcdef"), want: "abcdef"},
		{name: "deltas are written as they come, and once", deltas: []*arbev1.Delta{at(0, "abc"), at(3, "def")}, result: whole("abcdef"), want: "abcdef"},
		{name: "what a delta repeats is left out", deltas: []*arbev1.Delta{at(0, "abc"), at(0, "abcd"), at(2, "c")}, result: whole("abcdef"), want: "abcdef"},
		{name: "a person sees how it goes on and is told what is missing", deltas: []*arbev1.Delta{at(0, "a"), at(3, "d")}, result: whole("abcdef"), want: "adef", missed: 2},
		{name: "a program gets what was missing from the result", patient: true, deltas: []*arbev1.Delta{at(0, "a"), at(3, "d")}, result: whole("abcdef"), want: "abcdef"},
		{
			name: "a program is not kept waiting for what no result can hold", patient: true,
			deltas: []*arbev1.Delta{at(0, "a"), at(wholeResult, "z")},
			result: entry.CommandResult{Output: "a", OutputTail: "z", Truncated: true, OutputBytes: wholeResult + 1},
			want:   "az", missed: wholeResult - 1,
		},
		{
			name:   "head and tail of a large output are written with what lies between told",
			result: entry.CommandResult{Output: "head", OutputTail: "tail", Truncated: true, OutputBytes: 100},
			want:   "headtail", missed: 92,
		},
		{
			name: "deltas win over the marks that a result has for what is not text", deltas: []*arbev1.Delta{at(0, "a\xff")},
			result: entry.CommandResult{Output: "a\uFFFD", OutputBytes: 2}, want: "a\xff",
		},
		{
			name: "marks are better than nothing", result: entry.CommandResult{Output: "a\uFFFDb", OutputBytes: 3}, want: "a\uFFFDb",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			var missed int64
			o := output{out: &b, missed: func(n int64) { missed += n }, patient: c.patient}
			for _, d := range c.deltas {
				if err := o.delta(d); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.rest(c.result); err != nil {
				t.Fatal(err)
			}
			if b.String() != c.want || missed != c.missed {
				t.Fatalf("wrote %s and missed %d bytes, want %s and %d", short(b.String()), missed, short(c.want), c.missed)
			}
		})
	}
}

func short(s string) string { return fmt.Sprintf("%.60q", s) }
