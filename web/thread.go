package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
	"github.com/arbe-dev/arbe/web/transcript"
)

// threadView is a thread's page.
type threadView struct {
	Layout    layout
	Thread    *arbev1.Thread
	Workplace workplace
	Relatives relatives
	// Artifacts are the artifacts of the thread.
	Artifacts artifacts
	Window    window
	// DetailsFolded reports that the reader has hidden the column of details.
	DetailsFolded bool
	// Partner is the name of the bot that answers everything here; empty in a thread that is no direct message to one.
	Partner string
	// People are the names that the composer's menu offers.
	People []*arbev1.Agent
	// NewID is the id of the next message, if the form is sent without the script.
	NewID string
}

// workplace is where a thread's commands run.
type workplace struct {
	Environment *arbev1.Environment
	// Inherited reports that the environment is the house's default.
	Inherited bool
	Sandbox   *arbev1.Sandbox
}

// relatives are a thread's parent, what it was forked from, and what was forked from it.
type relatives struct {
	// Parent is nil if the thread is no child of another one, or if its parent was deleted.
	Parent *arbev1.Thread
	// Source is nil if the thread is no fork, or if its source was deleted.
	Source *arbev1.Thread
	// Forks are the most recently active ones. More reports that there are others.
	Forks []*arbev1.Thread
	More  bool
}

// maxForks is how many forks of a thread its page lists.
const maxForks = 20

// thread shows a thread: its last entries, or those that ?at, ?before or ?after ask for.
func (a *app) thread(w http.ResponseWriter, r *http.Request) error {
	v, err := a.threadView(r)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, threadPage(v))
}

func (a *app) threadView(r *http.Request) (threadView, error) {
	v := threadView{NewID: newID(), DetailsFolded: detailsFolded(r)}
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return v, err
	}
	v.Thread = res.Thread
	g, ctx := guard.NewGroup(r.Context())
	g.Go(func() (err error) {
		v.Window, err = a.window(ctx, v.Thread, r.URL.Query())
		return err
	})
	g.Go(func() (err error) {
		if v.Layout, err = a.layoutOf(r, v.Thread.HouseId, v.Thread.Id); err != nil {
			return err
		}
		v.Workplace, err = a.sandboxOf(ctx, v.Thread, v.Layout.House)
		return err
	})
	g.Go(func() (err error) {
		v.Relatives, err = a.relativesOf(ctx, v.Thread)
		return err
	})
	g.Go(func() (err error) {
		v.People, err = a.mentionable(ctx, v.Thread.HouseId)
		return err
	})
	g.Go(func() (err error) {
		v.Artifacts, err = a.artifactsOf(ctx, v.Thread.Id, "", maxArtifacts)
		return err
	})
	err = g.Wait()
	if err == nil {
		v.Partner = partnerOf(v.Thread, v.People)
		v.Window.Places = houseTopic(v.Layout).String() + " " + namesTopic(v.Thread.HouseId, v.People).String()
	}
	return v, err
}

// detailsFolded reports whether the reader has hidden the column of details. The script stores that in a cookie, so that the
// page already arrives without the column.
func detailsFolded(r *http.Request) bool {
	c, err := r.Cookie(detailsCookie)
	return err == nil && c.Value == "folded"
}

// sandboxOf reads where a thread's commands run. It leaves out what was deleted meanwhile.
func (a *app) sandboxOf(ctx context.Context, t *arbev1.Thread, house *arbev1.House) (workplace, error) {
	b := workplace{Inherited: t.EnvironmentId == ""}
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

// relativesOf reads a thread's parent, its forks, and the thread that it is a fork of. It leaves out what was deleted
// meanwhile.
func (a *app) relativesOf(ctx context.Context, t *arbev1.Thread) (k relatives, err error) {
	if k.Parent, err = a.threadIfAny(ctx, t.ParentThreadId); err != nil {
		return k, err
	}
	if k.Source, err = a.threadIfAny(ctx, t.ForkedFrom.GetThreadId()); err != nil {
		return k, err
	}
	res, err := a.services.threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: t.HouseId, ForkedFromThreadId: t.Id, PageSize: maxForks})
	k.Forks, k.More = res.GetThreads(), res.GetNextPageToken() != ""
	return k, err
}

// threadIfAny reads a thread. It returns nil if id is empty or the thread does not exist.
func (a *app) threadIfAny(ctx context.Context, id string) (*arbev1.Thread, error) {
	if id == "" {
		return nil, nil
	}
	res, err := a.services.threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: id})
	if err != nil && faultOf(err).Code != fault.NotFound {
		return nil, err
	}
	return res.GetThread(), nil
}

// changeThread changes the fields that the form has: name, pinned, status, tags.
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
	if fromScript(r) {
		w.WriteHeader(http.StatusNoContent) // because the change arrives with the live connection
		return nil
	}
	http.Redirect(w, r, threadPath(req.Id), http.StatusSeeOther)
	return nil
}

// deleteThread deletes a thread and its log.
func (a *app) deleteThread(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	// Read before the deletion, because the thread is gone afterwards.
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

// forkThread forks a thread at an entry and redirects to the fork. At a command that has ended it forks after the result,
// because the page shows both as one.
func (a *app) forkThread(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	e, err := a.entryAt(r)
	if err != nil {
		return err
	}
	source := r.PathValue("thread")
	at, err := transcript.New(a.sourceOf(nil), &arbev1.Thread{Id: source}).LastOf(r.Context(), e)
	if err != nil {
		return err
	}
	res, err := a.services.threads.ForkThread(r.Context(), &arbev1.ForkThreadRequest{
		ThreadId: source, Id: r.PostFormValue("thread"), At: at,
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, threadPath(res.Thread.Id), http.StatusSeeOther)
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
		switch f := faultOf(err); f.Code {
		case fault.Exhausted, fault.Unavailable, fault.Unauthenticated: // because these are not about the form
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

// sandboxWord says where a command of this thread would run.
func sandboxWord(b workplace) string {
	switch {
	case b.Sandbox != nil && b.Sandbox.Status == "live":
		return "sandbox " + b.Sandbox.Id
	case b.Environment != nil:
		return "a new sandbox built from " + b.Environment.Name
	}
	return "no sandbox: choose an environment first"
}

func sandboxStatusWord(s *arbev1.Sandbox) string {
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

// partnerOf returns the name of the bot to which a thread is a direct message; empty if it is not one to a bot of these.
func partnerOf(t *arbev1.Thread, people []*arbev1.Agent) string {
	for _, p := range people {
		if p.Id == t.ParentAgentId && p.Kind == "bot" {
			return clip(p.Name, maxWord)
		}
	}
	return ""
}

// answered says who answers, behind what people are asked to do.
func answered(partner string) string {
	if partner == "" {
		return ""
	}
	return ", and " + partner + " answers"
}
