package web

import (
	"net/http"
	"strconv"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func (a *app) sandboxes(w http.ResponseWriter, r *http.Request) error {
	v, err := a.sandboxesView(r)
	if err != nil {
		return err
	}
	v.Gone, _ = strconv.Atoi(r.URL.Query().Get("gone"))
	v.Unknown, _ = strconv.Atoi(r.URL.Query().Get("unknown"))
	v.Asked = r.URL.Query().Has("gone")
	return a.show(w, r, http.StatusOK, sandboxesPage(v))
}

func (a *app) sandboxesView(r *http.Request) (v sandboxesView, err error) {
	house := r.PathValue("house")
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return v, err
	}
	list, err := a.services.sandboxes.ListSandboxes(r.Context(), &arbev1.ListSandboxesRequest{
		HouseId: house, PageSize: 100, PageToken: r.URL.Query().Get("page"), Existing: true,
	})
	if err != nil {
		return v, err
	}
	v.Sandboxes, v.More, v.Disk, v.Spending = list.GetSandboxes(), list.GetNextPageToken(), list.GetDisk(), list.GetSpending()
	accounts, err := a.services.sandboxes.ListSandboxAccounts(r.Context(), &arbev1.ListSandboxAccountsRequest{HouseId: house})
	v.Accounts, v.Set = accounts.GetAccounts(), r.URL.Query().Has("set")
	return v, err
}

// reconcileSandboxes asks the providers which sandboxes still exist.
func (a *app) reconcileSandboxes(w http.ResponseWriter, r *http.Request) error {
	house := r.PathValue("house")
	done, err := a.services.sandboxes.ReconcileSandboxes(r.Context(), &arbev1.ReconcileSandboxesRequest{HouseId: house})
	if err != nil {
		return err
	}
	gone, unknown := 0, 0
	for _, s := range done.GetSandboxes() {
		switch s.GetLiveness() {
		case arbev1.SandboxLiveness_SANDBOX_LIVENESS_GONE:
			gone++
		case arbev1.SandboxLiveness_SANDBOX_LIVENESS_UNKNOWN:
			unknown++
		}
	}
	http.Redirect(w, r, settingsPath(house, "sandboxes")+"?gone="+strconv.Itoa(gone)+"&unknown="+strconv.Itoa(unknown), http.StatusSeeOther)
	return nil
}

func (a *app) sandbox(w http.ResponseWriter, r *http.Request) error {
	v, err := a.sandboxView(r)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, sandboxPage(v))
}

func (a *app) sandboxView(r *http.Request) (v sandboxView, err error) {
	id := r.PathValue("sandbox")
	got, err := a.services.sandboxes.GetSandbox(r.Context(), &arbev1.GetSandboxRequest{Id: id})
	if err != nil {
		return v, err
	}
	v.Sandbox = got.GetSandbox()
	if v.Log, err = a.services.sandboxes.GetSandboxLog(r.Context(), &arbev1.GetSandboxLogRequest{Id: id}); err != nil {
		return v, err
	}
	v.Layout, err = a.layoutOf(r, v.Sandbox.GetHouseId(), inSettings)
	return v, err
}

// deleteSandbox saves the files of a sandbox and deletes it. If they cannot be saved, the page says why and offers to discard them.
func (a *app) deleteSandbox(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	id := r.PathValue("sandbox")
	done, failed := a.services.sandboxes.DestroySandbox(r.Context(), &arbev1.DestroySandboxRequest{Id: id, Discard: r.PostFormValue("from") == "discard"})
	if failed == nil {
		http.Redirect(w, r, settingsPath(done.GetSandbox().GetHouseId(), "sandboxes"), http.StatusSeeOther)
		return nil
	}
	wrong, err := problemsOf(failed)
	if err != nil {
		return err
	}
	v, err := a.sandboxView(r)
	if err != nil {
		return err
	}
	v.Problems = wrong
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), sandboxPage(v))
}
