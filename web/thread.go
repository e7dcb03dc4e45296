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

// maxForks limits the forks of a thread that its page lists.
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
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread"), Usage: true})
	if err != nil {
		return v, err
	}
	v.Thread, v.Used = res.Thread, res.Used
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
	g.Go(func() error {
		res, err := a.services.environments.ListEnvironments(ctx, &arbev1.ListEnvironmentsRequest{HouseId: v.Thread.HouseId, PageSize: maxNames})
		v.Environments = res.GetEnvironments()
		return err
	})
	g.Go(func() (err error) {
		v.Answers, err = a.answersTo(ctx, v.Thread.Id, "", "")
		return err
	})
	g.Go(func() (err error) {
		v.Queue, err = a.queueOf(ctx, v.Thread, nil)
		return err
	})
	if v.Thread.OpenApprovals > 0 {
		g.Go(func() (err error) {
			v.Asks, err = a.asksOf(ctx, v.Thread)
			return err
		})
	}
	g.Go(func() (err error) {
		v.Artifacts, err = a.artifactsOf(ctx, v.Thread.Id, "", maxArtifacts)
		return err
	})
	err = g.Wait()
	if err == nil {
		v.Partner = partnerOf(v.Thread, v.People)
		v.Window.markUnread(readingOf(v.Layout.Inbox, v.Thread.Id), v.Layout.Me.Id)
		v.Window.Places = mineTopic(v.Layout).String() + " " + houseTopic(v.Layout).String() + " " + namesTopic(v.Thread.HouseId, v.People).String()
	}
	return v, err
}

// detailsFolded reports whether the reader has hidden the column of details. The script stores that in a cookie, so that the
// page already arrives without the column.
func detailsFolded(r *http.Request) bool {
	c, err := r.Cookie(detailsCookie)
	return err == nil && c.Value == "folded"
}

// sandboxOf finds out where a thread's commands run. It leaves out what was deleted in the meantime.
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

// relativesOf reads a thread's parent, children, forks and source. It leaves out threads that were deleted in the meantime.
func (a *app) relativesOf(ctx context.Context, t *arbev1.Thread) (k relatives, err error) {
	if k.Parent, err = a.threadIfAny(ctx, t.ParentThreadId); err != nil {
		return k, err
	}
	if k.Source, err = a.threadIfAny(ctx, t.ForkedFrom.GetThreadId()); err != nil {
		return k, err
	}
	res, err := a.services.threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: t.HouseId, ForkedFromThreadId: t.Id, PageSize: maxForks})
	if err != nil {
		return k, err
	}
	k.Forks, k.More = res.Threads, res.NextPageToken != ""
	res, err = a.services.threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: t.HouseId, ParentThreadId: t.Id, PageSize: maxKids + 1})
	k.withChildren(res.GetThreads())
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

// changeThread changes the fields that the form has: name, pinned, status, answering, tags.
func (a *app) changeThread(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	req := &arbev1.UpdateThreadRequest{Id: r.PathValue("thread"), Etag: r.PostForm.Get("etag")}
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
			status, _ := arbev1.FromWord[arbev1.ThreadStatus](value) // 0 for another word, which the server refuses
			req.Status = &status
		case "answering":
			if value != asSettled {
				req.AnsweringAgentId = &value
			}
		case "tags":
			req.Tags = &arbev1.Tags{Values: splitTags(value)}
		}
	}
	if _, err := a.services.threads.UpdateThread(r.Context(), req); err != nil {
		return a.threadRefused(w, r, err)
	}
	if fromScript(r) {
		w.WriteHeader(http.StatusNoContent) // the change arrives over the live connection
		return nil
	}
	http.Redirect(w, r, threadPath(req.Id), http.StatusSeeOther)
	return nil
}

// deleteThread deletes a thread and its log.
func (a *app) deleteThread(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	// Read the thread before its deletion, because it is gone afterwards.
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

// forkThread forks a thread at an entry and redirects to the fork. At a command that has ended, it forks after the result,
// because the page shows the two as one. With "before", it forks before a message.
func (a *app) forkThread(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	e, err := a.entryAt(r)
	if err != nil {
		return err
	}
	source := r.PathValue("thread")
	if r.PostForm.Has("before") { // to say the message again, differently
		return a.forkAt(w, r, source, e.Seq-1)
	}
	at, err := transcript.New(a.sourceOf(nil), &arbev1.Thread{Id: source}).LastOf(r.Context(), e)
	if err != nil {
		return err
	}
	return a.forkAt(w, r, source, at)
}

// forkAt forks a thread after an entry, with the id of the form.
func (a *app) forkAt(w http.ResponseWriter, r *http.Request, source string, at int64) error {
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

// partnerOf returns the name of the bot among people that a thread is a direct message to. It returns "" for any other thread.
func partnerOf(t *arbev1.Thread, people []*arbev1.Agent) string {
	for _, p := range people {
		if p.Id == t.ParentAgentId && p.Kind == "bot" {
			return clip(p.Name, maxWord)
		}
	}
	return ""
}

// entries shows a piece of a thread: as a page, or, for the script, as rows for the open page.
func (a *app) entries(w http.ResponseWriter, r *http.Request) error {
	if !fromScript(r) {
		return a.thread(w, r)
	}
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	piece, err := a.window(r.Context(), res.Thread, r.URL.Query())
	if err != nil {
		return err
	}
	if r.URL.Query().Has("after") {
		return a.patch(w, r, "#newer", newerRows(piece))
	}
	return a.patch(w, r, "#older", olderRows(piece))
}
