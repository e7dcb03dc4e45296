package web

import (
	"net/http"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// botsView is the page of a house's bots.
type botsView struct {
	Layout layout
	Bots   []*arbev1.Member
	// Name and Runtime are the form's values, Problems its errors.
	Name, Runtime string
	Problems      problems
}

// runtimes are the coding agents that a bot may run.
var runtimes = []string{"pi", "codex", "claude-code"}

func (a *app) bots(w http.ResponseWriter, r *http.Request) error {
	v, err := a.botsView(r)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, botsPage(v))
}

func (a *app) botsView(r *http.Request) (botsView, error) {
	v := botsView{Runtime: runtimes[0]}
	house := r.PathValue("house")
	var err error
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return v, err
	}
	members, err := a.everyMember(r.Context(), house)
	for _, m := range members {
		if m.Agent.Kind == "bot" {
			v.Bots = append(v.Bots, m)
		}
	}
	return v, err
}

func (a *app) createBot(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, name, runtime := r.PathValue("house"), strings.TrimSpace(r.PostFormValue("name")), r.PostFormValue("runtime")
	_, failed := a.services.agents.CreateAgent(r.Context(), &arbev1.CreateAgentRequest{HouseId: house, Name: name, Runtime: runtime})
	if failed == nil {
		http.Redirect(w, r, settingsPath(house, "bots"), http.StatusSeeOther)
		return nil
	}
	wrong, err := problemsOf(failed, "name", "runtime")
	if err != nil {
		return err
	}
	v, err := a.botsView(r)
	if err != nil {
		return err
	}
	v.Name, v.Runtime, v.Problems = name, runtime, wrong
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), botsPage(v))
}
