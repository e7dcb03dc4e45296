package web_test

import (
	"net/http"
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The latest artifacts of a thread stand below its head. Each leads to where it can be looked at. An address that is not of the
// web leads nowhere.
func TestTheLatestArtifactsAreBelowTheHead(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("stripstrip", "Strip")
	f.patch("apatch", "stripstrip", somePatch)
	for _, a := range []*arbev1.Artifact{
		{Id: "pull", Kind: "url", Label: "acme/web#12", ExternalId: "https://github.com/acme/web/pull/12?a=1&b=2"},
		{Id: "bad", Kind: "url", Label: "bad", ExternalId: "javascript:alert(1)"},
		{Id: "notes", Kind: "file", Label: "notes.md", HasBytes: true, Size: 20},
		{Id: "shot", Kind: "screenshot", Label: "shot.png", MimeType: "image/png", HasBytes: true},
		{Id: "data", Kind: "file", Label: `<b>.bin`, HasBytes: true},
		{Id: "seventh", Kind: "file", Label: "seventh", HasBytes: true},
	} {
		a.HouseId, a.ThreadId = f.house.Id, "stripstrip"
		f.kept = append(f.kept, a)
	}
	f.bytes["notes"] = "# Notes\n\nSo <script>alert(1)</script> and *more* [x](javascript:alert(1))"
	c := ada(t, f)
	_, page := c.get("/threads/stripstrip")
	contains(t, page, `<nav class="strip"`, `href="/changes/apatch"`, `href="https://github.com/acme/web/pull/12?a=1&amp;b=2" target="_blank" rel="noopener noreferrer">acme/web#12</a>`,
		`<span>bad</span>`, `href="/documents/notes">notes.md</a>`, `href="/api/artifact/shot/image" target="_blank"`, `href="/api/artifact/data" download>&lt;b&gt;.bin</a>`, `href="/threads/stripstrip/artifacts">All artifacts</a>`)
	lacks(t, page, `href="javascript:`)
	harmless(t, page)

	_, page = c.get("/documents/notes")
	contains(t, page, ">Notes</h1>", "&lt;script&gt;alert(1)&lt;/script&gt; and <em>more</em>", `href="/api/artifact/notes" download`)
	lacks(t, page, "<script>alert", `href="javascript:`)
	harmless(t, page)
	for _, id := range []string{"data", "nothing"} {
		res, _ := c.get("/documents/" + id)
		want(t, res, http.StatusNotFound, "")
	}
	b := newTab(t, f.start(t))
	b.open("/threads/stripstrip")
	b.untilLive()
	b.pictures("strip")
	b.loadAxe()
	b.accessible("a strip of artifacts")
}
