//go:build linux

package sandboxtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// BareRunc makes a runc bundle for the machine's own programs, without using any driver. Benchmarks compare with it.
func BareRunc(b testing.TB) (bundle string) {
	b.Helper()
	bundle = b.TempDir()
	root := filepath.Join(bundle, "rootfs")
	for _, dir := range []string{"usr", "proc", "dev", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for _, link := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := os.Symlink("usr/"+link, filepath.Join(root, link)); err != nil {
			b.Fatal(err)
		}
	}
	Runc(b, "spec", "--bundle", bundle)
	name := filepath.Join(bundle, "config.json")
	text, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		b.Fatal(err)
	}
	spec.Root.Readonly = false
	spec.Process.Terminal, spec.Process.Args = false, []string{"/bin/sleep", "1000"}
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/usr", Type: "bind", Source: "/usr", Options: []string{"rbind", "ro"}})
	if text, err = json.Marshal(spec); err == nil {
		err = os.WriteFile(name, text, 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
	return bundle
}

// Runc runs runc, which must succeed.
func Runc(b testing.TB, args ...string) {
	b.Helper()
	cmd := exec.Command("runc", args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	if args[0] == "create" { // the container's process 1 would keep the pipe open
		cmd.Stderr = nil
	}
	if err := cmd.Run(); err != nil {
		b.Fatalf("runc %s: %v: %s", args[0], err, complaint.String())
	}
}
