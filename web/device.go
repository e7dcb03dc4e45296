package web

import (
	"net/http"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// device asks the reader whether to approve the login of a program with the code in the query, or asks for the code.
func (a *app) device(w http.ResponseWriter, r *http.Request) error {
	keepToken(w)
	v, err := a.deviceOf(r)
	if err != nil {
		return err
	}
	if v.Code = strings.TrimSpace(r.URL.Query().Get("code")); v.Code == "" {
		return a.show(w, r, http.StatusOK, devicePage(v))
	}
	res, err := a.services.agents.GetDeviceLogin(r.Context(), &arbev1.GetDeviceLoginRequest{UserCode: v.Code})
	if err != nil {
		return a.wrongCode(w, r, v, err)
	}
	v.Login = res.Login
	return a.show(w, r, http.StatusOK, devicePage(v))
}

// answerDevice approves or denies the login of a program as the person whom the page named.
func (a *app) answerDevice(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	keepToken(w)
	v, err := a.deviceOf(r)
	if err != nil {
		return err
	}
	v.Code = r.PostFormValue("code")
	if v.Me.GetId() != r.PostFormValue("as") { // somebody else has logged in since: ask again
		http.Redirect(w, r, devicePath(v.Code), http.StatusSeeOther)
		return nil
	}
	req := &arbev1.AnswerDeviceLoginRequest{UserCode: v.Code}
	switch r.PostFormValue("answer") {
	case "approve":
		req.Verdict = arbev1.Verdict_VERDICT_APPROVE
	case "deny":
		req.Verdict = arbev1.Verdict_VERDICT_DENY
	default:
		return fault.New(fault.Invalid, "the form has no answer", "go back, and approve or deny the login")
	}
	res, err := a.services.agents.AnswerDeviceLogin(r.Context(), req)
	if err != nil {
		return a.wrongCode(w, r, v, err)
	}
	v.Login, v.Answer = res.Login, req.Verdict
	return a.show(w, r, http.StatusOK, devicePage(v))
}

func (a *app) deviceOf(r *http.Request) (deviceView, error) {
	who, err := a.services.agents.WhoAmI(r.Context(), &arbev1.WhoAmIRequest{})
	return deviceView{Theme: a.themeOf(r), Me: who.GetAgent()}, err
}

// wrongCode asks for another code if the error is about the code.
func (a *app) wrongCode(w http.ResponseWriter, r *http.Request, v deviceView, err error) error {
	f := faultOf(err)
	switch f.Code {
	case fault.Invalid:
		f = fault.New(fault.Invalid, "this is not a code", "copy the code from your terminal")
	case fault.NotFound, fault.Precondition, fault.Exhausted:
	default:
		return err
	}
	v.Problems = problems{"code": sentence(f.Message) + " " + sentence(f.Next)}
	return a.show(w, r, httpStatus(f), devicePage(v))
}
