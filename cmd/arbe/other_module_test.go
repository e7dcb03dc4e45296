package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGoClientFromAnotherModule builds a program in its own module that imports the Go client, and kills the server while the
// program follows a thread.
func TestGoClientFromAnotherModule(t *testing.T) {
	t.Parallel()
	const lines = 300
	server := startUp(t)

	program := exec.CommandContext(t.Context(), buildInAnotherModule(t, os.DirFS("testdata/othermodule")), fmt.Sprint(lines))
	program.Env = append(os.Environ(), "ARBE_HOST="+server.host, "ARBE_TOKEN="+server.token)
	var said bytes.Buffer
	program.Stderr = &said
	printed, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	last, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for s := bufio.NewScanner(printed); s.Scan(); {
		if got = append(got, s.Text()); len(got) == lines/3 {
			server.kill(t)
			last.Close() // the last line comes after the kill
			server.start(t)
		}
	}
	if err := program.Wait(); err != nil {
		t.Fatalf("the program ended with %v:\n%s", err, said.String())
	}
	for n := range lines {
		want = append(want, fmt.Sprintf("%d line %[1]d", n+1))
	}
	if !slices.Equal(got, want) {
		t.Errorf("it saw %q, want every line once and in order", got)
	}
	if !strings.Contains(said.String(), "disconnected") {
		t.Error("the program was never disconnected: the test shows nothing")
	}
}

// buildInAnotherModule copies a program into its own module, which requires the client's module and no other, and builds it.
func buildInAnotherModule(t *testing.T, program fs.FS) (binary string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, program); err != nil {
		t.Fatal(err)
	}
	client, err := filepath.Abs("../../proto")
	if err != nil {
		t.Fatal(err)
	}
	// Use the versions of the client's module, so that the build needs no network.
	module, sums := read(t, "../../proto/go.mod"), read(t, "../../proto/go.sum")
	_, requirements, _ := strings.Cut(module, "\nmodule github.com/arbe-dev/arbe/proto\n")
	module = "module example.com/other\n" + requirements +
		"\nrequire github.com/arbe-dev/arbe/proto v0.0.0\nreplace github.com/arbe-dev/arbe/proto => " + client + "\n"
	for name, text := range map[string]string{"go.mod": module, "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "program", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("a module that requires the client does not build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "program")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
