package web

import (
	"net/http"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func (a *app) models(w http.ResponseWriter, r *http.Request) error {
	v, err := a.modelsView(r)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, modelsPage(v))
}

func (a *app) modelsView(r *http.Request) (v modelsView, err error) {
	house := r.PathValue("house")
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return v, err
	}
	if v.Models, err = a.services.models.ListModels(r.Context(), &arbev1.ListModelsRequest{HouseId: house}); err != nil {
		return v, err
	}
	v.Model = v.Models.ChosenModel
	set := r.URL.Query().Get("set")
	for _, e := range v.Models.Endpoints {
		if e.Own && set != "" && (e.Name == set || e.SecretName == set) {
			v.Set, v.Untried = e, r.URL.Query().Has("untried")
		}
	}
	return v, nil
}

// answerModels redirects after a form, or shows the page of models with the form's errors.
func (a *app) answerModels(w http.ResponseWriter, r *http.Request, then string, failed error, fields []string, fill func(*modelsView, problems)) error {
	if failed == nil {
		http.Redirect(w, r, then, http.StatusSeeOther)
		return nil
	}
	wrong, err := problemsOf(failed, fields...)
	if err != nil {
		return err
	}
	v, err := a.modelsView(r)
	if err != nil {
		return err
	}
	fill(&v, wrong)
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), modelsPage(v))
}

// pasteKey sets the key of a provider.
func (a *app) pasteKey(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house := r.PathValue("house")
	check, failed := a.setKey(r, house)
	return a.answerModels(w, r, modelsSet(house, r.PostFormValue("secret"), check), failed, []string{"key", "value"}, func(v *modelsView, wrong problems) {
		v.Secret, v.KeyWrong = r.PostFormValue("secret"), wrong
		if what := wrong["value"]; what != "" { // the service's name of the field
			wrong.add("key", what)
		}
	})
}

// setKey stores the key of a form as the house's secret for that provider.
func (a *app) setKey(r *http.Request, house string) (*arbev1.KeyCheck, error) {
	set, err := a.services.secrets.SetSecret(r.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: r.PostFormValue("secret"), Value: []byte(pasted(r, "key")), SkipCheck: unchecked(r)})
	return set.GetCheck(), err
}

func (a *app) chooseModel(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	model := pickedModel(r, "model")
	_, failed := a.services.models.SetDefaultModel(r.Context(), &arbev1.SetDefaultModelRequest{HouseId: r.PathValue("house"), Model: model, SkipCheck: unchecked(r)})
	return a.answerModels(w, r, settingsPath(r.PathValue("house"), "models"), failed, []string{"model"}, func(v *modelsView, wrong problems) { v.Model, v.ChoiceWrong = model, wrong })
}

// chooseFallbacks sets the fallback models: those that the form has, and one that it adds.
func (a *app) chooseFallbacks(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	models, added := strings.Fields(r.PostFormValue("models")), pickedModel(r, "add")
	if added != "" {
		models = append(models, added)
	}
	_, failed := a.services.models.SetFallbackModels(r.Context(), &arbev1.SetFallbackModelsRequest{HouseId: r.PathValue("house"), Models: models, SkipCheck: unchecked(r)})
	return a.answerModels(w, r, settingsPath(r.PathValue("house"), "models")+"#fallback-models", failed, []string{"add", "models", "model"}, func(v *modelsView, wrong problems) {
		v.Fallback, v.FallbackWrong = added, wrong
		for _, field := range []string{"models", "model"} { // the service's names of the field
			if what := wrong[field]; what != "" {
				wrong.add("add", what)
			}
		}
	})
}

// addServer adds a server with models, or changes the one of this name, and sets its key if one is given.
func (a *app) addServer(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	req := &arbev1.SetModelEndpointRequest{HouseId: r.PathValue("house"), Name: strings.TrimSpace(r.PostFormValue("name")), BaseUrl: strings.TrimSpace(r.PostFormValue("base_url"))}
	req.Key, req.Dialect, req.SkipCheck = pasted(r, "server_key"), r.PostFormValue("dialect"), unchecked(r)
	set, failed := a.services.models.SetModelEndpoint(r.Context(), req)
	return a.answerModels(w, r, modelsSet(req.HouseId, req.Name, set.GetCheck()), failed, []string{"name", "base_url", "dialect", "key"}, func(v *modelsView, wrong problems) {
		v.Name, v.Address, v.Dialect, v.ServerWrong = req.Name, req.BaseUrl, req.Dialect, wrong
		if what := wrong["key"]; what != "" { // the service's name of the field
			wrong.add("server_key", what)
		}
	})
}

// removeServer removes a server with models. A missing server is not an error, so that the form may be sent twice.
func (a *app) removeServer(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.services.models.DeleteModelEndpoint(r.Context(), &arbev1.DeleteModelEndpointRequest{HouseId: r.PathValue("house"), Name: r.PathValue("name")}); err != nil {
		return err
	}
	http.Redirect(w, r, settingsPath(r.PathValue("house"), "models"), http.StatusSeeOther)
	return nil
}
