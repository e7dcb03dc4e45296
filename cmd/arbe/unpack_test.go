package main

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An archive comes from a sandbox, and a program there may have written it. Links may not lead out of the copy, and nothing
// is written or read through a link.
func TestAnArchiveIsUnpackedOnlyIntoItsCopy(t *testing.T) {
	t.Parallel()
	dir := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 6}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	hard := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o644}
	}
	for name, c := range map[string]struct {
		archive []tar.Header
		copied  string // what the copy then has
	}{
		"links within": {[]tar.Header{dir("dist"), dir("dist/p"), file("dist/p/f"), link("dist/l", "p/f"), link("dist/p/up", "../p"), hard("dist/h", "dist/p/f")},
			"dist dist/h dist/l dist/p dist/p/f dist/p/up"},
		"a link that leads out": {[]tar.Header{dir("dist"), link("dist/l", ".."), link("dist/m", "../mine"), link("dist/n", "/etc"), file("dist/f")}, "dist dist/f"},
		"a link below a link": {[]tar.Header{dir("dist"), dir("dist/p"), dir("dist/p/q"), link("dist/p/q/l", "../.."), link("dist/p/q/l/m", ".."), file("dist/m/mine")},
			"dist dist/p dist/p/q dist/p/q/l"},
		"a file below a link":             {[]tar.Header{dir("dist"), dir("dist/p"), link("dist/l", "p"), file("dist/l/f"), dir("dist/l/d")}, "dist dist/l dist/p"},
		"a link that goes up from a link": {[]tar.Header{dir("dist"), dir("dist/p"), link("dist/p/l", ".."), link("dist/out", "p/l/.."), file("dist/out/mine")}, "dist dist/p dist/p/l"},
		"a hard link to what is beside":   {[]tar.Header{dir("dist"), hard("dist/h", "../mine"), hard("dist/i", "mine"), hard("dist/j", "dist/../mine")}, "dist"},
		"a hard link to a link":           {[]tar.Header{dir("dist"), link("dist/l", "none"), hard("dist/h", "dist/l")}, "dist dist/l"},
		"names outside":                   {[]tar.Header{dir("dist"), file("mine"), file("../mine"), file("/mine"), file("dist/../mine")}, "dist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			if err := os.WriteFile(filepath.Join(home, "mine"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			for _, h := range c.archive {
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write([]byte("theirs")[:h.Size]); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(home)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			// An error is right for a file whose directory was left out.
			_ = (&unpacking{root: root, from: "dist", to: "dist", skipped: func(string) {}}).run(&archive)
			var copied []string
			err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
				copied = append(copied, name)
				return err
			})
			if want := append([]string{".", "mine"}, strings.Fields(c.copied)...); err != nil || !equalSets(copied, want) {
				t.Errorf("the directory has %q, want %q; %v", copied, want, err)
			}
			if text, err := os.ReadFile(filepath.Join(home, "mine")); err != nil || string(text) != "mine" {
				t.Errorf("the file beside the copy has %q, %v", text, err)
			}
		})
	}
}

func equalSets(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
