//go:build linux

package local_test

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// program is the only program in the test's image. It shows a file and its environment, or writes a file.
const program = `package main

import ("fmt"; "os")

func main() {
	if len(os.Args) == 3 {
		if err := os.WriteFile(os.Args[1], []byte(os.Args[2]), 0o644); err != nil { fmt.Println("refused"); os.Exit(1) }
		return
	}
	content, err := os.ReadFile(os.Args[1])
	fmt.Printf("%s|%v|%d|%s", content, err == nil, os.Getuid(), os.Getenv("FROM_IMAGE"))
}`

// static compiles program for an otherwise empty root file system.
func static(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "show")
	if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", binary, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// entry is one entry of a layer.
type entry struct {
	tar.Header
	content []byte
}

func file(name string, mode int64, content string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, []byte(content)}
}

// newRegistry starts a registry on this machine and returns its host:port.
func newRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// allowing allows images from registries on this machine.
func allowing(hosts ...string) local.Images { return local.Images{PrivateRegistries: hosts} }

// publish puts an image into a registry and returns its reference.
func publish(t *testing.T, host, repository string, layers ...[]entry) string {
	t.Helper()
	img := v1.Image(empty.Image)
	for i, entries := range layers {
		format := []compression.Compression{compression.GZip, compression.ZStd}[i%2]
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, e := range entries {
			e.Size = int64(len(e.content))
			if err := w.WriteHeader(&e.Header); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(e.content); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
		}, tarball.WithCompression(format))
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	img, err := mutate.Config(img, v1.Config{Env: []string{"PATH=/bin", "FROM_IMAGE=set", "HOME=/elsewhere"}})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/team/" + repository + ":1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return ref.String()
}

func TestAnImageIsTheRootFileSystem(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	show := entry{tar.Header{Typeflag: tar.TypeReg, Name: "bin/show", Mode: 0o755}, static(t)}
	host := newRegistry(t)
	ref := publish(t, host, "image",
		[]entry{show, file("data/kept", 0o644, "kept"), file("data/deleted", 0o644, "x"), file("old/a", 0o644, "x"), file("changed", 0o644, "x"), file("private", 0o600, "x")},
		[]entry{
			file("data/.wh.deleted", 0, ""), file("old/.wh..wh..opq", 0, ""), file("old/b", 0o644, "new"), file("changed", 0o644, "changed"),
			{Header: tar.Header{Typeflag: tar.TypeLink, Name: "data/hard", Linkname: "data/kept"}},
			{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "data/soft", Linkname: "/data/kept"}},
		})
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir, Images: allowing(host)})
	box := create(t, d, sandbox.Spec{ID: "imaged", Image: ref})
	run := func(argv ...string) string {
		t.Helper()
		var out bytes.Buffer
		if _, err := d.Exec(t.Context(), box, sandbox.Command{Argv: argv, Stdout: &out}); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		return out.String()
	}
	checks := func(t *testing.T) {
		for path, want := range map[string]string{
			"/data/kept": "kept|true|1000|set", "/data/hard": "kept|true|1000|set", "/data/soft": "kept|true|1000|set",
			"/old/b": "new|true|1000|set", "/changed": "changed|true|1000|set",
			"/data/deleted": "|false|1000|set", "/old/a": "|false|1000|set", "/private": "|false|1000|set", "/usr/bin/env": "|false|1000|set",
		} {
			if d.Capabilities().UserID == 0 {
				want = strings.Replace(want, "1000", "0", 1)
			}
			if got := run("show", path); got != want {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
		}
	}
	t.Run("its layers are applied one upon the other", checks)
	t.Run("it cannot be written to", func(t *testing.T) {
		if got := run("show", "/data/new", "x"); got != "refused\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("the working tree can", func(t *testing.T) {
		run("show", "/workspace/f", "written")
		if got := run("show", "f"); !strings.HasPrefix(got, "written|") {
			t.Errorf("%q", got)
		}
	})
	t.Run("a file is uploaded though it has no shell", func(t *testing.T) {
		if err := d.Upload(t.Context(), box, "up/f", 0o644, strings.NewReader("uploaded")); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if got := run("show", "up/f"); !strings.HasPrefix(got, "uploaded|") {
			t.Errorf("%q", got)
		}
	})
	t.Run("it outlives the server, and needs no registry then", func(t *testing.T) {
		closeDriver(t, d)
		d = newDriver(t, local.Config{Dir: dir, Images: allowing(host)})
		checks(t)
	})
	if err := d.Destroy(t.Context(), box); err != nil {
		t.Error(err)
	}

	t.Run("one that writes outside itself is refused", func(t *testing.T) {
		evil := publish(t, host, "evil", []entry{
			{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: filepath.Dir(outside)}},
			file("out/outside", 0o644, "x"), file("../../../../../../../../.."+outside, 0o644, "x"),
		})
		if _, err := d.Create(t.Context(), sandbox.Spec{ID: "evil", Image: evil}); err == nil {
			t.Error("no error")
		}
		if _, err := os.Stat(outside); err == nil {
			t.Error("the host's file was written")
		}
	})
	t.Run("one that does not exist leaves nothing", func(t *testing.T) {
		for image, code := range map[string]fault.Code{
			strings.TrimSuffix(ref, "image:1") + "missing:1": fault.Unavailable, "Not An Image": fault.Invalid,
		} {
			if _, err := d.Create(t.Context(), sandbox.Spec{ID: "missing", Image: image}); fault.CodeOf(err) != code {
				t.Errorf("%s: %v", image, err)
			}
		}
		if found, err := d.List(t.Context(), sandbox.Labels{}); err != nil || len(found) != 0 {
			t.Errorf("%v, %v", found, err)
		}
	})
	closeDriver(t, d)
}

