package command

import (
	"slices"

	"github.com/arbe-dev/arbe/internal/entry"
)

// PeekMost is the size of the largest [Seen].
const PeekMost = 40 << 10

// Seen is a part of a command's output.
type Seen struct {
	Text string
	// It begins at At and ends at Next. Total is the length of the whole output.
	At, Next, Total int64
}

// SeenIn returns the part of the output that a result holds from a position on.
func SeenIn(r entry.CommandResult, from int64) Seen {
	return partOf([]byte(r.Output), []byte(r.OutputTail), max(r.OutputBytes, int64(len(r.Output)+len(r.OutputTail))), from)
}

// partOf returns the part of an output that begins at a position, or at the first kept byte after it. A negative position
// means the end. head and tail are the kept parts of total bytes.
func partOf(head, tail []byte, total, from int64) Seen {
	at := total - int64(len(tail)) // of the tail
	if from < 0 {
		from = max(total-PeekMost, 0)
	}
	from = min(from, total)
	var data []byte
	switch n := int64(len(head)); {
	case from < n && n == at:
		data = slices.Concat(head[from:], tail)
	case from < n:
		data = head[from:]
	default:
		from = max(from, at)
		data = tail[from-at:]
	}
	data = data[:min(len(data), PeekMost)]
	text := dropPartialEnd(dropPartialStart(data))
	from += int64(len(data) - len(dropPartialStart(data)))
	return Seen{Text: string(text), At: from, Next: from + int64(len(text)), Total: total}
}
