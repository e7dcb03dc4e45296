package stream

import (
	"slices"
	"time"
)

const (
	// keptBytes is how much of a running preview those who come late get, at least.
	keptBytes = 64 << 10
	// keptPreviews bounds the previews of a server; the one that was quiet longest goes first.
	keptPreviews = 512
	// keptQuiet is how long a preview outlives its last delta, when its entry never comes.
	keptQuiet = time.Hour
)

// standing is whether the entry of a preview may be in the log already.
type standing int

const (
	// doubtful: it may have come unnoticed, since nobody watched.
	doubtful standing = iota
	// asked: doubtful, but the log is being asked.
	asked
	// running: the log did not have it when somebody watched already, so it cannot come unnoticed.
	running
)

// preview is what is known of an entry that is being made: the last part of its bytes. Its topic's lock
// guards it, but for touched, which is the hub's.
type preview struct {
	topic *topic
	id    string
	// data ends at byte end. It is only ever appended to or replaced, so parts of it can be shared.
	data     []byte
	end      int64
	standing standing
	// forwarded is up to where other servers were told; only meaningful where it was published.
	forwarded int64

	touched time.Time
}

// add takes a delta. What is known already is left out; bytes that were missed start the preview anew, as
// there must be no hole in it. It reports whether anything changed.
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
	if len(p.data) > 2*keptBytes { // not at every delta, or each would copy it all
		p.data = slices.Clone(lastBytes(p.data, keptBytes))
	}
	p.end += int64(len(data))
	return len(data) > 0
}

// since is what comes after an offset, or the kept part when that starts later.
func (p *preview) since(offset int64) Delta {
	n := min(p.end-offset, int64(len(p.data)))
	data := lastBytes(p.data, int(n))
	return Delta{EntryID: p.id, Offset: p.end - n, Data: data[:n:n]}
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
