package web_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Search finds the threads whose names have the words.
func (s entries) Search(_ context.Context, req *arbev1.SearchRequest) (*arbev1.SearchResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	res := &arbev1.SearchResponse{}
	for id, t := range s.f.threads {
		if strings.Contains(t.Name, req.Query) {
			res.Threads = append(res.Threads, &arbev1.NamedThread{ThreadId: id, Name: t.Name})
		}
	}
	return res, nil
}

// In every list, a thread that failed and one that waits for a person differ in shape, in colour and in the word for screen
// readers, and both differ from one that is done.
func TestAFailedThreadDiffersFromAWaitingOneInEveryList(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("aparent01")
	f.drives("asource01")
	states := map[string]string{"afailed01": "failed", "awaits001": "waiting", "adone0001": "completed"}
	for id, class := range states {
		th := f.thread(id, "The thread "+id)
		th.AgentId, th.ParentThreadId = bee, "aparent01"
		th.Status, _ = arbev1.FromWord[arbev1.ThreadStatus](class)
		reason := map[string]arbev1.NeedReason{"failed": arbev1.NeedReason_NEED_REASON_FAILED, "waiting": arbev1.NeedReason_NEED_REASON_APPROVAL, "completed": arbev1.NeedReason_NEED_REASON_FINISHED}[class]
		f.needs(id, th.Name, reason)
		if class == "waiting" {
			th.Status, th.OpenApprovals = arbev1.ThreadStatus_THREAD_STATUS_RUNNING, 1
		}
		forked := f.thread("fork"+id, "A fork of it")
		forked.Status, forked.OpenApprovals, forked.ForkedFrom = th.Status, th.OpenApprovals, &arbev1.Origin{ThreadId: "asource01", Seq: 1}
		below := f.thread("below"+id, "Its child")
		below.ParentThreadId = id
	}
	c := ada(t, f)
	shape := regexp.MustCompile(`<span class="status (\w+)" title="([^"]+)"><svg class="icon" aria-hidden="true"><use href="(#i-s-\w+)"></use></svg>\s*<span class="unseen">([^<]+)</span></span>`)
	_, front := c.get("/houses/home")
	drawn := map[string]string{}
	for _, m := range regexp.MustCompile(`<symbol id="(i-s-\w+)"[^>]*>(.*?)</symbol>`).FindAllStringSubmatch(front, -1) {
		drawn["#"+m[1]] = m[2]
	}
	for name, list := range map[string]struct {
		path, from string // %s is the thread
	}{
		"the sidebar":              {"/houses/home", `id="place-%s"`},
		"the list of the house":    {"/houses/home", `id="t-%s"`},
		"the inbox":                {"/houses/home", `id="need-%s"`},
		"the results of a search":  {"/houses/home/search?q=The+thread", `<a class="thread-link" href="/threads/%s"`},
		"the children of a thread": {"/threads/aparent01", `id="kid-%s"`},
		"the parent of a thread":   {"/threads/below%s", "<dt>Child of</dt>"},
		"the forks of a thread":    {"/threads/asource01", "<h2>Forks</h2>"},
	} {
		seen := map[string]bool{}
		for id, class := range states {
			_, page := c.get(strings.ReplaceAll(list.path, "%s", id))
			_, after, ok := strings.Cut(page, strings.ReplaceAll(list.from, "%s", id))
			if name == "the forks of a thread" {
				after, _, _ = strings.Cut(after, `href="/threads/fork`+id+`"`)
				after = after[strings.LastIndex(after, "<li>"):]
			}
			m := shape.FindStringSubmatch(after[:min(len(after), 800)])
			if !ok || m == nil {
				t.Errorf("%s shows no state of the thread that is %s: %.800s", name, class, after)
				continue
			}
			if m[1] != class || m[2] != m[4] || drawn[m[3]] == "" || seen[m[1]] || seen[m[2]] || seen[drawn[m[3]]] {
				t.Errorf("%s shows the thread that is %s as %q", name, class, m[1:])
			}
			seen[m[1]], seen[m[2]], seen[drawn[m[3]]] = true, true, true
		}
	}
}
