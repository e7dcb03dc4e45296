package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// patch adds a patch left by the run of a thread.
func (f *fake) patch(id, thread, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, &arbev1.Artifact{Id: id, HouseId: f.house.Id, ThreadId: thread, Kind: "patch", Label: "changes of run 1.patch", MimeType: "text/x-diff", HasBytes: true, Size: int64(len(text))})
	f.bytes[id] = text
}

// somePatch changes a file, renames another one, and has parts that are folded.
var somePatch = `diff --git a/web/main.go b/web/main.go
--- a/web/main.go
+++ b/web/main.go
@@ -10,3 +10,3 @@ func main() {
 	start()
-	wait(1)
+	wait(2) // <script>alert(1)</script>
 	end()
diff --git a/a.txt b/b.txt
rename from a.txt
rename to b.txt
diff --git a/go.sum b/go.sum
--- a/go.sum
+++ b/go.sum
@@ -1 +1 @@
-old
+new
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files /dev/null and b/logo.png differ
diff --git "a/\"><script>x\n.txt" "b/\"><script>x\n.txt"
new file mode 100644
--- /dev/null
+++ "b/\"><script>x\n.txt"
@@ -0,0 +1,600 @@
` + "+" + "\u202etxt.exe ```` `` end\n" + strings.Repeat("+line\n", 599)

// A patch is a page: files with their counts, lines with numbers and signs. Generated parts are folded, and nothing in the
// patch becomes part of the page.
func TestAPatchIsAPage(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("patchrun1").AgentId = bee
	f.patch("patch1", "patchrun1", somePatch)
	f.ends("patchrun1", "completed", entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted, PatchArtifactID: "patch1", PatchFiles: 5})
	c := ada(t, f)
	_, page := c.get("/threads/patchrun1")
	contains(t, page, `<div id="changes-patch1" class="changes"><a class="show-all" href="/changes/patch1"`, "5 files changed", `<a href="/changes/patch1">changes of run 1.patch</a>`)

	_, page = c.get("/changes/patch1")
	contains(t, page, `<span class="plus">+602</span> <span class="minus">−2</span>`, "Send comments to Bee",
		`<details class="diff-file" id="f1" data-file="0" open`, `<div class="dl removed" data-o="11" data-n=""><code>-	wait(1)</code>`,
		`<div class="dl added" data-o="" data-n="11"><code>+	wait(2) // &lt;script&gt;alert(1)&lt;/script&gt;</code>`, "lines 10 to 12 · func main() {",
		"renamed from a.txt", "generated", "added · binary", `href="/api/artifact/patch1" download`,
		`&#34;&gt;&lt;script&gt;x&lt;U+000A&gt;.txt`, "&lt;U+202E&gt;txt.exe")
	lacks(t, page, "<script>alert", "<script>x", "\u202e", `id="f3" data-file="2" open`, `id="f5" data-file="4" open`)
	harmless(t, page)

	_, page = c.get("/changes/patch1?file=3")
	contains(t, page, `id="f3" data-file="2" open`, "One file of the patch")
	lacks(t, page, `id="f1"`)
	for _, path := range []string{"/changes/patch1?file=9", "/changes/patch1?file=x", "/changes/nothing"} {
		if res, _ := c.get(path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s answers %d", path, res.StatusCode)
		}
	}
}

