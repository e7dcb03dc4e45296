package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/harnesstest"
)

// installable is an npm registry inside sandboxes, with the packages that coding agents are installed from. Its packages have the
// names and versions of those in npm's own registry, but are small. Each executable file starts the file of the same name that
// `make agents` has installed on this machine, which the sandboxes see. So an agent's script does not install hundreds of
// megabytes, and the real agent runs.
type installable struct {
	// dirs are the host directories that sandboxes have to see.
	dirs []string
	// start is a line of shell that starts the registry in a sandbox, and makes npm use it.
	start string
}

func newInstallable(t *testing.T, agents ...harness.Harness) *installable {
	t.Helper()
	const port = 4873
	at := filepath.Join(t.TempDir(), "registry")
	for d := filepath.Dir(at); d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0o755) // the programs of sandboxes run as another user
	}
	r := &installable{dirs: []string{at}}
	for _, h := range agents {
		installed := installedHere(t, h)
		r.dirs = append(r.dirs, installed)
		var wants struct{ Dependencies map[string]string }
		readJSON(t, filepath.Join(harnesstest.Program(t, h), "package.json"), &wants)
		for folder := range wants.Dependencies {
			publish(t, at, fmt.Sprintf("http://127.0.0.1:%d", port), filepath.Join(installed, folder))
		}
	}
	r.start = fmt.Sprintf("npm config set registry http://127.0.0.1:%[1]d\nenv -i PATH=\"$PATH\" setsid python3 -m http.server -d %[2]s --bind 127.0.0.1 %[1]d </dev/null >/dev/null 2>&1 &\n"+
		"bash -c 'until (: </dev/tcp/127.0.0.1/%[1]d) 2>/dev/null; do sleep 0.05; done'\n", port, at)
	return r
}

// installedHere returns the directory of this machine in which npm has installed an agent.
func installedHere(t *testing.T, h harness.Harness) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(filepath.Join(harnesstest.Program(t, h), "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// linkedHere returns the shell commands that make an agent of this machine count as installed in a sandbox, which has to see the
// agent's directory.
func linkedHere(t *testing.T, h harness.Harness) string {
	t.Helper()
	about := h.Info()
	return fmt.Sprintf("mkdir -p ~/.arbe/agents/%[1]s && ln -s '%[2]s' ~/.arbe/agents/%[1]s/node_modules && echo %[3]s > ~/.arbe/agents/%[1]s/.installed\n",
		about.Name+"-"+about.Version, installedHere(t, h), about.Version)
}

// publish writes the files of a registry for a package that is installed in a folder of this machine.
func publish(t *testing.T, registry, url, folder string) {
	t.Helper()
	var manifest map[string]any
	readJSON(t, filepath.Join(folder, "package.json"), &manifest)
	name, version := fmt.Sprint(manifest["name"]), fmt.Sprint(manifest["version"])
	packed := pack(t, folder, manifest["type"] == "module")
	sum := sha512.Sum512(packed)
	manifest["dist"] = map[string]string{"tarball": url + "/" + name + ".tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
	text, err := json.Marshal(map[string]any{"name": name, "dist-tags": map[string]string{"latest": version}, "versions": map[string]any{version: manifest}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(registry, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{file: text, file + ".tgz": packed} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// pack returns npm's archive of a package whose executable files start those in a folder.
func pack(t *testing.T, folder string, module bool) []byte {
	t.Helper()
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	archive := tar.NewWriter(compressed)
	add := func(name string, mode int64, content string) {
		if err := archive.WriteHeader(&tar.Header{Name: "package/" + name, Mode: mode, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	manifest, err := os.ReadFile(filepath.Join(folder, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	add("package.json", 0o644, string(manifest))
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Mode()&0o111 == 0 {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if strings.HasSuffix(name, ".js") && module {
			add(name, 0o755, fmt.Sprintf("process.argv[1] = %[1]q\nawait import(%[1]q)\n", path))
		} else {
			add(name, 0o755, fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
