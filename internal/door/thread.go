package door

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/stream"
)

// threadsOwn returns the error for an operation that is possible on a thread, but not on its stream.
func threadsOwn(what, next string) error {
	return fault.Newf(fault.Precondition, next, "a thread's stream cannot be %s on its own", what)
}

// posted is an entry as clients send it. The log sets the time and ignores the client's.
type posted struct {
	ID       string          `json:"id"`
	AuthorID string          `json:"authorId"`
	Payload  json.RawMessage `json:"payload"`
	// Literal makes it a chat even if it looks like a command.
	Literal bool `json:"literal"`
}

// drafts returns the entries in a body of this content type, and which of a thread's chats are literal.
func (r request) drafts(contentType string, body []byte) (drafts []entry.Draft, literal []bool, err error) {
	if !r.thread {
		drafts, err = stream.Drafts(contentType, r.agent, body)
		return drafts, nil, err
	}
	return threadDrafts(r.agent, r.run != 0, body)
}

// append writes a request's entries. In a thread, a chat that is a command is run if its author may run commands.
func (d *Door) append(r request, w stream.Write, literal []bool) (stream.Written, error) {
	thread, ok := threadOf(r.ref.Name)
	if ok && r.run != 0 && d.Dispatcher != nil {
		done, err := d.Dispatcher.Runs.Accept(r.Context(), run.Poster{House: r.ref.House, Thread: thread, Agent: r.agent, Epoch: r.run}, w)
		if fault.CodeOf(err) == fault.Precondition && len(w.Content) == 1 && w.Content[0].Type == (entry.QueueTaken{}).Type() {
			return done, refusal{http.StatusPreconditionFailed, err} // a runner repeats what a door answers with 409
		}
		return done, unprocessable(err)
	}
	if !ok || d.Dispatcher == nil {
		for i, draft := range w.Content {
			if ok && r.confined {
				w.Content[i] = entry.Confine(draft)
			}
		}
		if d.Dispatcher != nil {
			if err := d.Dispatcher.MayGrow(r.Context(), db.Scope{House: r.ref.House, Agent: r.agent}); err != nil {
				return stream.Written{}, err
			}
		}
		return d.Log.Write(r.Context(), r.ref, w)
	}
	by := dispatch.Speaker{Scope: db.Scope{House: r.ref.House, Agent: r.agent}, MayRun: r.mayRun, Confined: r.confined}
	return d.Dispatcher.SayAll(r.Context(), by, thread, w, literal)
}

// keepWhole receives the full text of a result from a runner, which posts the entry later.
func (d *Door) keepWhole(w http.ResponseWriter, r request, id string) error {
	thread, ok := threadOf(r.ref.Name)
	if !ok {
		return fault.New(fault.Invalid, "whole: this is not a thread's stream", "leave it out")
	}
	body, lease, err := d.content(w, r, maxBody)
	if err != nil {
		return err
	}
	defer lease.Release()
	by := run.Poster{House: r.ref.House, Thread: thread, Agent: r.agent, Epoch: r.run}
	if err := d.Dispatcher.Runs.KeepWhole(r.Context(), by, id, body); err != nil {
		return unprocessable(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// threadDrafts returns the entry in a body, or the entries of an array, with agent as their author, and which of them
// are literal. The receiver of a runner's posts checks them.
func threadDrafts(agent string, runner bool, body []byte) (drafts []entry.Draft, literal []bool, err error) {
	var list []posted
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		if err := stream.CheckCount(body); err != nil {
			return nil, nil, err
		}
		err = json.Unmarshal(body, &list)
	} else {
		list = make([]posted, 1)
		err = json.Unmarshal(body, &list[0])
	}
	if _, wrongType := errors.AsType[*json.UnmarshalTypeError](err); wrongType {
		return nil, nil, unprocessable(fault.New(fault.Invalid, "this is not an entry: id, ts and authorId must be strings", "send {id, ts, authorId, payload}, or an array of those").Because(err))
	} else if err != nil {
		return nil, nil, fault.New(fault.Invalid, "the body is not JSON", "send {id, ts, authorId, payload}, or an array of those").Because(err)
	}
	drafts, literal = make([]entry.Draft, len(list)), make([]bool, len(list))
	for i, p := range list {
		if drafts[i], err = p.draft(agent, runner); err != nil {
			return nil, nil, err
		}
		literal[i] = p.Literal
	}
	return drafts, literal, nil
}

// draft validates the posted entry and returns its draft.
func (p posted) draft(agent string, runner bool) (entry.Draft, error) {
	if p.AuthorID != "" && p.AuthorID != agent {
		return entry.Draft{}, fault.New(fault.Forbidden, "authorId: you can only write entries in your own name", "leave it out")
	}
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(p.Payload, &kind); err != nil || kind.Type == "" {
		return entry.Draft{}, unprocessable(fault.New(fault.Invalid, "payload.type: it is missing", `send a payload such as {"type": "chat", "text": "hello"}`))
	}
	d := entry.Draft{ID: p.ID, Author: agent, Type: kind.Type, Payload: p.Payload}
	if runner {
		return d, nil
	}
	return d, unprocessable(entry.Check(d, entry.Anyone))
}

// unprocessable marks an error as one about an entry's content rather than about the request.
func unprocessable(err error) error {
	switch fault.CodeOf(err) {
	case fault.Invalid:
		return refusal{http.StatusUnprocessableEntity, err}
	case fault.Exhausted:
		return refusal{http.StatusRequestEntityTooLarge, err}
	}
	return err
}
