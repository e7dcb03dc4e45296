package web

import (
	"net/http"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// rests reports whether the coding agent of a thread has ended a run and can continue.
func rests(t *arbev1.Thread) bool {
	return t.AgentId != "" && (t.Status == "completed" || t.Status == "failed" || t.Status == "cancelled")
}

func (a *app) stopRun(w http.ResponseWriter, r *http.Request) error {
	_, err := a.services.runs.CancelRun(r.Context(), &arbev1.CancelRunRequest{ThreadId: r.PathValue("thread")})
	return a.doneInThread(w, r, err)
}

func (a *app) continueRun(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	_, err := a.services.runs.ContinueRun(r.Context(), &arbev1.ContinueRunRequest{ThreadId: r.PathValue("thread"), Fresh: r.PostForm.Get("fresh") == "true"})
	return a.doneInThread(w, r, err)
}
