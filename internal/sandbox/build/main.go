// The program builds a program that runs in sandboxes, for every processor, into the current directory, for a package there
// to embed:
//
//	go run ./internal/sandbox/build [-check] [-small] [-later PACKAGE,…] NAME PACKAGE
//
// writes NAME_amd64.zst, NAME_arm64.zst and NAME.sum. With -check it reports whether the committed programs are current.
// With -small, no function is inlined, which makes the program smaller by a fifteenth. Changes of comments, and of the packages that -later names, do not make a program stale: its next build includes them.
//
// With the same version of Go, builds are identical byte for byte. Whether the programs are current is therefore decided by
// hashes of the sources, which are stored beside them: another version of Go neither makes them stale nor changes them. With
// the version that built them, -check also compares the bytes.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

var processors = []string{"amd64", "arm64"}

func main() {
	check := flag.Bool("check", false, "report whether the programs are current")
	small := flag.Bool("small", false, "inline no functions")
	later := flag.String("later", "", "`packages` whose changes can wait, separated by commas")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: build [-check] [-small] [-later PACKAGE,…] NAME PACKAGE")
		os.Exit(2)
	}
	p := program{name: flag.Arg(0), pkg: flag.Arg(1), later: strings.Split(*later, ","), small: *small}
	if err := p.run(*check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// program is the program to build.
type program struct {
	name, pkg string
	later     []string
	small     bool
}

// hashes of the sources: of all their text, and of the code whose changes make the program stale.
type hashes struct{ all, urgent string }

func (p program) run(check bool) error {
	now, err := p.hashSources()
	if err != nil {
		return err
	}
	kept, _ := os.ReadFile(p.record()) // a missing file counts as stale
	var then hashes
	var version string
	_, _ = fmt.Sscan(string(kept), &then.urgent, &then.all, &version)
	current := then.urgent == now.urgent
	for _, processor := range processors {
		if _, err := os.Stat(p.file(processor)); err != nil {
			current = false
		}
	}
	if check && !current {
		return fmt.Errorf("%s is not built from its sources: run make generate", p.pkg)
	}
	if current && (!check || version != runtime.Version() || then != now) {
		return nil
	}
	for _, processor := range processors {
		built, err := p.build(processor)
		if err != nil {
			return err
		}
		if !check {
			if err := os.WriteFile(p.file(processor), built, 0o644); err != nil {
				return err
			}
		} else if committed, err := os.ReadFile(p.file(processor)); err != nil || !bytes.Equal(committed, built) {
			return fmt.Errorf("%s does not match its sources and %s: delete it and run make generate", p.file(processor), version)
		}
	}
	if check {
		return nil
	}
	return os.WriteFile(p.record(), fmt.Appendln(nil, now.urgent, now.all, runtime.Version()), 0o644)
}

func (p program) record() string { return p.name + ".sum" }

func (p program) file(processor string) string { return p.name + "_" + processor + ".zst" }

// listed is a package as go list describes it.
type listed struct {
	Dir, ImportPath             string
	Standard                    bool
	GoFiles, SFiles, EmbedFiles []string
	Module                      struct {
		Path, Version string
		Main          bool
	}
}

// hashSources hashes everything that goes into the program on any processor, except the Go version: the files of this
// module's packages, without tests, and the versions of other modules.
func (p program) hashSources() (h hashes, err error) {
	var all, urgent []string
	for _, processor := range processors {
		cmd := command(processor, "list", "-deps", "-json=Dir,ImportPath,Standard,GoFiles,SFiles,EmbedFiles,Module", p.pkg)
		out, err := cmd.Output()
		if err != nil {
			return h, fmt.Errorf("go list: %w", err)
		}
		for from := json.NewDecoder(bytes.NewReader(out)); ; {
			var l listed
			if err := from.Decode(&l); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return h, err
			}
			texts, code, err := l.sources()
			if err != nil {
				return h, err
			}
			all = append(all, texts...)
			if path, _ := strings.CutPrefix(l.ImportPath, l.Module.Path+"/"); !slices.Contains(p.later, path) {
				urgent = append(urgent, code...)
			}
		}
	}
	return hashes{all: hash(all), urgent: hash(urgent)}, nil
}

func hash(parts []string) string {
	slices.Sort(parts)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(slices.Compact(parts), "\n"))))
}

// sources describes the sources of a package: the text of its files, and their code without comments.
func (l listed) sources() (texts, code []string, err error) {
	switch {
	case l.Standard:
		return nil, nil, nil
	case !l.Module.Main:
		module := []string{l.Module.Path + " " + l.Module.Version}
		return module, module, nil
	}
	for _, name := range slices.Concat(l.GoFiles, l.SFiles, l.EmbedFiles) {
		text, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil {
			return nil, nil, err
		}
		part := func(text []byte) string { return fmt.Sprintf("%s/%s %x", l.ImportPath, name, sha256.Sum256(text)) }
		texts = append(texts, part(text))
		if slices.Contains(l.GoFiles, name) {
			text = withoutComments(text)
		}
		code = append(code, part(text))
	}
	return texts, code, nil
}

// withoutComments lists the tokens of a Go file. It keeps comments that are directives, such as //go:embed.
func withoutComments(text []byte) []byte {
	var tokens []byte
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", files.Base(), len(text)), text, nil, scanner.ScanComments)
	for {
		switch _, kind, literal := s.Scan(); {
		case kind == token.EOF:
			return tokens
		case kind != token.COMMENT || strings.HasPrefix(literal, "//go:"):
			tokens = fmt.Appendln(tokens, kind, literal)
		}
	}
}

// command is the go command for a processor, whatever the environment says.
func command(processor string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+processor, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	return cmd
}

// build compiles the program and compresses it.
func (p program) build(processor string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "program")
	flags := ""
	if p.small {
		flags = "all=-l"
	}
	cmd := command(processor, "build", "-trimpath", "-buildvcs=false", "-gcflags="+flags, "-ldflags", "-s -w -buildid=", "-o", out, p.pkg)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, said)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	// One goroutine, so that the same program always has the same bytes.
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return w.EncodeAll(text, nil), nil
}
