package web

import (
	"net/http"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// general shows what a house is: its name and its default environment. Owners change them there, or delete the house.
func (a *app) general(w http.ResponseWriter, r *http.Request) error {
	v, err := a.generalView(r)
	if err != nil {
		return err
	}
	v.Saved = r.URL.Query().Has("saved")
	return a.show(w, r, http.StatusOK, generalPage(v))
}

func (a *app) generalView(r *http.Request) (v generalView, err error) {
	house := r.PathValue("house")
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return v, err
	}
	res, err := a.services.environments.ListEnvironments(r.Context(), &arbev1.ListEnvironmentsRequest{HouseId: house, PageSize: 200})
	v.Environments, v.Name, v.Environment = res.GetEnvironments(), v.Layout.House.Name, v.Layout.House.DefaultEnvironmentId
	return v, err
}

// changeGeneral sets the name and the default environment of a house.
func (a *app) changeGeneral(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, name, environment := r.PathValue("house"), strings.TrimSpace(r.PostFormValue("name")), r.PostFormValue("default_environment_id")
	_, failed := a.services.houses.UpdateHouse(r.Context(), &arbev1.UpdateHouseRequest{Id: house, Etag: r.PostFormValue("etag"), Name: &name, DefaultEnvironmentId: &environment})
	if failed == nil {
		http.Redirect(w, r, settingsPath(house, "settings")+"?saved", http.StatusSeeOther)
		return nil
	}
	wrong, err := problemsOf(failed, "name", "default_environment_id")
	if err != nil {
		return err
	}
	v, err := a.generalView(r)
	if err != nil {
		return err
	}
	v.Name, v.Environment, v.Problems = name, environment, wrong
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), generalPage(v))
}

// deleteHouse deletes a house whose name the reader has repeated.
func (a *app) deleteHouse(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	repeated := strings.TrimSpace(r.PostFormValue("confirm"))
	_, failed := a.services.houses.DeleteHouse(r.Context(), &arbev1.DeleteHouseRequest{Id: r.PathValue("house"), Name: repeated})
	if failed == nil {
		forget(w)
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return nil
	}
	wrong, err := problemsOf(failed, "name")
	if err != nil {
		return err
	}
	if what := wrong["name"]; what != "" { // the service's name of the field
		wrong = problems{"confirm": what}
	}
	v, err := a.generalView(r)
	if err != nil {
		return err
	}
	v.Confirm, v.DeleteWrong = repeated, wrong
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), generalPage(v))
}
