package web

import (
	"net/http"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadRefused answers a form that was refused. A typed name or tags are not lost: the script keeps them in their field, and
// without the script, a page shows the form again.
func (a *app) threadRefused(w http.ResponseWriter, r *http.Request, failed error) error {
	v := threadFieldsView{Name: postedValue(r, "name"), Tags: postedValue(r, "tags")}
	if v.Name == nil && v.Tags == nil {
		return failed
	}
	var err error
	if v.Problems, err = problemsOf(failed, "name", "tags"); err != nil {
		return err
	}
	if fromScript(r) {
		f := faultOf(failed)
		if f.Code == fault.Aborted {
			f = fault.New(f.Code, "somebody else has changed this thread, and your change is not saved", "compare, and save again if yours is to replace theirs")
		}
		return f
	}
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	v.Thread = res.Thread
	if v.Layout, err = a.layoutOf(r, v.Thread.HouseId, v.Thread.Id); err != nil {
		return err
	}
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), threadFieldsPage(v))
}

// postedValue returns the value of a field, or nil if the form does not have it.
func postedValue(r *http.Request, field string) *string {
	if !r.PostForm.Has(field) {
		return nil
	}
	value := r.PostForm.Get(field)
	return &value
}
