package turn

import (
	"crypto/sha256"
	"regexp"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
)

// remember records the steps of the transcript.
func (r *run) remember() {
	list, _ := r.transcript.steps()
	results := map[string]string{}
	ran := map[string]bool{}
	for _, e := range r.transcript.entries {
		switch p, _ := entry.Decode(e); p := p.(type) {
		case entry.PiToolResult:
			results[e.ID] = p.Text()
		case entry.Command:
			ran[e.ID] = true
		}
	}
	for _, s := range list {
		var d doneStep
		var signature strings.Builder
		for i, c := range s.answer.Calls() {
			id := r.turn.callID(s.n, i)
			signature.WriteString(c.Name + string(c.Arguments) + r.outcome(c.Name, results[id]) + "\n")
			if ran[entry.CallCommandID(id)] {
				d.commands++
			}
		}
		hash := sha256.Sum256([]byte(signature.String()))
		d.signature = string(hash[:])
		r.done[s.n] = d
	}
}

// times matches times of day, dates and durations, which differ each time a program runs.
var times = regexp.MustCompile(strings.Join([]string{
	`\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?: ?Z| ?[+-]\d\d:?\d\d)?`, // 2026-01-02T03:04:05.678Z
	`\b\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?\b`,                                             // 03:04:05
	`\b(?:\d+(?:\.\d+)?(?:h|ms|m|µs|us|ns|s))+\b`,                                      // 1m2.5s
	`\b\d+(?:\.\d+)? (?:ms|s|sec|secs|seconds?|minutes?)\b`,                            // 2.5 seconds
}, "|"))

// outcome returns the part of a tool's result that shows whether the bot makes progress: without times and other
// people's texts.
func (r *run) outcome(tool, text string) string {
	if slices.ContainsFunc(r.tools, func(t Tool) bool { return t.Name == tool && t.Lists }) {
		return ""
	}
	return times.ReplaceAllString(text, "")
}

// loops reports whether the last steps called the same tools with the same arguments and got the same results, ignoring
// times and other people's texts.
func (r *run) loops() bool {
	r.remember()
	last, ok := r.done[r.turn.Steps]
	for n := r.turn.Steps - maxRepeats + 1; ok && n <= r.turn.Steps; n++ {
		step, known := r.done[n]
		ok = known && step.signature == last.signature
	}
	return ok
}
