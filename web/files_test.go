package web_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// at returns what is at a path of the tree.
func (s sandboxes) at(req *arbev1.ReadSandboxPathRequest) (*arbev1.ReadSandboxPathResponse, error) {
	if s.f.tree == nil {
		return nil, refused(connect.CodeFailedPrecondition, "the sandbox box1 is stopped", "run a command in the thread, which starts it")
	}
	if content, ok := s.f.tree[req.Path]; ok {
		return &arbev1.ReadSandboxPathResponse{File: &arbev1.SandboxFile{Name: req.Path, Kind: "file", Size: int64(len(content))}}, nil
	}
	folder := &arbev1.ReadSandboxPathResponse{File: &arbev1.SandboxFile{Name: ".", Kind: "folder"}, More: true}
	below := ""
	if req.Path != "" {
		folder.File.Name, below = req.Path, req.Path+"/"
	}
	for _, path := range slices.Sorted(maps.Keys(s.f.tree)) {
		rest, inside := strings.CutPrefix(path, below)
		f := &arbev1.SandboxFile{Name: rest, Kind: "file", Size: int64(len(s.f.tree[path])), ChangedAt: timestamppb.New(s.f.now)}
		if name, _, deeper := strings.Cut(rest, "/"); deeper {
			f.Name, f.Kind = name, "folder"
		} else if strings.HasPrefix(rest, "pipe") {
			f.Kind = "special"
		}
		if inside {
			folder.Files = append(folder.Files, f)
		}
	}
	if below != "" && len(folder.Files) == 0 {
		return nil, refused(connect.CodeNotFound, "there is no file "+req.Path, "")
	}
	return folder, nil
}

func (s sandboxes) ReadSandboxPath(_ context.Context, req *arbev1.ReadSandboxPathRequest, to *connect.ServerStream[arbev1.ReadSandboxPathResponse]) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	found, err := s.at(req)
	if err == nil {
		err = to.Send(found)
	}
	if err != nil {
		return err
	}
	content := s.f.tree[req.Path]
	if req.MaxBytes > 0 {
		content = content[:min(int64(len(content)), req.MaxBytes)]
	}
	for piece := range slices.Chunk([]byte(content), 1000) {
		if err := to.Send(&arbev1.ReadSandboxPathResponse{Content: piece}); err != nil {
			return err
		}
	}
	if strings.HasPrefix(req.Path, "breaks") {
		return refused(connect.CodeUnavailable, "the sandbox does not answer", "try again")
	}
	return nil
}

func (s sandboxes) GetSandboxChanges(_ context.Context, req *arbev1.GetSandboxChangesRequest) (*arbev1.GetSandboxChangesResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.uncommitted = req.Uncommitted
	if s.f.treeDiff == nil {
		return nil, refused(connect.CodeFailedPrecondition, "the thread has no sandbox", "run a command in the thread, which builds one")
	}
	return s.f.treeDiff, nil
}

// withTree is a fake whose thread "tree1" has a sandbox with files.
func withTree() *fake {
	f := newFake()
	f.boxes["box1"] = &arbev1.Sandbox{Id: "box1", Provider: "local", Status: arbev1.SandboxStatus_SANDBOX_STATUS_LIVE}
	f.thread("tree1", "Tree").SandboxId = "box1"
	f.tree = map[string]string{
		"src/main.go": "package main\n\nfunc main() {} // <script>alert(1)</script>\u202e\n", "a\nb\u202etxt.exe": "x", "bad\uFFFD": "", `"><script>x`: "y",
		"logo.png": "\x89PNG\x00", "long.txt": strings.Repeat("a line\r\n", 40_000), "pipe": "", "breaks": strings.Repeat("x", 5000), "empty": "",
		"javascript:alert(1)": "",
	}
	f.treeDiff = &arbev1.GetSandboxChangesResponse{Patch: []byte(somePatch), LeftOut: 2}
	return f
}

