package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkProgram measures the built program as a shell sees it, from its start to its end. It runs arbe version, which only
// starts the program, and arbe x true in a thread with a running sandbox. Build the program first, as make bench does.
func BenchmarkProgram(b *testing.B) {
	program, err := filepath.Abs("../../bin/arbe")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		b.Skip("there is no bin/arbe: run make build")
	}
	server := startUp(b)
	arbe := func(args ...string) (string, time.Duration) {
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
	thread, _ := arbe("thread", "create", "--quiet")
	arbe("x", "-t", thread, "true") // makes the sandbox
	var starts, runs []float64
	for b.Loop() {
		_, start := arbe("version")
		_, run := arbe("x", "-t", thread, "true")
		starts, runs = append(starts, start.Seconds()*1000), append(runs, run.Seconds()*1000)
	}
	slices.Sort(starts)
	slices.Sort(runs)
	b.ReportMetric(starts[len(starts)/2], "start-ms")
	b.ReportMetric(runs[len(runs)/2], "x-ms")
	b.ReportMetric(0, "ns/op") // meaningless over both
}
