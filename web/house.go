package web

import (
	"net/http"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// home lists the reader's houses. A reader with one house is redirected to it.
func (a *app) home(w http.ResponseWriter, r *http.Request) error {
	me, err := a.services.agents.WhoAmI(r.Context(), &arbev1.WhoAmIRequest{})
	if err != nil {
		return err
	}
	res, err := a.services.houses.ListHouses(r.Context(), &arbev1.ListHousesRequest{PageSize: 200})
	if err != nil {
		return err
	}
	if len(res.Houses) == 1 {
		http.Redirect(w, r, housePath(res.Houses[0].Id), http.StatusSeeOther)
		return nil
	}
	return a.show(w, r, http.StatusOK, homePage(layout{Theme: a.themeOf(r), Path: r.URL.RequestURI(), Me: me.Agent, Houses: res.Houses}))
}

// house lists a house's threads.
func (a *app) house(w http.ResponseWriter, r *http.Request) error {
	return a.showHouse(w, r, http.StatusOK, newThread{ThreadID: newID(), EntryID: newID(), Example: r.URL.Query().Get("example")})
}

func (a *app) showHouse(w http.ResponseWriter, r *http.Request, status int, n newThread) error {
	f, err := a.layoutOf(r, r.PathValue("house"), "")
	if err != nil {
		return err
	}
	if n.Problem != nil {
		f.Path = housePath(f.House.Id) // the form's own address has no page
	}
	if n.People, err = a.mentionable(r.Context(), f.House.Id); err != nil {
		return err
	}
	if text := exampleText(n.People, n.Example); text != "" {
		n.Text = text
	}
	if n.Problem == nil {
		n.Missing = a.checklistOf(w, r, f)
	}
	return a.show(w, r, status, housePage(f, n))
}

// startThread creates a thread and posts its first message.
func (a *app) startThread(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, text, name := r.PathValue("house"), textOf(r), strings.TrimSpace(r.PostFormValue("name"))
	fields := map[string]string{"thread": r.PostFormValue("thread"), "entry": r.PostFormValue("entry"), "name": name}
	fail := func(err error) error { return &unsent{error: err, Action: r.URL.Path, Fields: fields, Text: text} }

	// Check the text before creating the thread, because a thread whose first text is refused would stay empty.
	if err := entry.CheckComposed(text); err != nil {
		f := faultOf(err)
		return a.showHouse(w, r, httpStatus(f), newThread{ThreadID: fields["thread"], EntryID: fields["entry"], Text: text, Name: name, Problem: f})
	}
	first := outgoingMessage{ID: fields["entry"], Text: text, Files: filesOf(r)}
	if err := checkMessage(first); err != nil {
		return fail(err)
	}
	if name == "" {
		name = entry.Title(text)
	}
	if name == "" && len(first.Files) > 0 {
		name = first.Files[0].Name
	}
	res, err := a.services.threads.CreateThread(r.Context(), &arbev1.CreateThreadRequest{HouseId: house, Id: fields["thread"], Name: name})
	if err != nil {
		return fail(err)
	}
	if strings.TrimSpace(text) != "" || len(first.Files) > 0 {
		first.Thread = res.Thread.Id
		if _, err := a.post(r.Context(), first); err != nil {
			return fail(err)
		}
	}
	// The fragment gives the composer the focus.
	http.Redirect(w, r, threadPath(res.Thread.Id)+"#composer-text", http.StatusSeeOther)
	return nil
}
