package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func (a *app) secrets(w http.ResponseWriter, r *http.Request) error {
	v, err := a.secretsView(r)
	if err != nil {
		return err
	}
	v.Name = r.URL.Query().Get("name")
	return a.show(w, r, http.StatusOK, secretsPage(v))
}

func (a *app) secretsView(r *http.Request) (v secretsView, err error) {
	house := r.PathValue("house")
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return v, err
	}
	list, err := a.services.secrets.ListSecrets(r.Context(), &arbev1.ListSecretsRequest{HouseId: house})
	v.Secrets = list.GetSecrets()
	return v, err
}

// pasted returns the value of a field as a secret. Browsers send line breaks as CR LF, so it turns them into LF. It trims a
// value of one line, because people often paste a line break with it.
func pasted(r *http.Request, field string) string {
	value := strings.ReplaceAll(r.PostFormValue(field), "\r\n", "\n")
	if line := strings.TrimSpace(value); !strings.Contains(line, "\n") {
		return line
	}
	return value
}

func (a *app) setSecret(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, name := r.PathValue("house"), strings.TrimSpace(r.PostFormValue("name"))
	set, failed := a.services.secrets.SetSecret(r.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: name, Value: []byte(pasted(r, "value")), SkipCheck: unchecked(r)})
	if failed == nil {
		then := settingsPath(house, "secrets")
		if set.Check != nil { // a key: say what it is good for
			then = modelsSet(house, name, set.Check)
			if is, err := a.isAccountKey(r, house, name); err != nil {
				return err
			} else if is {
				then = settingsPath(house, "sandboxes") + "?set=yes"
			}
		}
		http.Redirect(w, r, then, http.StatusSeeOther)
		return nil
	}
	return a.secretsFailed(w, r, failed, name)
}

// isAccountKey reports whether a secret is the key of a house's own account at a provider of sandboxes.
func (a *app) isAccountKey(r *http.Request, house, name string) (bool, error) {
	list, err := a.services.sandboxes.ListSandboxAccounts(r.Context(), &arbev1.ListSandboxAccountsRequest{HouseId: house})
	return slices.ContainsFunc(list.GetAccounts(), func(one *arbev1.SandboxAccount) bool { return one.GetSecretName() == name }), err
}

// deleteSecret deletes a secret. A missing secret is not an error, so that the form may be sent twice.
func (a *app) deleteSecret(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house := r.PathValue("house")
	_, failed := a.services.secrets.DeleteSecret(r.Context(), &arbev1.DeleteSecretRequest{HouseId: house, Name: r.PathValue("name"), Force: r.PostFormValue("from") == "used"})
	if failed == nil {
		http.Redirect(w, r, settingsPath(house, "secrets"), http.StatusSeeOther)
		return nil
	}
	return a.secretsFailed(w, r, failed, "")
}

func (a *app) secretsFailed(w http.ResponseWriter, r *http.Request, failed error, name string) error {
	wrong, err := problemsOf(failed, "name", "value")
	if err != nil {
		return err
	}
	v, err := a.secretsView(r)
	if err != nil {
		return err
	}
	v.Name, v.Problems = name, wrong
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), secretsPage(v))
}

// modelsSet returns the path of the page of models, with a note on what was just set.
func modelsSet(house, set string, check *arbev1.KeyCheck) string {
	query := url.Values{"set": {set}}
	if !check.GetTried() {
		query.Set("untried", "")
	}
	return settingsPath(house, "models") + "?" + query.Encode()
}

// unchecked reports whether a form asks to skip the test of the value that it sets. Forms offer that after a failure.
func unchecked(r *http.Request) bool { return r.PostFormValue("skip_check") == "yes" }
