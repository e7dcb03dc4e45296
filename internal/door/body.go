package door

import (
	"bytes"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

// form is the format in which the content of a stream is sent.
type form struct {
	// thread is as in [request].
	thread bool
	// array reports that messages are elements of one array, and lines that each message is a line. Otherwise the
	// content is bytes.
	array, lines bool
	// binary reports that the content is not text, so that events need another encoding.
	binary bool
}

// formOf returns the form of a stream with this content type. lines requests one message per line.
func formOf(contentType string, thread, lines bool) form {
	kind := stream.MediaType(contentType)
	json := stream.IsJSON(kind)
	return form{thread: thread, array: json && !lines, lines: json && lines, binary: !json && !strings.HasPrefix(kind, "text/")}
}

// body builds the content of a stream.
type body struct {
	form
	text []byte
	// begun reports that the start of an array was written.
	begun bool
}

// add adds an entry.
func (b *body) add(e *entry.Entry) {
	start := len(b.text)
	if b.array {
		b.separate()
	}
	b.text = b.appendMessage(b.text, *e)
	if b.lines {
		unbreak(b.text[start:])
		b.text = append(b.text, '\n')
	}
}

// separate begins an array or writes its next separator.
func (b *body) separate() {
	if b.begun {
		b.text = append(b.text, ',')
		return
	}
	b.text, b.begun = append(b.text, '['), true
}

// end returns the text after completing it.
func (b *body) end() []byte {
	switch {
	case !b.array:
	case !b.begun:
		b.text = append(b.text, "[]"...)
	default:
		b.text = append(b.text, ']')
	}
	return b.text
}

// unbreak puts JSON text on one line. Its line breaks are between values, because no JSON string contains one.
func unbreak(text []byte) {
	for _, c := range []byte("\n\r") {
		for rest := text; ; {
			i := bytes.IndexByte(rest, c)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
}
