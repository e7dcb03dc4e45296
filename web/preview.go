package web

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// previewPort is the port that the form proposes. Most development servers use it.
const previewPort = 3000

// preview asks which port of the thread's sandbox to show. It opens nothing, because pages of other hosts may link here.
func (a *app) preview(w http.ResponseWriter, r *http.Request) error {
	got, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 {
		port = previewPort
	}
	if a.previews == nil {
		return fault.New(fault.Precondition, "this server shows no previews", "use arbe port, or ask the operator to set preview_url")
	}
	// The form's answer redirects to the preview's host. Without this header, browsers would refuse that.
	w.Header().Set("Content-Security-Policy", strings.Replace(policy, "form-action 'self'", "form-action 'self' "+a.previews.Scheme+"://*."+a.previews.Host, 1))
	return a.show(w, r, http.StatusOK, previewPage(a.themeOf(r), got.Thread, int(port), r.URL.Query().Has("start")))
}

// openPreview redirects to a preview of a port of the thread's sandbox.
func (a *app) openPreview(w http.ResponseWriter, r *http.Request) error {
	port, err := strconv.ParseInt(r.PostFormValue("port"), 10, 32)
	if err != nil {
		return fault.New(fault.Invalid, "this is not the number of a port", "give a number from 1 to 65535")
	}
	if r.PostFormValue("start") == "yes" {
		if err := a.wake(r, r.PathValue("thread")); err != nil {
			return err
		}
	}
	res, err := a.services.sandboxes.OpenPreview(r.Context(), &arbev1.OpenPreviewRequest{ThreadId: r.PathValue("thread"), Port: int32(port)})
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, res.Url, http.StatusSeeOther)
	return nil
}

// wake starts or builds the sandbox of a thread.
func (a *app) wake(r *http.Request, thread string) error {
	woken, err := a.services.sandboxes.WakeSandbox(r.Context(), &arbev1.WakeSandboxRequest{ThreadId: thread})
	if err != nil {
		return err
	}
	defer woken.Close()
	for woken.Receive() { // heartbeats, and then the sandbox
	}
	return woken.Err()
}
