package web

import (
	"net/http"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// sessions shows the reader where they are logged in.
func (a *app) sessions(w http.ResponseWriter, r *http.Request) error {
	me, err := a.services.agents.WhoAmI(r.Context(), &arbev1.WhoAmIRequest{Sessions: true})
	if err != nil {
		return err
	}
	houses, err := a.services.houses.ListHouses(r.Context(), &arbev1.ListHousesRequest{PageSize: 200})
	if err != nil {
		return err
	}
	f := layout{Theme: a.themeOf(r), Path: r.URL.RequestURI(), Me: me.Agent, Houses: houses.Houses}
	return a.show(w, r, http.StatusOK, sessionsPage(f, me.Sessions))
}

// endSessions logs the reader out of one session, or of all others.
func (a *app) endSessions(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	req := &arbev1.EndSessionRequest{Which: &arbev1.EndSessionRequest_Id{Id: r.PostFormValue("session")}}
	if r.PostFormValue("others") != "" {
		req.Which = &arbev1.EndSessionRequest_Others{Others: true}
	}
	if _, err := a.services.agents.EndSession(r.Context(), req); err != nil {
		return err
	}
	http.Redirect(w, r, "/sessions", http.StatusSeeOther)
	return nil
}
