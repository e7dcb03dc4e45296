package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// pageSize is the number of entries that a page shows at first, and the size of each further piece. Reactions, edits and
// deletions do not count, because pages show them at the entries that they change.
const pageSize = 50

// window reads the piece of a log that a query asks for: around ?at, before ?before, after ?after, or by default the end.
func (a *app) window(ctx context.Context, t *arbev1.Thread, q url.Values) (window, error) {
	req, err := windowRequest(t, q)
	if err != nil {
		return window{}, err
	}
	res, err := a.services.entries.List(ctx, req)
	if err != nil {
		return window{}, err
	}
	people, err := a.peopleOf(ctx, t.HouseId)
	if err != nil {
		return window{}, err
	}
	piece := transcript.Entries(res.Entries)
	log := transcript.New(a.sourceOf(people), t)
	log.ApplyStates(res.Entries)
	rows, err := log.Rows(ctx, piece, res.Tail)
	if err != nil {
		return window{}, err
	}
	w := window{Thread: t.Id, Places: topic{"house", t.HouseId, ""}.String() + " " + topic{"names", t.HouseId, ""}.String(), Rows: a.rowsOf(ctx, rows), Tail: res.Tail}
	if w.First, w.Last = req.After+1, res.Searched; req.Last || req.Before > 0 {
		w.First, w.Last = res.Searched, res.Tail
		if req.Before > 0 {
			w.Last = min(w.Last, req.Before-1)
		}
	}
	if w.AtEnd() {
		w.Writing, err = log.AtWork(ctx, t)
	}
	return w, err
}

func windowRequest(t *arbev1.Thread, q url.Values) (*arbev1.ListRequest, error) {
	req := &arbev1.ListRequest{ThreadId: t.Id, Limit: pageSize, Merged: true}
	at, err1 := position(q, "at")
	before, err2 := position(q, "before")
	after, err3 := position(q, "after")
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, err
		}
	}
	switch {
	// If the entry is closer to the end, the last page has it too.
	case at > 0 && t.Tail-at >= pageSize:
		req.After = max(at-pageSize/2, 0)
	case before > 0:
		req.Before = before
	case q.Has("after"):
		req.After = after
	default:
		req.Last = true
	}
	return req, nil
}

func (a *app) entry(w http.ResponseWriter, r *http.Request) error {
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	wire, err := a.wireEntryAt(r)
	if err != nil {
		return err
	}
	e := transcript.Entry(wire)
	people, err := a.peopleOf(r.Context(), res.Thread.HouseId)
	if err != nil {
		return err
	}
	t := transcript.New(a.sourceOf(people), res.Thread)
	t.ApplyStates([]*arbev1.Entry{wire})
	t.Unfold()
	shown, err := t.Rows(r.Context(), []entry.Entry{e}, res.Thread.Tail)
	if err != nil {
		return err
	}
	rows := a.rowsOf(r.Context(), shown)
	if fromScript(r) {
		return a.patch(w, r, "#e"+strconv.FormatInt(e.Seq, 10)+" > .body", entryBody(rows[0]))
	}
	f, err := a.layoutOf(r, res.Thread.HouseId, res.Thread.Id)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, entryPage(f, res.Thread, rows[0]))
}

// entryRaw sends an entry's payload as stored in the log, as plain text, so that a browser never treats it as a page.
func (a *app) entryRaw(w http.ResponseWriter, r *http.Request) error {
	e, err := a.entryAt(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "private, no-cache")
	send(w, r, http.StatusOK, e.Payload, nil)
	return nil
}

// commandOutputText sends the part of a command's output that the log has, as a download. Browsers must not show it as a page
// of this app, because the command chose its contents.
func (a *app) commandOutputText(w http.ResponseWriter, r *http.Request) error {
	e, err := a.entryAt(r)
	if err != nil {
		return err
	}
	result, ok := entry.As[entry.CommandResult](e)
	if !ok {
		return fault.Newf(fault.NotFound, "open the thread and choose a command", "entry %d is not a command result", e.Seq)
	}
	text := result.Output
	if result.Truncated {
		text += "\n… " + bytesText(result.Omitted()) + " left out …\n" + result.OutputTail
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="output-`+decimal(e.Seq)+`.txt"`)
	w.Header().Set("Cache-Control", "private, no-cache")
	send(w, r, http.StatusOK, []byte(text), nil)
	return nil
}

// entryAt reads the entry that a request's path names.
func (a *app) entryAt(r *http.Request) (entry.Entry, error) {
	wire, err := a.wireEntryAt(r)
	if err != nil {
		return entry.Entry{}, err
	}
	return transcript.Entry(wire), nil
}

// wireEntryAt is like entryAt, and the entry has its edits, deletion and reactions.
func (a *app) wireEntryAt(r *http.Request) (*arbev1.Entry, error) {
	seq, err := position(url.Values{"seq": {r.PathValue("seq")}}, "seq")
	if err != nil {
		return nil, err
	}
	res, err := a.services.entries.List(r.Context(), &arbev1.ListRequest{ThreadId: r.PathValue("thread"), After: max(seq-1, 0), Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(res.Entries) == 0 || res.Entries[0].Seq != seq {
		return nil, fault.Newf(fault.NotFound, "open the thread to see the entries it has", "there is no entry %d in this thread", seq)
	}
	return res.Entries[0], nil
}
