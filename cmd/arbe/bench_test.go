//go:build linux

package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

// built returns a function that runs the built program against a server, and returns its output and how long it took. Build the
// program first, as make bench does.
func built(b *testing.B, server *upServer) func(args ...string) (string, time.Duration) {
	b.Helper()
	program, err := filepath.Abs("../../bin/arbe")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		b.Skip("there is no bin/arbe: run make build")
	}
	return func(args ...string) (string, time.Duration) {
		cmd := exec.CommandContext(b.Context(), program, args...)
		cmd.Env = append(os.Environ(), "ARBE_HOST="+server.host, "ARBE_TOKEN="+server.token)
		var said bytes.Buffer
		cmd.Stderr = &said
		begin := time.Now()
		out, err := cmd.Output()
		took := time.Since(begin)
		if err != nil {
			b.Fatalf("arbe %s: %v: %s", strings.Join(args, " "), err, said.Bytes())
		}
		return strings.TrimSpace(string(out)), took
	}
}

// bareContainer starts a container of bare runc, and returns its id.
func bareContainer(b *testing.B) string {
	b.Helper()
	if _, err := exec.LookPath("runc"); err != nil || os.Getuid() != 0 {
		b.Skip("the benchmark compares with runc, as root")
	}
	bundle, id := sandboxtest.BareRunc(b), fmt.Sprintf("bare-%d", os.Getpid())
	sandboxtest.Runc(b, "create", "--bundle", bundle, id)
	b.Cleanup(func() { sandboxtest.Runc(b, "delete", "--force", id) })
	sandboxtest.Runc(b, "start", id)
	return id
}

// BenchmarkProgram measures the built program as a shell sees it, from its start to its end. It runs arbe version, which only
// starts the program, and arbe x true in a thread with a running sandbox, beside runc exec true.
func BenchmarkProgram(b *testing.B) {
	server := startUp(b)
	arbe, bare := built(b, server), bareContainer(b)
	thread, _ := arbe("thread", "create", "--quiet")
	arbe("x", "-t", thread, "true") // makes the sandbox
	var starts, runs, execs []float64
	for b.Loop() {
		_, start := arbe("version")
		_, run := arbe("x", "-t", thread, "true")
		begin := time.Now()
		sandboxtest.Runc(b, "exec", bare, "/bin/true")
		starts, runs, execs = append(starts, start.Seconds()*1000), append(runs, run.Seconds()*1000), append(execs, time.Since(begin).Seconds()*1000)
	}
	b.ReportMetric(middle(starts), "start-ms")
	b.ReportMetric(middle(runs), "x-ms")
	b.ReportMetric(middle(execs), "runc-exec-ms")
	b.ReportMetric(middle(runs)/middle(execs), "x/runc-exec")
	b.ReportMetric(0, "ns/op") // meaningless over all of them
}

func middle(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkCopy copies a file of 1 GB to a sandbox and back with arbe cp, beside cat through runc exec.
func BenchmarkCopy(b *testing.B) {
	const size = 1 << 30
	server := startUp(b, "ARBE_SANDBOX_MAX_DISK_MB=4096")
	arbe, bare := built(b, server), bareContainer(b)
	thread, _ := arbe("thread", "create", "--quiet")
	arbe("x", "-t", thread, "true")
	dir := b.TempDir()
	file, back := filepath.Join(dir, "file"), filepath.Join(dir, "back")
	piece := make([]byte, 1<<20)
	_, _ = rand.Read(piece) // never fails
	if err := os.WriteFile(file, bytes.Repeat(piece, size/len(piece)), 0o644); err != nil {
		b.Fatal(err)
	}
	cat := func(from, to, script string) float64 {
		cmd := exec.CommandContext(b.Context(), "runc", "exec", bare, "/bin/sh", "-c", script)
		var err error
		if from != "" {
			var in *os.File
			if in, err = os.Open(from); err == nil {
				cmd.Stdin = in
				defer in.Close()
			}
		}
		if to != "" && err == nil {
			var out *os.File
			if out, err = os.Create(to); err == nil {
				cmd.Stdout = out
				defer out.Close()
			}
		}
		begin := time.Now()
		if err == nil {
			err = cmd.Run()
		}
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(begin).Seconds()
	}
	var in, out, catIn, catOut []float64
	for b.Loop() {
		_, took := arbe("cp", file, thread+":file")
		in, catIn = append(in, took.Seconds()), append(catIn, cat(file, "", "cat > /tmp/file"))
		_, took = arbe("cp", thread+":file", back)
		out, catOut = append(out, took.Seconds()), append(catOut, cat("", back+"-cat", "cat /tmp/file"))
		if info, err := os.Stat(back); err != nil || info.Size() != size {
			b.Fatal(info, err)
		}
	}
	b.ReportMetric(size/(1<<20)/middle(in), "to-MB/s")
	b.ReportMetric(size/(1<<20)/middle(out), "from-MB/s")
	b.ReportMetric(middle(in)/middle(catIn), "to/cat")
	b.ReportMetric(middle(out)/middle(catOut), "from/cat")
	b.ReportMetric(0, "ns/op")
}
