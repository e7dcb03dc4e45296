package web

import (
	"net/http"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// messageAgent redirects to the reader's direct message to a person or a bot. It begins a new one if the reader has none yet,
// or if the request asks for a new one.
func (a *app) messageAgent(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	res, err := a.services.threads.CreateThread(r.Context(), &arbev1.CreateThreadRequest{HouseId: r.PathValue("house"), ParentAgentId: r.PathValue("agent"),
		Reuse: r.PostFormValue("new") == ""})
	if err != nil {
		return err
	}
	http.Redirect(w, r, threadPath(res.Thread.Id)+"#composer-text", http.StatusSeeOther)
	return nil
}
