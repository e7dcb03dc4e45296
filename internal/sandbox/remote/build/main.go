// The program builds the keeper for every processor into internal/sandbox/remote, which embeds it. Run it there. With
// -check it reports whether the committed programs are current, which their sources decide, because another version of Go
// makes other bytes of them; see sandbox/local/supervisor/build.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const record = "keeper.sum"

var processors = []string{"amd64", "arm64"}

func main() {
	if err := run(len(os.Args) > 1 && os.Args[1] == "-check"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(check bool) error {
	hash, err := hashSources()
	if err != nil {
		return err
	}
	kept, _ := os.ReadFile(record) // a missing file counts as stale
	keptHash, keptVersion, _ := strings.Cut(strings.TrimSpace(string(kept)), " ")
	current := keptHash == hash
	for _, processor := range processors {
		if _, err := os.Stat(file(processor)); err != nil {
			current = false
		}
	}
	if check && !current {
		return fmt.Errorf("the keeper is not built from its sources: run make generate")
	}
	if current && (!check || keptVersion != runtime.Version()) {
		return nil
	}
	for _, processor := range processors {
		built, err := build(processor)
		if err != nil {
			return err
		}
		if !check {
			if err := os.WriteFile(file(processor), built, 0o644); err != nil {
				return err
			}
		} else if committed, err := os.ReadFile(file(processor)); err != nil || !bytes.Equal(committed, built) {
			return fmt.Errorf("%s does not match its sources and %s: delete it and run make generate", file(processor), keptVersion)
		}
	}
	if check {
		return nil
	}
	return os.WriteFile(record, []byte(hash+" "+runtime.Version()+"\n"), 0o644)
}

func file(processor string) string { return "keeper_" + processor + ".gz" }

// hashSources hashes everything that the program is made of, except the Go version.
func hashSources() (string, error) {
	sum := sha256.New()
	for _, pattern := range []string{"protocol/*.go", "keeper/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// build compiles the program and compresses it.
func build(processor string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "keeper-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "keeper")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", out, "./keeper")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+processor, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, said)
	}
	program, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
