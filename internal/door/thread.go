package door

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
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

// record is an entry as it goes out.
type record struct {
	Seq      int64           `json:"seq"`
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	AuthorID string          `json:"authorId,omitempty"`
	Payload  json.RawMessage `json:"payload"`
	Time     time.Time       `json:"ts"`
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

// message is an entry as one message of its stream.
func (r request) message(e entry.Entry) []byte {
	if !r.thread {
		return stream.Bytes(e)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(record{e.Seq, e.ID, e.Type, e.Author, typed(e), e.Time}); err != nil {
		return []byte("null") // a payload that is no JSON, which the log does not take
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

// typed is an entry's payload with its type in it, where those who post through this door put it.
func typed(e entry.Entry) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(e.Payload, &fields) != nil || fields == nil || fields["type"] != nil {
		return e.Payload
	}
	kind, _ := json.Marshal(e.Type)
	rest := bytes.TrimSpace(e.Payload)[1:]
	if len(fields) > 0 {
		kind = append(kind, ',')
	}
	return append(append([]byte(`{"type":`), kind...), rest...)
}
