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
// resume and a fork begin after any of them. The error is a [fault.Invalid]: the content is not JSON.
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
