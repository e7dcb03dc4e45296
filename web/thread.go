package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadView is a thread's page.
type threadView struct {
	Frame  frame
	Thread *arbev1.Thread
	Box    box
	Window window
	// NewID is the id of the next thing said with the plain form.
	NewID string
}

// box is where a thread's commands run.
type box struct {
	Environment *arbev1.Environment
	// Inherited environments are the house's default.
	Inherited bool
	Sandbox   *arbev1.Sandbox
}

// thread shows a thread: its last entries, or those that ?at, ?before or ?after ask for.
func (a *app) thread(w http.ResponseWriter, r *http.Request) error {
	v, err := a.threadView(r)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, threadPage(v))
}

func (a *app) threadView(r *http.Request) (threadView, error) {
	v := threadView{NewID: newID()}
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return v, err
	}
	v.Thread = res.Thread
	g, ctx := errgroup.WithContext(r.Context())
	g.Go(func() (err error) {
		v.Window, err = a.window(ctx, v.Thread, r.URL.Query())
		return err
	})
	g.Go(func() (err error) {
		if v.Frame, err = a.frameOf(r, v.Thread.HouseId, v.Thread.Id); err != nil {
			return err
		}
		v.Box, err = a.boxOf(ctx, v.Thread, v.Frame.House)
		return err
	})
	return v, g.Wait()
}

// boxOf reads where a thread's commands run. What is gone meanwhile is left out.
func (a *app) boxOf(ctx context.Context, t *arbev1.Thread, house *arbev1.House) (box, error) {
	b := box{Inherited: t.EnvironmentId == ""}
	environment := t.EnvironmentId
	if b.Inherited {
		environment = house.DefaultEnvironmentId
	}
	if environment != "" {
		res, err := a.services.environments.GetEnvironment(ctx, &arbev1.GetEnvironmentRequest{Id: environment})
		if err != nil && faultOf(err).Code != fault.NotFound {
			return b, err
		}
		b.Environment = res.GetEnvironment()
	}
	if t.SandboxId != "" {
		res, err := a.services.sandboxes.GetSandbox(ctx, &arbev1.GetSandboxRequest{Id: t.SandboxId})
		if err != nil && faultOf(err).Code != fault.NotFound {
			return b, err
		}
		b.Sandbox = res.GetSandbox()
	}
	return b, nil
}

// changeThread changes what the form names: name, pinned, status, tags.
func (a *app) changeThread(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	req := &arbev1.UpdateThreadRequest{Id: r.PathValue("thread")}
	for field, values := range r.PostForm {
		value := values[0]
		switch field {
		case "name":
			value = strings.TrimSpace(value)
			req.Name = &value
		case "pinned":
			pinned := value == "true"
			req.Pinned = &pinned
		case "status":
			req.Status = &value
		case "tags":
			req.Tags = &arbev1.Tags{Values: splitTags(value)}
		}
	}
	if _, err := a.services.threads.UpdateThread(r.Context(), req); err != nil {
		return err
	}
	http.Redirect(w, r, threadPath(req.Id), http.StatusSeeOther)
	return nil
}

// deleteThread removes a thread with its log.
func (a *app) deleteThread(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	home := "/"
	if res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: id}); err == nil {
		home = housePath(res.Thread.HouseId)
	}
	if _, err := a.services.threads.DeleteThread(r.Context(), &arbev1.DeleteThreadRequest{Id: id}); err != nil {
		return err
	}
	http.Redirect(w, r, home, http.StatusSeeOther)
	return nil
}

// splitTags reads tags as people write them: "deploy, web".
func splitTags(text string) []string {
	var tags []string
	for tag := range strings.SplitSeq(text, ",") {
		if tag = strings.TrimSpace(tag); tag != "" && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

func parseForm(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		if f := faultOf(err); f.Code == fault.Exhausted {
			return f
		}
		return fault.New(fault.Invalid, "the form cannot be read", "go back and send it again").Because(err)
	}
	return nil
}

func pinWord(t *arbev1.Thread) string {
	if t.PinnedAt != nil {
		return "Unpin"
	}
	return "Pin"
}

func joinTags(tags []string) string { return strings.Join(tags, ", ") }

// boxWord says where a command of this thread would run.
func boxWord(b box) string {
	switch {
	case b.Sandbox != nil && b.Sandbox.Status == "live":
		return "box " + b.Sandbox.Id
	case b.Environment != nil:
		return "a new box made from " + b.Environment.Name
	}
	return "no box: set an environment first"
}

func boxStatusWord(s *arbev1.Sandbox) string {
	switch s.Status {
	case "live":
		return "Live"
	case "pending":
		return "Starting"
	case "dead":
		return "Gone; the next command makes a new one"
	}
	return s.Status
}
