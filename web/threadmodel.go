package web

import (
	"net/http"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadModel shows which model the bots of a thread use there. It is a page of its own, because listing models may take a
// moment.
func (a *app) threadModel(w http.ResponseWriter, r *http.Request) error {
	return a.showThreadModel(w, r, http.StatusOK, threadModelView{})
}

func (a *app) showThreadModel(w http.ResponseWriter, r *http.Request, status int, v threadModelView) error {
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	if v.Thread = res.Thread; v.Problems == nil {
		v.Model, v.Think = v.Thread.Model, v.Thread.Think
	}
	if v.Layout, err = a.layoutOf(r, v.Thread.HouseId, v.Thread.Id); err != nil {
		return err
	}
	v.Models = a.modelsOf(r.Context(), v.Thread.HouseId)
	return a.show(w, r, status, threadModelPage(v))
}

// changeThreadModel sets the model and the effort of a thread.
func (a *app) changeThreadModel(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	thread, model, think := r.PathValue("thread"), pickedModel(r, "model"), r.PostFormValue("think")
	_, failed := a.services.threads.UpdateThread(r.Context(), &arbev1.UpdateThreadRequest{Id: thread, Etag: r.PostFormValue("etag"), Model: &model, Think: &think, SkipModelCheck: unchecked(r)})
	if failed == nil {
		http.Redirect(w, r, threadPath(thread), http.StatusSeeOther)
		return nil
	}
	wrong, err := problemsOf(failed, "model", "think")
	if err != nil {
		return err
	}
	return a.showThreadModel(w, r, faultOf(failed).Code.HTTPStatus(), threadModelView{Model: model, Think: think, Problems: wrong})
}
