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

// What entries of logs hold that are not a thread's. They are no kinds of [entry.Kinds]: what they say is
// their writers' business.
const (
	// messageType is an entry whose payload is one JSON message.
	messageType = "message"
	// bytesType is an entry whose payload is a JSON string: some bytes in base64.
	bytesType = "bytes"
)

// MediaType is a content type without its parameters, in lower case: two that agree in it are the same.
func MediaType(contentType string) string {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// IsJSON tells whether content of this type is messages, rather than bytes.
func IsJSON(contentType string) bool { return MediaType(contentType) == "application/json" }

// Drafts makes entries of one append's content: of JSON, one for each element of an array and one of any other
// value; else one of all the bytes. The error is a [fault.Invalid]: it is not JSON.
func Drafts(contentType, author string, content []byte) ([]entry.Draft, error) {
	append := uuid.Must(uuid.NewV7()).String()
	if !IsJSON(contentType) {
		if len(content) == 0 {
			return nil, nil
		}
		return []entry.Draft{{ID: append, Author: author, Type: bytesType, Payload: encode(content)}}, nil
	}
	content = bytes.TrimSpace(content)
	if !json.Valid(content) {
		return nil, fault.New(fault.Invalid, "the body is not JSON", "send one JSON value, or an array of messages")
	}
	messages := []json.RawMessage{content}
	if content[0] == '[' {
		if err := json.Unmarshal(content, &messages); err != nil {
			return nil, fault.New(fault.Invalid, "the body is not JSON", "send one JSON value, or an array of messages").Because(err)
		}
	}
	drafts := make([]entry.Draft, len(messages))
	for i, m := range messages {
		drafts[i] = entry.Draft{ID: append + "." + strconv.Itoa(i), Author: author, Type: messageType, Payload: m}
	}
	return drafts, nil
}

// sameAppend tells whether two entries were written by one append, by their ids.
func sameAppend(a, b entry.Entry) bool {
	first, _, _ := strings.Cut(a.ID, ".")
	second, _, _ := strings.Cut(b.ID, ".")
	return first == second
}

// Bytes is what an entry adds to the content of its log: one message of JSON text, or some bytes.
func Bytes(e entry.Entry) []byte {
	if e.Type != bytesType {
		return e.Payload
	}
	text := bytes.Trim(e.Payload, `"`)
	content := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(content, text)
	if err != nil {
		return nil // written past this package
	}
	return content[:n]
}

// encode is content as JSON text.
func encode(content []byte) json.RawMessage {
	text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(content))+2)
	text = append(text, '"')
	text = base64.StdEncoding.AppendEncode(text, content)
	return append(text, '"')
}
