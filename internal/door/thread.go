package door

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// threadsOwn refuses what only a thread does to its stream.
func threadsOwn(what, next string) error {
	return fault.Newf(fault.Precondition, next, "a thread's stream is not %s by itself", what)
}

// posted is an entry as it comes in. Its time is the log's to say: the caller's is not looked at.
type posted struct {
	ID       string          `json:"id"`
	AuthorID string          `json:"authorId"`
	Payload  json.RawMessage `json:"payload"`
}

// drafts are the entries that a body of a content type asks for.
func (r request) drafts(contentType string, body []byte) ([]entry.Draft, error) {
	if !r.thread {
		return stream.Drafts(contentType, r.agent, body)
	}
	return threadDrafts(r.agent, body)
}

// threadDrafts are one entry or an array of them, in the name of agent.
func threadDrafts(agent string, body []byte) ([]entry.Draft, error) {
	var list []posted
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		err = json.Unmarshal(body, &list)
	} else {
		list = make([]posted, 1)
		err = json.Unmarshal(body, &list[0])
	}
	if _, wrongType := errors.AsType[*json.UnmarshalTypeError](err); wrongType {
		return nil, unprocessable(fault.New(fault.Invalid, "it is no entry: an id, a time and an author are texts", "send {id, ts, authorId, payload}, or an array of those").Because(err))
	} else if err != nil {
		return nil, fault.New(fault.Invalid, "the body is not JSON", "send {id, ts, authorId, payload}, or an array of those").Because(err)
	}
	drafts := make([]entry.Draft, len(list))
	for i, p := range list {
		if drafts[i], err = p.draft(agent); err != nil {
			return nil, err
		}
	}
	return drafts, nil
}

// draft is what was posted as an entry to write, checked.
func (p posted) draft(agent string) (entry.Draft, error) {
	if p.AuthorID != "" && p.AuthorID != agent {
		return entry.Draft{}, fault.New(fault.Forbidden, "authorId: an entry is written in one's own name only", "leave it out")
	}
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(p.Payload, &kind); err != nil || kind.Type == "" {
		return entry.Draft{}, unprocessable(fault.New(fault.Invalid, "payload.type: it is missing", `send a payload such as {"type": "chat", "text": "hello"}`))
	}
	d := entry.Draft{ID: p.ID, Author: agent, Type: kind.Type, Payload: p.Payload}
	if err := entry.Check(d, entry.Anyone); err != nil {
		return entry.Draft{}, unprocessable(err)
	}
	return d, nil
}

// unprocessable is an error about what an entry says, rather than about the request.
func unprocessable(err error) error {
	switch fault.CodeOf(err) {
	case fault.Invalid:
		return refusal{http.StatusUnprocessableEntity, err}
	case fault.Exhausted:
		return refusal{http.StatusRequestEntityTooLarge, err}
	}
	return err
}

// appendMessage appends an entry as one message of its stream. A thread's is
// {seq, id, type, authorId, payload, ts}, written by hand: its payload is JSON text already, and looking
// through it once more is most of what encoding/json would do.
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

// appendString appends a text as JSON.
func appendString(text []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s)
			return append(text, quoted...)
		}
	}
	return append(append(append(text, '"'), s...), '"')
}

// appendTyped appends an entry's payload with its type in it, where those who post through this door put it.
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

// hasType tells whether a JSON object has a field of this name.
func hasType(object []byte) bool {
	switch {
	case bytes.HasPrefix(object, []byte(`{"type":`)):
		return true
	case !bytes.Contains(object, []byte(`"type"`)) && !bytes.Contains(object, []byte(`\u`)): // nor is it spelled otherwise
		return false
	}
	var fields map[string]json.RawMessage
	return json.Unmarshal(object, &fields) == nil && fields["type"] != nil
}
