package web

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// retention shows owners when old threads and artifacts of a house are deleted.
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
		v.Logs, v.ETag = logsWords(res.GetLogs()), v.Layout.House.Etag
		now := v.Layout.House.Retention
		v.Threads, v.Artifacts, v.ThreadsMB, v.ArtifactsMB = keepField(now.GetThreadsDays()), keepField(now.GetArtifactsDays()), keepField(now.GetThreadsMb()), keepField(now.GetArtifactsMb())
	}
	return v, err
}

// retentionFields are the fields of the form, and retentionOf what they set.
var retentionFields = []string{"threads_days", "artifacts_days", "threads_mb", "artifacts_mb"}

func retentionOf(r *http.Request) (*arbev1.HouseRetention, error) {
	keep := &arbev1.HouseRetention{}
	for i, field := range []*int32{&keep.ThreadsDays, &keep.ArtifactsDays, &keep.ThreadsMb, &keep.ArtifactsMb} {
		var err error
		if *field, err = wholeNumber(retentionFields[i], strings.TrimSpace(r.PostFormValue(retentionFields[i]))); err != nil {
			return nil, err
		}
	}
	return keep, nil
}

// setRetention sets the retention. If it deletes something at once, it first shows how much, and asks.
func (a *app) setRetention(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house := r.PathValue("house")
	var old *arbev1.RetentionPreview
	keep, failed := retentionOf(r)
	if failed == nil {
		old, failed = a.wouldDelete(r, keep)
	}
	if failed == nil && (old.Threads+old.Artifacts == 0 || r.PostFormValue("sure") != "") {
		_, failed = a.services.houses.UpdateHouse(r.Context(), &arbev1.UpdateHouseRequest{Id: house, Etag: r.PostFormValue("etag"), Retention: keep})
		if failed == nil {
			http.Redirect(w, r, settingsPath(house, "retention"), http.StatusSeeOther)
			return nil
		}
	}
	v, err := a.retentionView(r)
	if err != nil {
		return err
	}
	for i, field := range []*string{&v.Threads, &v.Artifacts, &v.ThreadsMB, &v.ArtifactsMB} {
		*field = strings.TrimSpace(r.PostFormValue(retentionFields[i]))
	}
	if failed == nil {
		v.Old, v.ETag = old, r.PostFormValue("etag") // another change between the two steps counts, too
		return a.show(w, r, http.StatusOK, retentionPage(v))
	}
	if v.Problems, err = problemsOf(failed, retentionFields...); err != nil {
		return err
	}
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), retentionPage(v))
}

// wouldDelete returns what a retention would delete now.
func (a *app) wouldDelete(r *http.Request, as *arbev1.HouseRetention) (*arbev1.RetentionPreview, error) {
	res, err := a.services.houses.GetHouse(r.Context(), &arbev1.GetHouseRequest{Id: r.PathValue("house"), Preview: as})
	return res.GetPreview(), err
}

// wholeNumber reads a number of days or of MiB; none is 0.
func wholeNumber(field, text string) (int32, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fault.Newf(fault.Invalid, "", "%s: this is not a whole number", field)
	}
	return int32(n), nil
}
