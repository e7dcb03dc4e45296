package fanout

import (
	"slices"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

const (
	// keptBytes is the least that a late watcher gets of a running preview: the end of a command's output. A bot's step
	// keeps keptStep, enough for a long answer from its start, although each word of it is a line of JSON.
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
	// doubtful: the entry may have been committed unnoticed while nobody watched.
	doubtful previewState = iota
	// asked: doubtful, and the log is being asked.
	asked
	// running: the log did not have the entry after a watcher had joined, so its commit cannot go unnoticed.
	running
)

// preview is the last part of the bytes of an unfinished entry. Its topic's lock guards it.
type preview struct {
	id string
	// ends are ids of entries. Any one of these entries finishes the preview.
	ends []string
	// step and call identify a step of a bot's turn and a call of its model. Other previews have none.
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
// A bot's model may write a step several times. Each time is a separate preview, because the bytes of a preview never
// change; its id is the id of the step's entry, "~" and the call. If the step leaves no entry, the turn's end finishes
// the preview.
func newPreview(id string, offset int64) *preview {
	p := &preview{id: id, ends: []string{id}, end: offset, forwarded: offset}
	if step, call, ok := entry.StepDelta(id); ok {
		p.step, p.call = step, call
		p.ends = []string{step, entry.TurnEndID(entry.TurnOf(step))}
	}
	return p
}

// replaces reports whether p belongs to a later call for the same step than q.
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
	if len(p.data) > 2*kept { // not for every delta, because each trim copies all of it
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