// The changes of a run are applied to the files of the parent thread, or pushed as a branch. Any member can make an artifact
// that looks like them. That artifact cannot be applied, and cannot take the place of the run's changes.
func TestThePatchOfARunIsUsed(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("patchrun3").ParentThreadId = "above"
	f.drives("patchrun4")
	f.drives("norepo1").ParentThreadId = "above"
	f.drives("norepo2")
	for id, thread := range map[string]string{"of-patchrun3": "patchrun3", "of-patchrun4": "patchrun4", "of-norepo1": "norepo1", "of-norepo2": "norepo2", "forged": "patchrun3", "loose": "patchrun3"} {
		f.patch(id, thread, somePatch)
		if id != "loose" {
			f.kept[len(f.kept)-1].RunId = "1"
		}
	}
	c := ada(t, f)
	_, page := c.get("/changes/of-patchrun3")
	contains(t, page, `action="/changes/of-patchrun3/apply"`, `action="/changes/of-patchrun3/branch"`)
	_, page = c.get("/changes/of-patchrun4")
	lacks(t, page, `/apply"`)
	contains(t, page, `action="/changes/of-patchrun4/branch"`)
	contains(t, page, `title="Push it to https://example.com/one.git"`)
	_, page = c.get("/changes/of-norepo1")
	contains(t, page, `action="/changes/of-norepo1/apply"`)
	lacks(t, page, `/branch"`)
	for _, id := range []string{"of-norepo2", "forged", "loose"} {
		_, page = c.get("/changes/" + id)
		lacks(t, page, `/apply"`, `/branch"`, `class="use-changes"`)
	}

	for path, to := range map[string]string{"/changes/of-patchrun3/apply": "/threads/above?at=7#e7", "/changes/of-patchrun3/branch": "/threads/patchrun3?at=8#e8"} {
		res, _ := c.post(path, url.Values{"name": {" fix/it "}})
		if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != to {
			t.Errorf("%s answers %d and leads to %q", path, res.StatusCode, res.Header.Get("Location"))
		}
	}
	for _, path := range []string{"/changes/forged/apply", "/changes/forged/branch", "/changes/loose/apply", "/changes/nothing/apply"} {
		if res, _ := c.post(path, nil); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s answers %d", path, res.StatusCode)
		}
	}
	slices.Sort(f.runs)
	if want := []string{"apply patchrun3 1", "branch patchrun3 1 fix/it"}; !slices.Equal(f.runs, want) {
		t.Errorf("the server is asked for %q, want %q", f.runs, want)
	}
}

// Whatever the bytes are, the page stays small and says what it leaves out.
func TestAHostilePatchIsAPage(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("patches", "Patches")
	for name, text := range map[string]string{
		"empty":     "",
		"junk":      strings.Repeat("\x00\xff<script>alert(1)</script>", 1000),
		"manyfiles": strings.Repeat("diff --git a/<b>x b/<b>x\n@@ -1 +1 @@\n-a\n+b\n", 40_000),
		"longlines": "--- a\n+++ b\n@@ -0,0 +1,100 @@\n" + strings.Repeat("+"+strings.Repeat("<b>", 20_000)+"\n", 100),
		"manylines": "--- a\n+++ b\n@@ -0,0 +1,999999 @@\n" + strings.Repeat("+\n", 999_999),
		"manyhunks": "--- " + strings.Repeat("\x01", 900) + "\n+++ " + strings.Repeat("\x01", 900) + "\n" + strings.Repeat("@@ -1 +1,0 @@\n-\n", 40_000),
		"invisible": "--- a\n+++ b\n@@ -0,0 +1,2000 @@\n" + strings.Repeat("+"+strings.Repeat("\x01", 2000)+"\n", 2000),
		"longnames": strings.Repeat("diff --git a/x b/x\nrename from "+strings.Repeat("\x01", 900)+"\nrename to "+strings.Repeat("\x02", 900)+"\n@@ -1 +1 @@\n-a\n+b\n", 1000),
		"longhead":  "--- " + strings.Repeat("a", 1<<20) + "\n+++ " + strings.Repeat("b", 1<<20) + "\n@@ -1 +1 @@ " + strings.Repeat("c", 1<<20) + "\n-a\n+b\n",
	} {
		f.patch(name, "patches", text)
	}
	c := ada(t, f)
	for _, a := range f.kept {
		res, page := c.get("/changes/" + a.Id)
		if res.StatusCode != http.StatusOK || len(page) > 3<<20 {
			t.Errorf("%s answers %d with %d bytes", a.Id, res.StatusCode, len(page))
		}
		lacks(t, page, "<script>alert", "<b>")
		if res, page := c.get("/changes/" + a.Id + "?file=1"); res.StatusCode != http.StatusNotFound && len(page) > 6<<20 {
			t.Errorf("a file of %s answers %d with %d bytes", a.Id, res.StatusCode, len(page))
		}
		if a.Id == "empty" || a.Id == "junk" {
			contains(t, page, "This page cannot show it as changes of files")
		}
	}
	_, page := c.get("/changes/manylines")
	contains(t, page, "998,999 more lines")
}

