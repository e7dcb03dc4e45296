package web

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// retention shows owners after how many days old threads and artifacts of a house are deleted.
func (a *app) retention(w http.ResponseWriter, r *http.Request) error {
	v, err := a.retentionView(r)
	if err != nil {
		return err
	}
	// Only owners may see a preview: the service decides who sees the page.
	if _, err := a.wouldDelete(r, &arbev1.HouseRetention{}); err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, retentionPage(v))
}

func (a *app) retentionView(r *http.Request) (v retentionView, err error) {
	if v.Layout, err = a.layoutOf(r, r.PathValue("house"), inSettings); err != nil {
		return v, err
	}
	res, err := a.services.houses.GetHouse(r.Context(), &arbev1.GetHouseRequest{Id: r.PathValue("house"), Usage: true})
	if err == nil {
		v.Logs = logsWords(res.GetLogs())
		v.Threads, v.Artifacts = dayField(v.Layout.House.Retention.GetThreadsDays()), dayField(v.Layout.House.Retention.GetArtifactsDays())
	}
	return v, err
}

// setRetention sets the days. If something is already as old, it first shows how much, and asks.
func (a *app) setRetention(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house := r.PathValue("house")
	threads, artifacts := strings.TrimSpace(r.PostFormValue("threads_days")), strings.TrimSpace(r.PostFormValue("artifacts_days"))
	days := &arbev1.HouseRetention{}
	var old *arbev1.RetentionPreview
	var failed error
	if days.ThreadsDays, failed = daysOf("threads_days", threads); failed == nil {
		days.ArtifactsDays, failed = daysOf("artifacts_days", artifacts)
	}
	if failed == nil {
		old, failed = a.wouldDelete(r, days)
	}
	if failed == nil && (old.Threads+old.Artifacts == 0 || r.PostFormValue("sure") != "") {
		_, failed = a.services.houses.UpdateHouse(r.Context(), &arbev1.UpdateHouseRequest{Id: house, Retention: days})
		if failed == nil {
			http.Redirect(w, r, settingsPath(house, "retention"), http.StatusSeeOther)
			return nil
		}
	}
	v, err := a.retentionView(r)
	if err != nil {
		return err
	}
	v.Threads, v.Artifacts = threads, artifacts
	if failed == nil {
		v.Old = old
		return a.show(w, r, http.StatusOK, retentionPage(v))
	}
	if v.Problems, err = problemsOf(failed, "threads_days", "artifacts_days"); err != nil {
		return err
	}
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), retentionPage(v))
}

// wouldDelete returns what a retention would delete now.
func (a *app) wouldDelete(r *http.Request, as *arbev1.HouseRetention) (*arbev1.RetentionPreview, error) {
	res, err := a.services.houses.GetHouse(r.Context(), &arbev1.GetHouseRequest{Id: r.PathValue("house"), Preview: as})
	return res.GetPreview(), err
}

// daysOf reads a number of days; none is 0.
func daysOf(field, text string) (int32, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fault.Newf(fault.Invalid, "", "%s: this is not a number of days", field)
	}
	return int32(n), nil
}
