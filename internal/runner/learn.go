package runner

import (
	"encoding/json"

	"github.com/arbe-dev/arbe/internal/entry"
)

// spoken is the state of the thread's earlier runs, from the log.
type spoken struct {
	// ended means that the last run ended on its own.
	ended bool
}

// learn reads entries of the thread: chats that are prompts, and requests to stop. A request that came before the
// thread began to run belongs to an earlier run.
func (r *run) learn(entries []entry.Entry) (s spoken) {
	for _, e := range entries {
		r.queue.Learn(e)
		r.position = e.Seq
		switch e.Type {
		case entry.QueueCancelled{}.Type():
			r.withdrawn = r.withdrawn || e.Seq > r.After
		case entry.CancelRequested{}.Type():
			if c, ok := entry.As[entry.CancelRequested](e); ok && (c.Epoch == 0 || c.Epoch == r.Epoch) {
				r.cancelled = true
			}
		case "signal.thread.status_changed":
			if c, ok := entry.As[entry.StatusChanged](e); ok && c.To == "running" {
				r.cancelled = false
			}
		case runFinished{}.Type():
			var f runFinished
			s.ended = json.Unmarshal(e.Payload, &f) == nil && f.Outcome == entry.RunCompleted
		case entry.PermissionAnswered{}.Type():
			r.answered(e)
		case entry.PiAssistant{}.Type(), entry.PiToolResult{}.Type():
			if r.sizes = append(r.sizes, size{e.Seq, int64(len(e.Payload))}); len(r.sizes) > 400 {
				r.sizes = append([]size(nil), r.sizes[200:]...)
			}
		}
	}
	return s
}
