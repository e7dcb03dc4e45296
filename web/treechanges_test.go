package web_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

var shownDigest = regexp.MustCompile(`name="of" value="([0-9a-f]+)"`)

// The page of a tree's changes shows those since the clone or since the last commit, in one column or side by side. It links to
// the changes of runs.
func TestTheScopesAndViewsOfChanges(t *testing.T) {
	t.Parallel()
	f := withTree()
	c := ada(t, f)
	_, page := c.get("/threads/tree1/diff")
	contains(t, page, `href="/threads/tree1/diff" aria-current>Since the clone</a>`, `href="/threads/tree1/diff?scope=uncommitted">Uncommitted</a>`, `href="/changes/of-tree1">Run 1</a>`,
		`href="/threads/tree1/diff?view=split">Side by side</a>`)
	_, page = c.get("/threads/tree1/diff?scope=uncommitted&view=split")
	contains(t, page, `aria-current>Uncommitted</a>`, `href="/threads/tree1/diff?scope=uncommitted">One column</a>`,
		`<div class="dl removed" data-l="1" data-side="l" data-o="11" data-n=""><code>-	wait(1)</code></div>`, `<div class="dl added" data-l="2" data-side="r"`, "What differs now from the last commit.")
	lacks(t, page, "<script>alert", "\u202e")
	harmless(t, page)
	if !f.uncommitted {
		t.Error("the sandbox was not asked for what is not committed")
	}
}

// The uncommitted changes to a file are discarded by a command, which the thread shows.
func TestAFileIsDiscarded(t *testing.T) {
	t.Parallel()
	f := withTree()
	c := ada(t, f)
	_, page := c.get("/threads/tree1/diff?scope=uncommitted")
	contains(t, page, `action="/threads/tree1/diff/discard"`, `name="path" value="web/main.go"`, `form="discard-0"`, "Discard what is not committed of this file")
	lacks(t, page, `value="b.txt"`, `form="discard-4"`) // a renamed file, and one whose name hides something
	for _, one := range []struct{ path, change, runs string }{
		{"web/main.go", "changed", `["git","--literal-pathspecs","-C","web","restore","--staged","--worktree","--","main.go"]`},
		{"a b'c", "deleted", `["git","--literal-pathspecs","restore","--staged","--worktree","--","a b'c"]`},
		{"-rf", "added", `["rm","-f","--","-rf"]`},
	} {
		res, _ := c.post("/threads/tree1/diff/discard", url.Values{"path": {one.path}, "change": {one.change}, "entry": {"discard" + one.change}})
		if res.StatusCode != http.StatusSeeOther || !strings.HasPrefix(res.Header.Get("Location"), "/threads/tree1?at=") {
			t.Errorf("%s answers %s and leads to %q", one.path, res.Status, res.Header.Get("Location"))
		}
		if got := f.ran[len(f.ran)-1]; got != one.runs {
			t.Errorf("%s runs %s", one.path, got)
		}
	}
	for _, bad := range []string{"", "/etc/passwd"} {
		res, _ := c.post("/threads/tree1/diff/discard", url.Values{"path": {bad}, "change": {"added"}, "entry": {"discardbad"}})
		want(t, res, http.StatusBadRequest, "")
	}
}

// Comments on the files of a sandbox are one message, which quotes the lines. If the files have changed meanwhile, nothing is
// sent, and nothing is lost.
func TestCommentsOnATreeAreOneMessage(t *testing.T) {
	t.Parallel()
	f := withTree()
	c := ada(t, f)
	_, page := c.get("/threads/tree1/diff")
	of := shownDigest.FindStringSubmatch(page)
	if of == nil {
		t.Fatal("the form does not say what it is about")
	}
	form := url.Values{"entry": {"treecomments"}, "of": {of[1]}, "r-0-0-2": {"Why two?"}, "o-0": {"Gone."}, "p-0": {"old.go, line 3`"}}
	res, _ := c.post("/threads/tree1/diff/comments", form)
	want(t, res, http.StatusSeeOther, "/threads/tree1?at=1#e1")
	contains(t, f.chatOf(t, "tree1"), "Comments on the changes in the sandbox.", "`web/main.go`, line 11:\n```diff\n", "\nWhy two?\n", "which has changed since:\nGone.\n")

	f.mu.Lock()
	f.treeDiff = &arbev1.GetSandboxChangesResponse{Patch: []byte(strings.Replace(somePatch, "wait(2)", "wait(3)", 1))}
	f.mu.Unlock()
	form.Set("entry", "treecomments2")
	res, page = c.post("/threads/tree1/diff/comments", form)
	want(t, res, http.StatusConflict, "")
	contains(t, page, "The files have changed since you opened the page", "Why two?", "Gone.")
	if n := len(f.log("tree1")); n != 1 {
		t.Errorf("the thread has %d entries", n)
	}
}

// Comments stay with their lines when the files change. Those whose lines are gone are listed, and the thread says that
// comments wait.
func TestCommentsStayWithTheirLines(t *testing.T) {
	t.Parallel()
	f := withTree()
	b := newTab(t, f.start(t))
	b.open("/threads/tree1/diff?view=split")
	b.do(chromedp.Click(chromedp.CSS(`.dl[data-l="2"]`)), chromedp.KeyEvent("Why two?"))
	b.do(chromedp.Click(chromedp.CSS(`.dl[data-l="3"]`)), chromedp.KeyEvent("Never reached."))
	b.until("the number", "document.querySelector('.remarks-hint').innerText === '2 comments, as one message'")
	b.pictures("split")
	b.loadAxe()
	b.accessible("changes side by side")
	f.mu.Lock()
	f.treeDiff = &arbev1.GetSandboxChangesResponse{Patch: []byte(strings.Replace(strings.Replace(somePatch, "wait(2)", "wait(3)", 1), "@@ -10,3 +10,3 @@", "@@ -20,3 +20,3 @@", 1))}
	f.mu.Unlock()
	b.open("/threads/tree1")
	b.until("what waits", "document.querySelector('#waiting-remarks').innerText.startsWith('2 comments on changes are not sent.')")
	b.do(chromedp.Click(chromedp.CSS("#waiting-remarks a")))
	b.until("the comment at its line, and the other one below", "document.querySelector('.hunk textarea[name=\"r-0-0-3\"]')?.value === 'Never reached.' && document.querySelector('.lost-remarks textarea')?.value === 'Why two?' && document.querySelector('.lost-remarks label').innerText === 'web/main.go, line 11'")
	b.pictures("lost")
	b.do(chromedp.Click(chromedp.CSS(".remarks-foot button")))
	b.until("the message", "location.pathname === '/threads/tree1' && document.querySelector('#log').innerText.includes('Never reached.') && document.querySelector('#log').innerText.includes('which has changed since')")
	b.until("that nothing waits", "document.querySelector('#waiting-remarks').hidden")
}
