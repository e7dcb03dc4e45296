package web_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

type artifacts struct {
	arbev1connect.UnimplementedArtifactServiceHandler
	f *fake
}

// ListArtifacts lists the artifacts of a thread.
func (s artifacts) ListArtifacts(_ context.Context, req *arbev1.ListArtifactsRequest) (*arbev1.ListArtifactsResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	res := &arbev1.ListArtifactsResponse{}
	skip := req.PageToken != ""
	for _, a := range s.f.kept {
		if skip = skip && a.Id != req.PageToken; skip || a.ThreadId != req.GetThreadId() {
			continue
		}
		if len(res.Artifacts) == int(req.PageSize) {
			res.NextPageToken = a.Id
			break
		}
		res.Artifacts = append(res.Artifacts, copied(a))
	}
	return res, nil
}

// GetArtifact returns an artifact that the fake keeps.
func (s artifacts) GetArtifact(_ context.Context, req *arbev1.GetArtifactRequest) (*arbev1.GetArtifactResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	for _, a := range s.f.kept {
		if a.Id == req.Id {
			return &arbev1.GetArtifactResponse{Artifact: copied(a)}, nil
		}
	}
	return nil, refused(connect.CodeNotFound, "there is no such artifact", "list them")
}

// TestFilesOfAMessage checks that a page shows only files detected as images, from a path that serves nothing else. Other
// files are downloads, and deleted files are marked.
func TestFilesOfAMessage(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("files", "Files")
	for _, id := range []string{"photo", "huge", "evil", "page"} {
		f.kept = append(f.kept, &arbev1.Artifact{Id: id, ThreadId: "elsewhere", HasBytes: true})
	}
	evil := `"><script>alert(1)</script>.png`
	f.says("files", f.me.Id, "e1", entry.Chat{Text: "look", Attachments: []entry.Attachment{
		{ArtifactID: "photo", Name: evil, MediaType: "image/png", Size: 12_000, Width: 3200, Height: 1600},
		{ArtifactID: "huge", Name: "huge.png", MediaType: "image/png", Size: 21 << 20, Width: 30, Height: 30},
		{ArtifactID: "evil", Name: "drawing.svg", MediaType: "text/plain", Size: 50},
		{ArtifactID: "page", Name: "page.html", MediaType: "text/html", Size: 3_400_000},
		{ArtifactID: "gone", Name: "lost.png", MediaType: "image/png", Size: 5, Width: 5, Height: 5},
	}})
	c := ada(t, f)
	_, page := c.get("/threads/files")
	contains(t, page, `<a href="/api/artifact/photo/image" target="_blank" rel="noopener"><img src="/api/artifact/photo/image" alt="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;.png" width="480" height="240" loading="lazy" decoding="async"></a>`,
		`href="/api/artifact/huge" download>huge.png</a>`, `href="/api/artifact/evil" download>drawing.svg</a>`, `href="/api/artifact/page" download>page.html</a> <span class="meta">3.4 MB</span>`, "lost.png was deleted")
	lacks(t, page, "/api/artifact/gone", "/api/artifact/evil/image", "/api/artifact/page/image")
}

func TestWhatAThreadLeftIsListedAndDownloaded(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("bare", "Bare")
	f.thread("rich", "Rich")
	f.kept = []*arbev1.Artifact{
		{Id: "file1", ThreadId: "rich", Kind: "file", Label: "report.pdf", HasBytes: true, Size: 3 << 20},
		{Id: "evil1", ThreadId: "rich", Kind: "file", Label: `<img src=x onerror=alert(1)>`, HasBytes: true, Size: 1},
		{Id: "link1", ThreadId: "rich", Kind: "commit", ExternalId: "javascript:alert(1)"},
		{Id: "bare1", ThreadId: "other", Kind: "file", Label: "another thread's", HasBytes: true},
	}
	c := ada(t, f)
	_, page := c.get("/threads/rich")
	contains(t, page, "<h2>Artifacts</h2>", `<a href="/api/artifact/file1" download>report.pdf</a>`, "3.0 MiB", "javascript:alert(1)")
	lacks(t, page, "another thread", "<img src=x", `href="javascript`, "All artifacts")
	harmless(t, page)
	_, page = c.get("/threads/bare")
	lacks(t, page, "<h2>Artifacts</h2>")

	for i := range 300 {
		f.kept = append(f.kept, &arbev1.Artifact{Id: fmt.Sprint("more", i), ThreadId: "rich", Kind: "file", HasBytes: true})
	}
	_, page = c.get("/threads/rich")
	contains(t, page, `<a href="/threads/rich/artifacts">All artifacts</a>`)
	_, list, _ := strings.Cut(page, `id="artifacts"`)
	if n := strings.Count(list, "/api/artifact/"); n > 20 || strings.Count(page, "/api/artifact/") > 26 {
		t.Errorf("the page lists %d", n)
	}
	listed := map[string]bool{}
	for path := "/threads/rich/artifacts"; path != ""; {
		_, page = c.get(path)
		contains(t, page, "<h1>Artifacts of Rich</h1>", `<a class="button" href="/threads/rich">`)
		harmless(t, page)
		for _, link := range regexp.MustCompile(`"/api/artifact/(\w+)" download`).FindAllStringSubmatch(page, -1) {
			listed[link[1]] = true
		}
		path = ""
		if older := regexp.MustCompile(`href="(/threads/rich/artifacts\?page=\w+)">Older artifacts`).FindStringSubmatch(page); older != nil {
			path = older[1]
		}
	}
	if len(listed) != 302 || listed["bare1"] {
		t.Errorf("the pages list %d artifacts", len(listed))
	}
	_, page = c.get("/threads/bare/artifacts")
	contains(t, page, "There are none.")
	if res, _ := c.get("/threads/nothing/artifacts"); res.StatusCode != http.StatusNotFound {
		t.Errorf("of no thread: %d", res.StatusCode)
	}
}

func TestOutputThatTheLogDoesNotHoldIsDownloaded(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("cmds", "Commands")
	for id, r := range map[string]entry.CommandResult{
		"whole": {OutputBytes: 900 << 10, ArtifactBytes: 300 << 10, ArtifactID: "out1"}, // its text is larger
		"part":  {OutputBytes: 200 << 20, ArtifactBytes: 100 << 20, ArtifactPart: true, ArtifactID: "out2"},
		"lost":  {OutputBytes: 400 << 10},
	} {
		r.CommandID, r.Output, r.OutputTail, r.Truncated = id, "head", "tail", true
		f.says("cmds", f.me.Id, id, entry.Command{Command: id})
		f.says("cmds", "", entry.ResultID(id), r)
	}
	c := ada(t, f)
	_, page := c.get("/threads/cmds")
	contains(t, page, `<a class="show-all" href="/api/artifact/out1" download>Download all 300.0 KiB</a>`, `href="/api/artifact/out2" download>Download the first 100.0 MiB</a>`)
	if n := strings.Count(page, "/api/artifact/"); n != 2 {
		t.Errorf("there are %d downloads, want 2", n)
	}
}
