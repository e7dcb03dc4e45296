package door

import (
	"bytes"
	"encoding/base64"

	"github.com/arbe-dev/arbe/internal/stream"
)

// maxFrame is the size of content at which a data event ends, in bytes.
const maxFrame = 256 << 10

// state is the content of a control event.
type state struct {
	seq              int64
	upToDate, closed bool
}

// appendControl appends the control event for a state, with the cursor that the client sends when it reconnects.
func appendControl(text []byte, s state, cursor string) []byte {
	// Offsets and cursors are digits, which need no escaping.
	text = append(append(append(text, "event: control\ndata:{\"streamNextOffset\":\""...), stream.Offset(s.seq)...), '"')
	if !s.closed { // otherwise no client reconnects
		text = append(append(append(text, `,"streamCursor":"`...), cursor...), '"')
	}
	if s.upToDate {
		text = append(text, `,"upToDate":true`...)
	}
	if s.closed {
		text = append(text, `,"streamClosed":true`...)
	}
	return append(text, "}\n\n"...)
}

// dataEvent returns content as a data event. It has spare capacity for a control event.
func dataEvent(content []byte, binary bool) []byte {
	text := append(make([]byte, 0, len(content)+512), "event: data\n"...)
	if binary {
		return append(base64.StdEncoding.AppendEncode(append(text, "data:"...), content), "\n\n"...)
	}
	// Content must not end the event, so every kind of line break that a reader of events recognises starts a new data
	// line.
	content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	content = bytes.ReplaceAll(content, []byte("\r"), []byte("\n"))
	for line := range bytes.SplitSeq(content, []byte("\n")) {
		text = append(append(append(text, "data:"...), line...), '\n')
	}
	return append(text, '\n')
}
