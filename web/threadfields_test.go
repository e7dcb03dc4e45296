package web_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Names and tags are changed for the version that the reader saw. If somebody else changed the thread meanwhile, nothing of
// theirs is lost, and neither is what was typed.
func TestANameAndTagsOverwriteNothingThatWasNotSeen(t *testing.T) {
	t.Parallel()
	f := newFake()
	th := f.thread("fieldfield", "Theirs")
	th.Etag, th.Tags = "v2", []string{"deploy"}
	c := ada(t, f)
	_, page := c.get("/threads/fieldfield")
	contains(t, page, `data-etag="v2"`, `data-name="Theirs"`, `data-tags="deploy"`, `name="etag" value="v2"`)
	for field, values := range map[string][2]string{"name": {"Mine", "Now it is: Theirs"}, "tags": {"web, <b>", "Now they are: deploy"}} {
		res, page := c.post("/threads/fieldfield", url.Values{field: {values[0]}, "etag": {"v1"}})
		want(t, res, http.StatusConflict, "")
		contains(t, page, "Someone else has changed this", `name="etag" value="v2"`, values[1])
		harmless(t, page)
		if field == "name" {
			contains(t, page, `name="name" value="Mine"`)
			lacks(t, page, `name="tags"`)
		} else {
			contains(t, page, `name="tags" value="web, &lt;b&gt;"`)
		}
	}
	if now := f.row("fieldfield"); now.Name != "Theirs" || len(now.Tags) != 1 {
		t.Errorf("a refused form changed the thread to %q %v", now.Name, now.Tags)
	}
	res, _ := c.post("/threads/fieldfield", url.Values{"tags": {"web"}, "etag": {"v2"}})
	want(t, res, http.StatusSeeOther, "/threads/fieldfield")
}

// On an open page, the forms follow the thread until they are opened, and a refused name stays in its field.
func TestAFormIsForTheVersionThatItShows(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("fieldlive", "One").Etag = "v1"
	b := newTab(t, f.start(t))
	b.open("/threads/fieldlive")
	b.untilLive()
	f.update("fieldlive", func(t *arbev1.Thread) { t.Name, t.Tags, t.Etag = "Two", []string{"web"}, "v2" })
	b.until("the new head", "document.querySelector('#thread-head').dataset.etag === 'v2'")
	b.do(chromedp.DoubleClick(chromedp.CSS("#thread-head h1")))
	b.until("the title, chosen", "document.activeElement.value === 'Two' && document.querySelector('#rename [name=etag]').value === 'v2'")
	f.update("fieldlive", func(t *arbev1.Thread) { t.Name, t.Etag = "Three", "v3" })
	b.until("the new head", "document.querySelector('#thread-head').dataset.etag === 'v3'")
	b.allow("409")
	b.do(chromedp.KeyEvent("Mine"))
	b.enter()
	b.until("the words, and the name in its field", "document.body.innerText.includes('Somebody else has changed this thread') && !document.querySelector('#rename').hidden && document.activeElement.value === 'Mine'")
	b.enter()
	b.until("the name", "document.querySelector('#thread-head h1').innerText === 'Mine' && document.querySelector('#rename').hidden")

	const tags = "document.querySelector('#context [name=tags]')"
	eval[int](b, "(() => { "+tags+".closest('details').open = true; return 1 })()")
	b.until("the current tags", tags+".value === 'web' && "+tags+".form.elements.etag.value === document.querySelector('#thread-head').dataset.etag")
}

// The head of a child leads to its parent, shows what its agent does now, and the state of its sandbox.
func TestTheHeadSaysWhereAndWhat(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.thread("headparent", "Ship <b>it</b>")
	f.boxes["box1"] = &arbev1.Sandbox{Id: "box1", Provider: "local", Status: arbev1.SandboxStatus_SANDBOX_STATUS_LIVE}
	f.delegates("headparent", "headchild", "Write the docs", func(t *arbev1.Thread) { running(t); t.SandboxId = "box1" })
	_, page := ada(t, f).get("/threads/headchild")
	contains(t, page, `href="/threads/headparent" title="Child of Ship &lt;b&gt;it&lt;/b&gt;"`, `<span class="pill-word">thinking</span>`, `title="running · last tool bash · $0.04"`,
		`class="pill sandbox-pill live" href="/sandboxes/box1" title="Sandbox: Live"`)
	b := newTab(t, f.start(t))
	b.open("/threads/headchild")
	b.untilLive()
	b.pictures("head")
	f.update("headchild", func(t *arbev1.Thread) { t.LastRun.Doing = "running bash" })
	b.until("what it does now", "document.querySelector('#thread-head .pill-word').innerText === 'running bash'")
}
