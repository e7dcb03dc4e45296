package web

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// queueOf reads the messages that wait for the coding agent of a thread.
func (a *app) queueOf(ctx context.Context, t *arbev1.Thread, p *people) (v queueView, err error) {
	if t.AgentId == "" {
		return v, nil
	}
	q, err := a.services.runs.ListQueue(ctx, &arbev1.ListQueueRequest{ThreadId: t.Id})
	if err != nil || len(q.Messages) == 0 {
		v.Steers = q.GetSteers()
		return v, err
	}
	if p == nil {
		if p, err = a.peopleOf(ctx, t.HouseId); err != nil {
			return v, err
		}
	}
	if err := p.Meet(ctx, t.AgentId); err != nil {
		return v, err
	}
	return newQueueView(t, q, func(agent string) string { return clip(cmp.Or(p.ByID(agent).Name, "somebody"), maxWord) }), nil
}

// queuePatch returns the changes that an entry makes to the queue, if any.
func (l *liveThread) queuePatch(ctx context.Context, e entry.Entry) ([]patch, error) {
	if l.thread.AgentId == "" || !slices.Contains(entry.QueueEntries(), e.Type) || e.Author == l.thread.AgentId && e.Type == (entry.Chat{}).Type() {
		return nil, nil
	}
	v, err := l.app.queueOf(ctx, l.thread, l.people)
	if err != nil {
		return nil, err
	}
	return one(ctx, "#queue", "", queue(v))
}

// changeQueue edits, moves or cancels a waiting message, or changes when the agent gets it, as the form asks.
func (a *app) changeQueue(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	version, err := strconv.ParseInt(r.PostForm.Get("version"), 10, 64)
	if err != nil {
		return fault.New(fault.Invalid, "version: it is not a number", "open the thread again")
	}
	req := &arbev1.ChangeQueueRequest{ThreadId: r.PathValue("thread"), EntryId: r.PostForm.Get("entry_id"), Version: version, Once: r.PostForm.Get("once")}
	switch {
	case r.PostForm.Has("cancel"):
		req.Change = &arbev1.ChangeQueueRequest_Cancel_{Cancel: &arbev1.ChangeQueueRequest_Cancel{}}
	case r.PostForm.Has("move"):
		req.Change = &arbev1.ChangeQueueRequest_Move_{Move: &arbev1.ChangeQueueRequest_Move{BeforeEntryId: r.PostForm.Get("move")}}
	case r.PostForm.Has("queue"):
		req.Change = &arbev1.ChangeQueueRequest_Queue{Queue: r.PostForm.Get("queue") == "true"}
	default:
		req.Change = &arbev1.ChangeQueueRequest_Edit{Edit: r.PostForm.Get("edit")}
	}
	_, err = a.services.runs.ChangeQueue(r.Context(), req)
	return a.doneInThread(w, r, err)
}
