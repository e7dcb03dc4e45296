package door

import (
	"bytes"
	"strings"

	"encoding/json"
	"strconv"
	"time"

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

// body builds the content of a response.
type body struct {
	form
	text []byte
	// begun reports that the array has been opened.
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

// appendMessage appends an entry as one message of its stream. A thread's entry is {seq, id, type, authorId, payload,
// ts}. It is built by hand because its payload is JSON already, and most of the work of encoding/json would be to scan
// it again.
func (f form) appendMessage(text []byte, e entry.Entry) []byte {
	if !f.thread {
		return append(text, stream.Bytes(e)...)
	}
	text = strconv.AppendInt(append(text, `{"seq":`...), e.Seq, 10)
	text = appendString(append(text, `,"id":`...), e.ID)
	text = appendString(append(text, `,"type":`...), e.Type)
	if e.Author != "" {
		text = appendString(append(text, `,"authorId":`...), e.Author)
	}
	text = appendTyped(append(text, `,"payload":`...), e)
	text = e.Time.AppendFormat(append(text, `,"ts":"`...), time.RFC3339Nano)
	return append(text, `"}`...)
}

// appendString appends a string as JSON.
func appendString(text []byte, s string) []byte {
	// Most strings need no escaping, and Marshal would allocate.
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s)
			return append(text, quoted...)
		}
	}
	return append(append(append(text, '"'), s...), '"')
}

// appendTyped appends an entry's payload with the type inside, where clients of this door expect it.
func appendTyped(text []byte, e entry.Entry) []byte {
	fields, isObject := bytes.CutPrefix(bytes.TrimSpace(e.Payload), []byte("{"))
	if !isObject || hasType(e.Payload) {
		return append(text, e.Payload...)
	}
	text = appendString(append(text, `{"type":`...), e.Type)
	if fields = bytes.TrimSpace(fields); fields[0] != '}' {
		text = append(text, ',')
	}
	return append(text, fields...)
}

// hasType reports whether a JSON object has a field named "type".
func hasType(object []byte) bool {
	switch {
	case bytes.HasPrefix(object, []byte(`{"type":`)):
		return true
	case !bytes.Contains(object, []byte(`"type"`)) && !bytes.Contains(object, []byte(`\u`)): // nor in an escaped spelling
		return false
	}
	var fields map[string]json.RawMessage
	return json.Unmarshal(object, &fields) == nil && fields["type"] != nil
}