// chatOf returns the text of the last entry of a thread, which must be a chat.
func (f *fake) chatOf(t *testing.T, thread string) string {
	t.Helper()
	var c entry.Chat
	if err := json.Unmarshal([]byte(f.last(thread).Payload), &c); err != nil || f.last(thread).Type != "chat" {
		t.Fatalf("the last entry is %v", f.last(thread))
	}
	return c.Text
}

// Comments on lines become one message in the thread of the run. It quotes the lines in blocks that no line can end.
func TestCommentsOnAPatchAreOneMessage(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("patchrun2")
	f.patch("patch2", "patchrun2", somePatch)
	c := ada(t, f)
	form := url.Values{"entry": {"comments1"}, "r-0-0-2": {"Why two?\r\n\r\nSay it."}, "r-4-0-0": {"Odd name."}, "r-0-0": {"Fine."}, "r-9-9": {"Of nothing."}, "r-0-0-1": {"  "}}
	for range 2 {
		res, _ := c.post("/changes/patch2/comments", form)
		want(t, res, http.StatusSeeOther, "/threads/patchrun2?at=3#e3")
	}
	text := f.chatOf(t, "patchrun2")
	const expected = "Comments on `changes of run 1.patch` (artifact patch2). The blocks quote it; only what stands below them is said by me.\n" +
		"\n`web/main.go`, lines 10 to 12:\n```diff\n-\twait(1)\n+\twait(2) // <script>alert(1)</script>\n```\nFine.\n" +
		"\n`web/main.go`, line 11:\n```diff\n \tstart()\n-\twait(1)\n+\twait(2) // <script>alert(1)</script>\n```\nWhy two?\n\nSay it.\n" +
		"\n`\"><script>x<U+000A>.txt`, line 1:\n`````diff\n+<U+202E>txt.exe ```` `` end\n`````\nOdd name.\n" +
		"\nOf nothing.\n"
	if text != expected {
		t.Errorf("the message is\n%s\nand not\n%s", text, expected)
	}
	if n := len(f.log("patchrun2")); n != 3 {
		t.Errorf("the thread has %d entries", n)
	}
	if res, _ := c.post("/changes/patch2/comments", url.Values{"entry": {"comments2"}, "r-0-0": {" "}}); res.StatusCode != http.StatusBadRequest {
		t.Errorf("no comment answers %d", res.StatusCode)
	}
	many := url.Values{"entry": {"comments3"}}
	for i := range 300 {
		many.Set(fmt.Sprint("r-4-0-", i), "x")
	}
	if res, _ := c.post("/changes/patch2/comments", many); res.StatusCode != http.StatusRequestEntityTooLarge && res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("too many comments answer %d", res.StatusCode)
	}
}

// In the browser, a click on a line opens a field for a comment, which survives a reload until it is sent. A patch also opens
// in its thread.
func TestAPatchIsCommentedOnInTheBrowser(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("patchrun3")
	f.patch("patch3", "patchrun3", somePatch)
	f.ends("patchrun3", "completed", entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted, PatchArtifactID: "patch3", PatchFiles: 5})
	b := newTab(t, f.start(t))
	b.open("/threads/patchrun3")
	b.untilLive()
	b.do(chromedp.Click(chromedp.CSS("#changes-patch3 .show-all")))
	b.until("the patch in its thread", "document.querySelectorAll('#changes-patch3 .diff-file').length === 5 && document.querySelectorAll('#changes-patch3 .dl.added').length > 0")
	b.open("/changes/patch3")
	b.until("the script", "document.documentElement.dataset.scripted === ''")
	b.do(chromedp.Click(chromedp.CSS("#f1 .dl.added")), keysInto("#f1 div.remark textarea", "Why two?"))
	b.until("how many there are", "document.querySelector('.remarks-hint').innerText === '1 comment'")
	b.open("/changes/patch3")
	b.until("the comment after a reload", "document.querySelector('#f1 div.remark textarea')?.value === 'Why two?'")
	b.accessibleEverywhere("a patch")
	b.do(chromedp.Click(chromedp.CSS(".remarks-foot button")))
	b.until("the thread with the message", "location.pathname === '/threads/patchrun3' && document.querySelector('#log').innerText.includes('Why two?')")
	contains(t, f.chatOf(t, "patchrun3"), "line 11:", "Why two?")
}
