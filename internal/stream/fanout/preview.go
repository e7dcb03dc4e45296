package fanout

import (
	"slices"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

const (
	// keptBytes is how much of a running preview a late watcher gets at least: the end of a command's output. Of a bot's
	// step it gets keptStep, which is a long answer whole: readers begin at the beginning, and each word of it comes as a
	// line of JSON.
	keptBytes, keptStep = 64 << 10, 1 << 20
	// keptPreviews limits the previews of a server, and keptAll their bytes. The one that has been quiet longest is dropped
	// first.
	keptPreviews, keptAll = 512, 64 << 20
	// keptQuiet is how long a preview is kept after its last delta if its entry never comes, for example because its
	// producer died.
	keptQuiet = time.Hour
)

// previewState says whether the entry of a preview may already be in the log.
type previewState int

const (
	// doubtful: the entry may have been committed unnoticed while there was no watcher.
	doubtful previewState = iota
	// asked: doubtful, and the log is being asked.
	asked
	// running: the log did not have the entry after a watcher had joined, so its commit cannot go unnoticed.
	running
)

// preview is the last part of the bytes of an unfinished entry. Its topic's lock guards it.
type preview struct {
	id string
	// ends are the ids of the entries each of which finishes the preview.
	ends []string
	// step and call are of the step of a bot's turn; otherwise empty.
	step, call string
	// data ends at byte end. It is only appended to or replaced, so that slices of it can be shared.
	data  []byte
	end   int64
	state previewState
	// forwarded is the offset up to which other servers have been sent the preview. It is used only on the server where
	// the preview was published.
	forwarded int64
}

// newPreview returns the preview of an entry, which begins at an offset.
//
// The model of a bot may write a step several times, and each time is a preview of its own, because the bytes of a preview
// never change: its id is that of the step's entry, "~" and the call. If the step leaves no entry, the turn's end does.
func newPreview(id string, offset int64) *preview {
	p := &preview{id: id, ends: []string{id}, end: offset, forwarded: offset}
	if step, call, ok := entry.StepDelta(id); ok {
		p.step, p.call = step, call
		p.ends = []string{step, entry.TurnEndID(entry.TurnOf(step))}
	}
	return p
}

// replaces reports whether a preview is of a later call for the same step as another.
func (p *preview) replaces(q *preview) bool {
	return p.step != "" && p.step == q.step && entry.EarlierCall(q.call, p.call)
}

// add adds a delta and reports whether the preview changed. It skips bytes that it already has. If bytes are missing,
// it starts the preview again at the delta, because a preview has no gaps.
func (p *preview) add(offset int64, data []byte) bool {
	if known := p.end - offset; known > 0 {
		if known >= int64(len(data)) {
			return false
		}
		data, offset = data[known:], p.end
	}
	if offset > p.end {
		p.data, p.end = nil, offset
	}
	p.data = append(p.data, data...)
	kept := keptBytes
	if p.step != "" {
		kept = keptStep
	}
	if len(p.data) > 2*kept { // not for every delta, because each time copies all of it
		p.data = slices.Clone(lastBytes(p.data, kept))
	}
	p.end += int64(len(data))
	return len(data) > 0
}

// since returns the bytes after an offset, or all kept bytes if they start later.
func (p *preview) since(offset int64) Delta {
	n := min(p.end-offset, int64(len(p.data)))
	data := lastBytes(p.data, int(n))
	return Delta{EntryID: p.id, Offset: p.end - n, Data: data[:n:n]}
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