// spy is a web server on this machine that records its requests.
type spy struct {
	host string

	mu    sync.Mutex
	calls []string
}

func newSpy(t *testing.T, answer http.HandlerFunc) *spy {
	t.Helper()
	s := &spy{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls = append(s.calls, r.URL.Path+" "+r.Header.Get("Authorization"))
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

func (s *spy) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func TestARegistryThatMayNotBeReached(t *testing.T) {
	inside := newSpy(t, http.NotFound)
	_, port, _ := strings.Cut(inside.host, ":")
	allowed := newSpy(t, func(w http.ResponseWriter, r *http.Request) {
		realm := "http://localhost:" + port + "/token" // the registry's library lets names pass
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2/redirect/"):
			http.Redirect(w, r, "http://"+inside.host+"/redirected", http.StatusTemporaryRedirect)
		case r.URL.Path == "/v2/":
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q,service=%q", realm, "x"))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			http.NotFound(w, r)
		}
	})
	open := newSpy(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2/redirect/") {
			http.Redirect(w, r, "http://"+inside.host+"/redirected", http.StatusTemporaryRedirect)
		}
	})
	t.Setenv("HTTP_PROXY", "http://"+inside.host)
	t.Setenv("HTTPS_PROXY", "http://"+inside.host)
	d := newDriver(t, local.Config{Dir: t.TempDir(), Images: allowing(allowed.host, open.host)})
	defer closeDriver(t, d)
	for what, image := range map[string]string{
		"on loopback":                      inside.host + "/x:1",
		"by a name of loopback":            "localhost:" + port + "/x:1",
		"on loopback in another form":      "127.9.9.9:" + port + "/x:1",
		"behind a registry's realm":        allowed.host + "/realm/x:1",
		"behind a registry's redirect":     open.host + "/redirect/x:1",
		"at the address of cloud metadata": "169.254.169.254/x:1",
	} {
		t.Run(what, func(t *testing.T) {
			_, err := d.Create(t.Context(), sandbox.Spec{ID: "refused", Image: image})
			if code := fault.CodeOf(err); code != fault.Forbidden {
				t.Errorf("%s: %s", code, fault.From(err).Detail())
			}
		})
	}
	if calls := inside.called(); len(calls) > 0 {
		t.Errorf("it was reached: %q", calls)
	}
	if len(allowed.called()) == 0 || len(open.called()) == 0 {
		t.Error("the registries that lead there were not asked: this test tests nothing")
	}
}

func TestTheRegistriesThatAnOperatorAllows(t *testing.T) {
	if _, err := local.New(t.Context(), local.Config{Dir: t.TempDir(), Images: local.Images{Registries: []string{"https://x/y"}}}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a registry that is none: %v", err)
	}
	host := newRegistry(t)
	images := allowing(host)
	images.Registries = []string{"docker.io"}
	d := newDriver(t, local.Config{Dir: t.TempDir(), Images: images})
	defer closeDriver(t, d)
	_, err := d.Create(t.Context(), sandbox.Spec{ID: "elsewhere", Image: "ghcr.io/x/y:1"})
	if fault.CodeOf(err) != fault.Forbidden || !strings.Contains(err.Error(), "ghcr.io") {
		t.Errorf("an image of another registry: %v", err)
	}
	_, err = d.Create(t.Context(), sandbox.Spec{ID: "here", Image: host + "/team/missing:1"})
	if fault.CodeOf(err) != fault.Unavailable { // the registry was asked
		t.Errorf("an image of the operator's own: %v", err)
	}
}

