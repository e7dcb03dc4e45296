package main

import (
	"encoding/json"
	"fmt"
	"io"
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
		name   string
		deltas []*arbev1.Delta
		result entry.CommandResult
		want   string
		missed int64
	}{
		{name: "a result without deltas is written whole", result: whole("abcdef"), want: "abcdef"},
		{name: "deltas are written as they come, and once", deltas: []*arbev1.Delta{at(0, "abc"), at(3, "def")}, result: whole("abcdef"), want: "abcdef"},
		{name: "what a delta repeats is left out", deltas: []*arbev1.Delta{at(0, "abc"), at(0, "abcd"), at(2, "c")}, result: whole("abcdef"), want: "abcdef"},
		{name: "a person sees how it goes on and is told what is missing", deltas: []*arbev1.Delta{at(0, "a"), at(3, "d")}, result: whole("abcdef"), want: "adef", missed: 2},
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
			o := output{out: &b, missed: func(n int64) { missed += n }}
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

// The two counts differ on purpose. The artifact counts the original bytes, and the result counts its text, which may be
// longer.
func TestTheSummaryNamesWhereTheWholeOutputIs(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]entry.CommandResult{
		"all of it: arbe artifact get a1":              {ArtifactBytes: 300 << 10},
		"its first 307200 bytes: arbe artifact get a1": {ArtifactBytes: 300 << 10, ArtifactPart: true},
	} {
		r.CommandID, r.ArtifactID, r.Truncated, r.OutputBytes, r.Output, r.OutputTail = "c1", "a1", true, 900<<10, "head", "tail"
		payload, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		e := execution{app: &app{out: io.Discard, err: &said}, tells: true, output: output{out: io.Discard, missed: func(int64) {}, gaps: true}}
		_ = e.end(&arbev1.Entry{Type: r.Type(), Payload: string(payload)})
		if !strings.Contains(said.String(), want) {
			t.Errorf("it says %q, want %q", said.String(), want)
		}
	}
}

func short(s string) string { return fmt.Sprintf("%.60q", s) }
