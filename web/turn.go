package web

import (
	"net/http"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// A turn of a bot is a group of rows under the bot's name: its steps, the commands that it ran, and its answer. While the
// turn runs, the page has a block for it after the last row, in #writing, with the text so far.

func (a *app) stopTurn(w http.ResponseWriter, r *http.Request) error {
	req := &arbev1.StopTurnRequest{ThreadId: r.PathValue("thread"), TurnId: r.PathValue("turn")}
	_, err := a.services.threads.StopTurn(r.Context(), req)
	return a.doneInThread(w, r, err)
}

func (a *app) retryTurn(w http.ResponseWriter, r *http.Request) error {
	req := &arbev1.RetryTurnRequest{ThreadId: r.PathValue("thread"), TurnId: r.PathValue("turn")}
	_, err := a.services.threads.RetryTurn(r.Context(), req)
	return a.doneInThread(w, r, err)
}

// retryWithKey sets the key of a provider for the thread's house, and then tries the turn again.
func (a *app) retryWithKey(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	if _, err := a.setKey(r, res.Thread.HouseId); err != nil {
		return err
	}
	return a.retryTurn(w, r)
}
