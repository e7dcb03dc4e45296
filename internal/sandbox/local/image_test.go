//go:build linux

package local_test

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

// program is all that the test's image can run: it shows a file, or writes one, and its environment.
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

// static compiles program for a root file system with nothing in it.
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

// publish puts an image into a registry of the test and returns its reference.
func publish(t *testing.T, layers ...[]entry) string {
	t.Helper()
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	img := v1.Image(empty.Image)
	for _, entries := range layers {
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
		})
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
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/team/image:1")
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
	ref := publish(t,
		[]entry{show, file("data/kept", 0o644, "kept"), file("data/deleted", 0o644, "x"), file("old/a", 0o644, "x"), file("changed", 0o644, "x"), file("private", 0o600, "x")},
		[]entry{
			file("data/.wh.deleted", 0, ""), file("old/.wh..wh..opq", 0, ""), file("old/b", 0o644, "new"), file("changed", 0o644, "changed"),
			{Header: tar.Header{Typeflag: tar.TypeLink, Name: "data/hard", Linkname: "data/kept"}},
			{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "data/soft", Linkname: "/data/kept"}},
		})
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir})
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
		d = newDriver(t, local.Config{Dir: dir})
		checks(t)
	})
	if err := d.Destroy(t.Context(), box); err != nil {
		t.Error(err)
	}

	t.Run("one that writes outside itself is refused", func(t *testing.T) {
		evil := publish(t, []entry{
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
