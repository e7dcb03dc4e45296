package turn

import (
	"crypto/sha256"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
)

// doneStep is what is left of a step when a summary has replaced it.
type doneStep struct {
	// signature is the same for steps with the same calls and results.
	signature string
	commands  int
}

// remember notes the steps that the transcript has.
func (r *run) remember() {
	list, _ := r.transcript.steps()
	results := map[string]string{}
	for _, e := range r.transcript.entries {
		if p, ok := entry.As[entry.PiToolResult](e); ok {
			results[e.ID] = p.Text()
		}
	}
	for _, s := range list {
		var d doneStep
		var signature strings.Builder
		for i, c := range s.answer.Calls() {
			signature.WriteString(c.Name + string(c.Arguments) + results[r.turn.callID(s.n, i)] + "\n")
			if c.Name == entry.RunCommandTool {
				d.commands++
			}
		}
		hash := sha256.Sum256([]byte(signature.String()))
		d.signature = string(hash[:])
		r.done[s.n] = d
	}
}

// loops reports whether the last steps called the same tools with the same arguments and got the same results.
func (r *run) loops() bool {
	r.remember()
	last, ok := r.done[r.turn.Steps]
	for n := r.turn.Steps - maxRepeats + 1; ok && n <= r.turn.Steps; n++ {
		step, known := r.done[n]
		ok = known && step.signature == last.signature
	}
	return ok
}