func TestARegistryGetsCredentialsOnlyWhenTheOperatorSaysSo(t *testing.T) {
	registry := newSpy(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	config := t.TempDir()
	auth := base64.StdEncoding.EncodeToString([]byte("operator:secret"))
	if err := os.WriteFile(filepath.Join(config, "config.json"), fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, registry.host, auth), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", config)
	sent := func(images local.Images) bool {
		d := newDriver(t, local.Config{Dir: t.TempDir(), Images: images})
		defer closeDriver(t, d)
		if _, err := d.Create(t.Context(), sandbox.Spec{ID: "anonymous", Image: registry.host + "/x:1"}); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("%v", err)
		}
		return strings.Contains(strings.Join(registry.called(), "\n"), auth)
	}
	if sent(allowing(registry.host)) {
		t.Errorf("the operator's password was sent: %q", registry.called())
	}
	trusted := allowing(registry.host)
	trusted.Credentials = []string{registry.host}
	if !sent(trusted) {
		t.Errorf("the operator's password was not sent: %q", registry.called())
	}
}

func TestAnImageThatIsTooMuch(t *testing.T) {
	host := newRegistry(t)
	d := newDriver(t, local.Config{Dir: t.TempDir(), Images: allowing(host)})
	defer closeDriver(t, d)
	for what, c := range map[string]struct {
		entry entry
		want  fault.Code
	}{
		"with a path that is too deep": {file(strings.Repeat("d/", 300)+"f", 0o644, "x"), fault.Invalid},
		"with a path that is too long": {file(strings.Repeat("dddddddddddddddddddddddddddddddddddddddd/", 120)+"f", 0o644, "x"), fault.Invalid},
	} {
		t.Run(what, func(t *testing.T) {
			ref := publish(t, host, "bomb", []entry{c.entry})
			if _, err := d.Create(t.Context(), sandbox.Spec{ID: "bomb", Image: ref}); fault.CodeOf(err) != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestImagesThatNobodyUsesAreCollected(t *testing.T) {
	host, dir := newRegistry(t), t.TempDir()
	image := func(name string) string {
		return publish(t, host, name, []entry{file(name, 0o644, strings.Repeat(name, 3<<20))}, []entry{{tar.Header{Typeflag: tar.TypeReg, Name: "bin/show", Mode: 0o755}, static(t)}})
	}
	first, second, third := image("a"), image("b"), image("c") // 5 to 6 MB each
	cfg := local.Config{Dir: dir, Images: allowing(host)}
	cfg.Images.SpaceMB = 13
	d := newDriver(t, cfg)
	kept := func() int {
		found, _ := filepath.Glob(dir + "/images/*")
		return len(found)
	}
	one := create(t, d, sandbox.Spec{ID: "one", Image: first})
	two := create(t, d, sandbox.Spec{ID: "two", Image: second})
	_, err := d.Create(t.Context(), sandbox.Spec{ID: "three", Image: third})
	if fault.CodeOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "image_space_mb") || kept() != 2 {
		t.Errorf("with all images in use, a third one: %v; %d are kept", err, kept())
	}
	// A killed server left this.
	if err := os.Mkdir(dir+"/images/unpacking-1", 0o700); err != nil {
		t.Fatal(err)
	}
	closeDriver(t, d)
	d = newDriver(t, cfg)
	if kept() != 2 {
		t.Errorf("%d are kept over a start", kept())
	}
	if _, err := d.Create(t.Context(), sandbox.Spec{ID: "three", Image: third}); fault.CodeOf(err) != fault.Exhausted {
		t.Errorf("after a start, the images that boxes use are not known: %v", err)
	}
	if err := d.Destroy(t.Context(), two); err != nil {
		t.Error(err)
	}
	create(t, d, sandbox.Spec{ID: "three", Image: third})
	if kept() != 2 {
		t.Errorf("%d are kept, want the one in use and the new one", kept())
	}
	if result, err := d.Exec(t.Context(), one, sandbox.Command{Argv: []string{"show", "/a"}}); err != nil || result.ExitCode != 0 {
		t.Errorf("the box with the image in use: %+v, %v", result, err)
	}
	for _, id := range []string{"one", "three"} {
		if err := d.Destroy(t.Context(), found(t, d, id)); err != nil {
			t.Error(err)
		}
	}
	closeDriver(t, d)
}

func TestAnImageDoesNotChooseWhatProcess1Runs(t *testing.T) {
	host, dir := newRegistry(t), t.TempDir()
	cfg := local.Config{Dir: dir, Images: allowing(host)}
	d := newDriver(t, cfg)
	show := static(t)
	link := func(name, target string) entry {
		return entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
	}
	hostile := map[string][]entry{
		"arbe-in-workspace":  {{Header: tar.Header{Typeflag: tar.TypeDir, Name: "workspace/x", Mode: 0o755}}, link(".arbe", "workspace/x")},
		"arbe-in-home":       {{Header: tar.Header{Typeflag: tar.TypeDir, Name: "home/agent", Mode: 0o755}}, link(".arbe", "home/agent")},
		"arbe-in-tmp":        {{Header: tar.Header{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o755}}, link(".arbe", "tmp")},
		"arbe-absolute":      {link(".arbe", "/workspace")},
		"arbe-of-the-image":  {file(".arbe/supervisor", 0o777, "#!/bin/show"), file(".arbe/init/x", 0o777, "#!/bin/show")},
		"workspace-is-arbe":  {link("workspace", ".arbe")},
		"home-is-arbe":       {link("home/agent", "../.arbe")},
		"homes-are-arbe":     {link("home", ".arbe")},
		"tmp-is-arbe":        {link("tmp", ".arbe")},
		"hosts-is-arbe":      {link("etc/hosts", "../.arbe/supervisor")},
		"etc-is-workspace":   {link("etc", "workspace")},
		"etc-is-arbe":        {link("etc", ".arbe")},
		"proc-is-tmp":        {link("proc", "tmp")},
		"dev-is-home":        {link("dev", "home/agent")},
		"var-is-elsewhere":   {link("var", "/workspace"), link("run", "/proc/1/root")},
		"workspace-is-proc":  {link("workspace", "proc")},
		"workspace-is-above": {link("workspace", "../../../../etc")},
	}
	check := func(t *testing.T, d *local.Driver, ref string) {
		for _, c := range []struct {
			argv []string
			want string
		}{
			{[]string{"/bin/show", "/.arbe/supervisor", "mine"}, "refused"},
			{[]string{"/bin/show", "/workspace/supervisor", "#!/bin/show"}, ""},
			{[]string{"/bin/show", "/home/agent/supervisor", "#!/bin/show"}, ""},
			{[]string{"/bin/show", "/tmp/supervisor", "#!/bin/show"}, ""},
			{[]string{"/bin/show", "/workspace/supervisor"}, "#!/bin/show|true|"},
			{[]string{"/bin/show", "/proc/1/comm"}, "supervisor\n|true|"},
		} {
			var out bytes.Buffer
			_, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: c.argv, Stdout: &out})
			if err != nil || !strings.HasPrefix(out.String(), c.want) {
				t.Errorf("%q: %q, %v; want %q", c.argv, out.String(), err, c.want)
			}
		}
	}
	for what, entries := range hostile {
		t.Run(what, func(t *testing.T) {
			image := publish(t, host, what, entries, []entry{{tar.Header{Typeflag: tar.TypeReg, Name: "bin/show", Mode: 0o755}, show}})
			check(t, d, create(t, d, sandbox.Spec{ID: what, Image: image}))
		})
	}
	closeDriver(t, d)
	// An older server unpacked the image without this program.
	programs, _ := filepath.Glob(dir + "/images/*/rootfs/.arbe/supervisor")
	for _, program := range programs {
		if err := os.Remove(program); err != nil {
			t.Fatal(err)
		}
	}
	d = newDriver(t, cfg) // starts every box over the files that were written in it
	defer closeDriver(t, d)
	for what := range hostile {
		t.Run(what+"-started-again", func(t *testing.T) {
			ref := found(t, d, what)
			check(t, d, ref)
			if err := d.Destroy(t.Context(), ref); err != nil {
				t.Error(err)
			}
		})
	}
}
