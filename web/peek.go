package web

import (
	"net/http"
	"net/url"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxPeek limits the rows that a look at a thread shows: its last ones.
const maxPeek = 8

// peek shows the end of a thread above a list. It is not live, and does not count as reading the thread.
func (a *app) peek(w http.ResponseWriter, r *http.Request) error {
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	if !fromScript(r) { // only the script asks for it
		http.Redirect(w, r, threadPath(res.Thread.Id), http.StatusSeeOther)
		return nil
	}
	piece, err := a.window(r.Context(), res.Thread, url.Values{})
	if err != nil {
		return err
	}
	if more := len(piece.Rows) - maxPeek; more > 0 {
		piece.Rows = piece.Rows[more:]
		piece.Rows[0].Joined = false // its author is named in a row that is left out
	}
	return a.show(w, r, http.StatusOK, peekPart(res.Thread, piece))
}
