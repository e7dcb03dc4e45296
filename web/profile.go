package web

import (
	"net/http"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// profile shows the reader what others see of them.
func (a *app) profile(w http.ResponseWriter, r *http.Request) error {
	return a.showProfile(w, r, http.StatusOK, profileView{Saved: r.URL.Query().Has("saved")})
}

func (a *app) showProfile(w http.ResponseWriter, r *http.Request, status int, v profileView) error {
	me, err := a.services.agents.WhoAmI(r.Context(), &arbev1.WhoAmIRequest{})
	if err != nil {
		return err
	}
	houses, err := a.services.houses.ListHouses(r.Context(), &arbev1.ListHousesRequest{PageSize: 200})
	if err != nil {
		return err
	}
	v.Layout = layout{Theme: a.themeOf(r), Path: "/profile", Me: me.Agent, Unnamed: me.Unnamed, Houses: houses.Houses}
	if v.Problems == nil && !me.Unnamed {
		v.Name = me.Agent.Name
	}
	return a.show(w, r, status, profilePage(v))
}

// changeProfile sets the reader's name, and goes back to the page from which they set it.
func (a *app) changeProfile(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	name, back := strings.TrimSpace(r.PostFormValue("name")), r.PostFormValue("back")
	_, failed := a.services.agents.UpdateProfile(r.Context(), &arbev1.UpdateProfileRequest{Name: name})
	if failed == nil {
		then := "/profile?saved"
		if back != "" {
			then = localPath(back)
		}
		http.Redirect(w, r, then, http.StatusSeeOther)
		return nil
	}
	wrong, err := problemsOf(failed, "name")
	if err != nil {
		return err
	}
	return a.showProfile(w, r, faultOf(failed).Code.HTTPStatus(), profileView{Name: name, Back: back, Problems: wrong})
}
