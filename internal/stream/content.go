package stream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// The types of entries in logs that are not a thread's. They are not kinds of [entry.Kinds], because only their writers
// know what they mean.
const (
	// messageType is an entry whose payload is one JSON message.
	messageType = "message"
	// bytesType is an entry whose payload is a JSON string: bytes in base64. It is base64, because JSON text cannot
	// hold arbitrary bytes.
	bytesType = "bytes"
)

// MaxMessages is the most messages of one append. Postgres writes that many in a fraction of a second. Without a limit,
// an append of a few MiB could have millions, which need gigabytes of memory and more time than a statement may take.
const MaxMessages = 10_000

// jsonSpace is the white space that JSON allows (RFC 8259, section 2). [bytes.TrimSpace] removes more, for example a
// form feed, and would accept text that is not JSON.
const jsonSpace = " \t\r\n"

// MediaType returns a content type in lower case without its parameters. Two content types are the same if their media
// types are, because the protocol ignores case and parameters.
func MediaType(contentType string) string {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// IsJSON reports whether content of this type consists of JSON messages rather than bytes.
func IsJSON(contentType string) bool { return MediaType(contentType) == "application/json" }

// Drafts turns the content of one append into entries: JSON becomes one entry per element of an array, or one for any
// other value; anything else becomes one entry with all the bytes. Each message has its own entry, so that a reader can
// resume and a fork begin after any of them.
//
// Errors: [fault.Invalid] (the content is not JSON) and those of [CheckCount].
func Drafts(contentType, author string, content []byte) ([]entry.Draft, error) {
	id := uuid.Must(uuid.NewV7()).String()
	if !IsJSON(contentType) {
		if len(content) == 0 {
			return nil, nil
		}
		return []entry.Draft{{ID: id, Author: author, Type: bytesType, Payload: encode(content)}}, nil
	}
	content = bytes.Trim(content, jsonSpace)
	var messages []json.RawMessage
	if bytes.HasPrefix(content, []byte("[")) {
		if err := CheckCount(content); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(content, &messages); err != nil {
			return nil, notJSON().Because(err)
		}
	} else if messages = []json.RawMessage{content}; !json.Valid(content) {
		return nil, notJSON()
	}
	drafts := make([]entry.Draft, len(messages))
	for i, m := range messages {
		drafts[i] = entry.Draft{ID: id + "." + strconv.Itoa(i), Author: author, Type: messageType, Payload: m}
	}
	return drafts, nil
}

// CheckCount returns a [fault.Exhausted] for a JSON array of more than [MaxMessages] elements. Call it before the array
// is decoded, because decoding allocates memory for every element. It accepts text that is not JSON, so that the
// decoder's error says what is wrong with it.
func CheckCount(array []byte) error {
	// Most arrays have so few commas, inside and between their elements, that the elements need not be counted.
	if bytes.Count(array, []byte(",")) < MaxMessages || !exceeds(array, MaxMessages) || !json.Valid(array) {
		return nil
	}
	return fault.Newf(fault.Exhausted, "append them in parts", "an append has at most %d messages", MaxMessages).WithReason(fault.TooLarge)
}

// exceeds reports whether a JSON array has more than most elements. It counts the commas outside of strings and of
// nested values. The result means nothing if the text is not JSON.
func exceeds(array []byte, most int) bool {
	elements, depth := 1, 0
	for i := 0; i < len(array) && elements <= most; i++ {
		switch array[i] {
		case '"':
			i += stringLen(array[i+1:])
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth == 1 {
				elements++
			}
		}
	}
	return elements > most
}

// stringLen returns the length of the rest of a JSON string, whose first quote is before text. It includes the last
// quote.
func stringLen(text []byte) (n int) {
	for {
		end := bytes.IndexByte(text[n:], '"')
		if end < 0 {
			return len(text)
		}
		n += end + 1
		// An odd number of backslashes escapes the quote.
		if before := text[n-1-end : n-1]; (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 0 {
			return n
		}
	}
}

func notJSON() *fault.Error {
	return fault.New(fault.Invalid, "the body is not JSON", "send one JSON value, or an array of messages")
}

// sameAppend reports whether one append wrote both entries. Their ids show it, because [Drafts] gives the messages of
// one append ids with the same beginning.
func sameAppend(a, b entry.Entry) bool {
	first, _, _ := strings.Cut(a.ID, ".")
	second, _, _ := strings.Cut(b.ID, ".")
	return first == second
}

// Bytes returns the content of an entry: one JSON message, or bytes.
func Bytes(e entry.Entry) []byte {
	if e.Type != bytesType {
		return e.Payload
	}
	text := bytes.Trim(e.Payload, `"`)
	content := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(content, text)
	if err != nil {
		return nil // not written by this package
	}
	return content[:n]
}

// encode returns content as JSON text.
func encode(content []byte) json.RawMessage {
	text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(content))+2)
	text = append(text, '"')
	text = base64.StdEncoding.AppendEncode(text, content)
	return append(text, '"')
}
