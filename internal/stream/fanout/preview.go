package fanout

import (
	"slices"
	"strings"
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
	// data ends at byte end. It is only appended to or replaced, so that slices of it can be shared.
	data  []byte
	end   int64
	state previewState
	// forwarded is the offset up to which other servers have been sent the preview. It is used only on the server where
	// the preview was published.
	forwarded int64
}

// entry returns the id of the entry that finishes the preview. That of a bot's step is its id up to "~": the model may
// write the step several times, and each time is a preview of its own, because the bytes of a preview never change.
func (p *preview) entry() string {
	if !strings.HasPrefix(p.id, entry.TurnPrefix) {
		return p.id
	}
	id, _, _ := strings.Cut(p.id, "~")
	return id
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
	if strings.HasPrefix(p.id, entry.TurnPrefix) {
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
