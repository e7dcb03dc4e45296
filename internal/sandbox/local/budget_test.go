//go:build linux

package local

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// promising is an image with any manifest that a test chooses.
type promising struct {
	v1.Image
	manifest v1.Manifest
}

func (p promising) Manifest() (*v1.Manifest, error) { return &p.manifest, nil }

func TestAManifestThatPromisesTooMuch(t *testing.T) {
	t.Parallel()
	for what, m := range map[string]v1.Manifest{
		"too many layers":                  {Layers: make([]v1.Descriptor, maxLayers+1)},
		"a configuration that is too big":  {Config: v1.Descriptor{Size: maxConfigBytes + 1}},
		"a configuration of unknown size":  {Config: v1.Descriptor{Size: -1}},
		"a layer that is too big":          {Layers: []v1.Descriptor{{Size: maxImageBytes + 1}}},
		"a layer of unknown size":          {Layers: []v1.Descriptor{{Size: -1}}},
		"layers that are too big together": {Layers: []v1.Descriptor{{Size: maxImageBytes}, {Size: maxImageBytes}}},
	} {
		if err := checkManifest(promising{empty.Image, m}); fault.CodeOf(err) != fault.Exhausted {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := checkManifest(empty.Image); err != nil {
		t.Errorf("an ordinary one: %v", err)
	}
}

func TestALayerThatHasTooMuch(t *testing.T) {
	t.Parallel()
	for what, headers := range map[string][]tar.Header{
		"bytes":   {{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644, Size: 2 << 20}},
		"entries": {{Typeflag: tar.TypeDir, Name: "1"}, {Typeflag: tar.TypeDir, Name: "2"}, {Typeflag: tar.TypeDir, Name: "3"}},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(w, zeros{}, h.Size); err != nil {
				t.Fatal(err)
			}
		}
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		b := &budget{bytes: 1 << 20, entries: 2, room: func() error { return nil }}
		if err := applyLayer(t.Context(), root, &archive, b); fault.CodeOf(err) != fault.Exhausted {
			t.Errorf("too many %s: %v", what, err)
		}
		root.Close()
	}
}

func TestTheDiskIsLookedAtWhileAnImageIsUnpacked(t *testing.T) {
	t.Parallel()
	full := fault.New(fault.Exhausted, "the disk is full", "get another")
	b := &budget{bytes: maxImageBytes, entries: 10, room: func() error { return full }}
	if err := b.spend(checkEvery / 2); err != nil {
		t.Error(err)
	}
	if err := b.spend(checkEvery / 2); err != error(full) {
		t.Errorf("%v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// deepLayer returns a layer with a tree of links × 200 directories. No path in it is long, because each begins with a
// link to the end of the previous one. The last entry deletes the whole tree.
func deepLayer(t *testing.T, links int) io.Reader {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(h tar.Header) {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	path := "a" + strings.Repeat("/d", 199)
	for i := range links {
		add(tar.Header{Typeflag: tar.TypeDir, Name: path, Mode: 0o755})
		link := fmt.Sprintf("l%d", i)
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: path})
		path = link + strings.Repeat("/d", 200)
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: ".wh.a"})
	return &archive
}

func TestADeepTreeInAnImageTakesNoFilesOfTheServer(t *testing.T) {
	const most = 1000
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	b := &budget{bytes: maxImageBytes, entries: maxImageEntries, room: func() error { return nil }}
	layer := deepLayer(t, 8)
	ended, opened := make(chan struct{}), make(chan int)
	go func() {
		seen := 0
		for {
			files, _ := os.ReadDir("/proc/self/fd")
			seen = max(seen, len(files))
			select {
			case <-ended:
				opened <- seen
				return
			default:
			}
		}
	}()
	err = applyLayer(t.Context(), root, layer, b)
	close(ended)
	if seen := <-opened; err != nil || seen > most {
		t.Errorf("%d files were open at once; %v", seen, err)
	}
	if _, err := root.Lstat("a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree is still there: %v", err)
	}
}

func TestAnImageDeletesNothingWithoutAName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".wh.", ".wh..", ".wh...", "d/.wh.", "d/.wh..", "d/.wh..."} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := root.MkdirAll("d/below", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := applyEntry(root, &tar.Header{Typeflag: tar.TypeReg, Name: name}, nil); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := root.Stat("d/below"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		root.Close()
	}
}

func TestAPathOfAMillionDirectoriesIsNotSearched(t *testing.T) {
	t.Parallel()
	b := bundle{root: rootfs{env: []string{"PATH=" + strings.Repeat(":", 1<<20)}}}
	if stub := b.stub(sandbox.Command{Argv: []string{"true"}}); len(stub.Paths) > maxSearched {
		t.Errorf("%d places", len(stub.Paths))
	}
}