// A folder is a list, and a text a page. Everything that a file or its name may hide is visible, and nothing of it becomes part of
// the page.
func TestTheFilesOfASandboxArePages(t *testing.T) {
	t.Parallel()
	f := withTree()
	c := ada(t, f)
	_, page := c.get("/threads/tree1")
	contains(t, page, `<a href="/threads/tree1/files">Files</a>`, `<a href="/threads/tree1/diff">Changes</a>`)

	_, page = c.get("/threads/tree1/files")
	contains(t, page, `href="/threads/tree1/files?path=src" dir="auto">src/</a>`, `href="/threads/tree1/files?path=a%0Ab%E2%80%AEtxt.exe" dir="auto">a&lt;U+000A&gt;b&lt;U+202E&gt;txt.exe</a>`,
		`<span class="file-name" dir="auto">bad`, `href="/threads/tree1/files?path=%22%3E%3Cscript%3Ex" dir="auto">&#34;&gt;&lt;script&gt;x</a>`,
		`<span class="file-name" dir="auto">pipe (no regular file)</span>`, "The folder has more files.", `href="/threads/tree1/files?path=javascript%3Aalert%281%29"`)
	lacks(t, page, "<script>x", "\u202e")
	harmless(t, page)

	_, page = c.get("/threads/tree1/files?path=src/main.go")
	contains(t, page, `<a href="/threads/tree1/files">workspace</a>`, `href="/threads/tree1/files?path=src" dir="auto">src</a>`, `<span class="kn">package</span>`,
		"&lt;script&gt;alert(1)&lt;/script&gt;&lt;U+202E&gt;", "1\n2\n3\n</pre>", `href="/threads/tree1/files/download?path=src%2Fmain.go" download`)
	lacks(t, page, "<script>alert", "\u202e")
	harmless(t, page)

	_, page = c.get("/threads/tree1/files?path=long.txt")
	contains(t, page, "This is the beginning of 312.5 KiB.")
	lacks(t, page, "U+000D")
	for path, words := range map[string]string{"logo.png": "is not text", "empty": "The file is empty."} {
		_, page := c.get("/threads/tree1/files?path=" + path)
		contains(t, page, words)
		lacks(t, page, "PNG", "<img")
	}
	for _, path := range []string{"nothing", "%FF", "src/%00"} {
		res, _ := c.get("/threads/tree1/files?path=" + path)
		want(t, res, http.StatusNotFound, "")
	}
}

func TestAFileOfASandboxIsDownloaded(t *testing.T) {
	t.Parallel()
	c := ada(t, withTree())
	for path, name := range map[string]string{"logo.png": "filename=logo.png", "src%2Fmain.go": "filename=main.go", "%22%3E%3Cscript%3Ex": `filename="\"><script>x"`, "a%0Ab%E2%80%AEtxt.exe": "a<U+000A>b<U+202E>txt.exe", "empty": "filename=empty"} {
		res, content := c.get("/threads/tree1/files/download?path=" + path)
		want(t, res, http.StatusOK, "")
		if path == "logo.png" && content != "\x89PNG\x00" {
			t.Errorf("it is %q", content)
		}
		contains(t, res.Header.Get("Content-Disposition"), "attachment", name)
		if h := res.Header; h.Get("Content-Type") != "application/octet-stream" || h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox;") || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s has the headers %v", path, h)
		}
	}
	for path, status := range map[string]int{"nothing": http.StatusNotFound, "src": http.StatusBadRequest} {
		res, _ := c.get("/threads/tree1/files/download?path=" + path)
		want(t, res, status, "")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+"/threads/tree1/files/download?path=breaks", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: "arbe_session", Value: c.session})
	if res, err := http.DefaultTransport.RoundTrip(req); err == nil {
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("%d of 5000 bytes look like a whole file", len(text))
		}
	}
}

func TestTheChangesOfATreeAreAPage(t *testing.T) {
	t.Parallel()
	f := withTree()
	c := ada(t, f)
	_, page := c.get("/threads/tree1/diff")
	contains(t, page, `<span class="plus">+602</span>`, `<details class="diff-file" id="f1"`, "2 files and folders are left out", "&lt;script&gt;alert(1)&lt;/script&gt;", `href="/threads/tree1/files">Files</a>`)
	lacks(t, page, "<script>alert", "\u202e", "longer than", "Discard")
	harmless(t, page)
	_, page = c.get("/threads/tree1/diff?file=3")
	contains(t, page, `id="f3" data-file="2" open`, `<a href="/threads/tree1/diff">Show all</a>`)
	lacks(t, page, `id="f1"`)
	res, _ := c.get("/threads/tree1/diff?file=9")
	want(t, res, http.StatusNotFound, "")

	f.mu.Lock()
	f.treeDiff = &arbev1.GetSandboxChangesResponse{}
	f.mu.Unlock()
	_, page = c.get("/threads/tree1/diff")
	contains(t, page, "Nothing has changed.")
}

func TestWithoutARunningSandboxThePagesSayWhy(t *testing.T) {
	t.Parallel()
	f := withTree()
	f.tree, f.treeDiff = nil, nil
	f.says("tree1", f.me.Id, "c1", entry.Chat{Text: "hello"})
	c := ada(t, f)
	for path, words := range map[string]string{"files": "The sandbox box1 is stopped. Run a command in the thread, which starts it.", "diff": "The thread has no sandbox. Run a command in the thread, which builds one."} {
		res, page := c.get("/threads/tree1/" + path)
		want(t, res, http.StatusPreconditionFailed, "")
		contains(t, page, words, `href="/threads/tree1">Back to the thread</a>`)
	}
	for _, path := range []string{"files", "diff"} {
		if res, _ := c.get("/threads/nothing/" + path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s of no thread answers %d", path, res.StatusCode)
		}
	}
}
