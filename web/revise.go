package web

import (
	"net/http"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// editMessage changes the text of the reader's last message.
func (a *app) editMessage(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	u := outgoingMessage{ID: r.PostFormValue("entry"), Text: textOf(r)}
	if err := checkMessage(u); err != nil {
		return err
	}
	e, err := a.entryAt(r)
	if err == nil {
		_, err = a.services.entries.Edit(r.Context(), &arbev1.EditRequest{ThreadId: r.PathValue("thread"), EntryId: e.ID, Text: u.Text, Id: u.ID})
	}
	return a.doneInThread(w, r, err)
}

// deleteMessage deletes the reader's last message.
func (a *app) deleteMessage(w http.ResponseWriter, r *http.Request) error {
	e, err := a.entryAt(r)
	if err == nil {
		_, err = a.services.entries.Delete(r.Context(), &arbev1.DeleteRequest{ThreadId: r.PathValue("thread"), EntryId: e.ID})
	}
	return a.doneInThread(w, r, err)
}

// messageText sends the present text of a message, unformatted. It sends plain text, so that a browser never treats it as a page.
func (a *app) messageText(w http.ResponseWriter, r *http.Request) error {
	e, err := a.wireEntryAt(r)
	if err != nil {
		return err
	}
	said, ok := entry.As[entry.Chat](transcript.Entry(e))
	if !ok || e.State.GetDeleted() {
		return fault.Newf(fault.NotFound, "open the thread and choose a message", "entry %d has no text", e.Seq)
	}
	text := said.Text
	if e.State.GetText() != "" {
		text = e.State.Text
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "private, no-cache")
	send(w, r, http.StatusOK, []byte(text), nil)
	return nil
}

// wordings shows the earlier texts of a message, in its place or as a page.
func (a *app) wordings(w http.ResponseWriter, r *http.Request) error {
	e, err := a.entryAt(r)
	if err != nil {
		return err
	}
	res, err := a.services.entries.ListEdits(r.Context(), &arbev1.ListEditsRequest{ThreadId: r.PathValue("thread"), EntryId: e.ID})
	if err != nil {
		return err
	}
	if fromScript(r) {
		return a.patch(w, r, "#"+wordingsID(e.Seq), wordingList(e.Seq, res.Wordings))
	}
	of, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	f, err := a.layoutOf(r, of.Thread.HouseId, of.Thread.Id)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, wordingsPage(f, of.Thread, e.Seq, res.Wordings))
}
