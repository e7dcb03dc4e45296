package web

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxTaskLength limits a task in a form, in characters. Each has at most four bytes.
const maxTaskLength = entry.MaxTask / 4

// codingBots returns the bots that are coding agents, without the one that drives a thread, if any.
func codingBots(people []*arbev1.Agent, but string) []*arbev1.Agent {
	return slices.DeleteFunc(slices.Clone(people), func(p *arbev1.Agent) bool {
		return p.Handle == "" || p.Runtime == "" || p.Runtime == "arbe" || p.Id == but
	})
}

// continueRun lets the coding agent of a thread continue, or another one, to whose thread it redirects.
func (a *app) continueRun(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	req := &arbev1.ContinueRunRequest{
		ThreadId: r.PathValue("thread"), Fresh: r.PostForm.Get("fresh") == "true", Agent: r.PostForm.Get("agent"), Task: strings.TrimSpace(r.PostForm.Get("task")),
	}
	if req.Agent != "" {
		req.Once = onceAfter(r.PostForm.Get("epoch"), req)
	}
	res, err := a.services.runs.ContinueRun(r.Context(), req)
	if err == nil && req.Agent != "" {
		http.Redirect(w, r, threadPath(res.ThreadId), http.StatusSeeOther)
		return nil
	}
	return a.doneInThread(w, r, err)
}

// onceAfter returns the id of a request that another agent continues a thread after the run of an epoch. The form is rendered
// once for all readers, so it cannot have an id of its own. Sending it again returns the thread in which that agent already does
// that task.
func onceAfter(epoch string, req *arbev1.ContinueRunRequest) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{req.ThreadId, epoch, req.Agent, req.Task}, "\x00")))
	return hex.EncodeToString(sum[:])[:32]
}

// delegate delegates a task from a thread.
func (a *app) delegate(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	form := r.PostForm
	_, err := a.services.runs.Delegate(r.Context(), &arbev1.DelegateRequest{
		HouseId: form.Get("house"), ParentThreadId: r.PathValue("thread"), Task: strings.TrimSpace(form.Get("task")), Agent: form.Get("agent"),
		EnvironmentId: form.Get("environment"), Once: form.Get("once"),
	})
	return a.doneInThread(w, r, err)
}
