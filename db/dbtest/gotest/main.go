// Command gotest runs go test with one Postgres for all packages, prints the output of failed tests, and lists the
// slowest tests.
//
//	go run ./db/dbtest/gotest -race ./internal/stream/... -- ./internal/rpc ./web
//
// Each group of arguments up to -- is one go test without vet. The groups run one after another. The tests' temporary
// directory is in memory if there is room for it.
// ARBE_TEST_DATABASE_URL names another Postgres, as for [dbtest]. It exits with 1 if a test failed.
//
// [dbtest]: ..
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

// listed is the number of slowest tests to list.
const listed = 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, fault.From(err).Detail())
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (ok bool, err error) {
	if os.Getenv("ARBE_TEST_DATABASE_URL") == "" {
		url, remove, err := dbtest.Launch(ctx)
		if err != nil {
			return false, err
		}
		defer remove()
		os.Setenv("ARBE_TEST_DATABASE_URL", url)
	}
	temporary, remove, err := dbtest.TempDir()
	if err != nil {
		return false, err
	}
	defer remove()
	r := report{out: os.Stdout, said: map[string]*bytes.Buffer{}}
	ok = true
	for group := range splitGroups(args) {
		passed, err := goTest(ctx, group, temporary, &r)
		if err != nil {
			return false, err
		}
		ok = ok && passed
	}
	r.printSlowest()
	return ok, nil
}

// splitGroups yields the arguments between the words "--".
func splitGroups(args []string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for len(args) > 0 {
			n := slices.Index(args, "--")
			if n < 0 {
				n = len(args)
			}
			if n > 0 && !yield(args[:n]) {
				return
			}
			args = args[min(n+1, len(args)):]
		}
	}
}

// goTest runs one go test and reports whether all tests passed. It does not vet: make check does that once, and here
// the builds with and without the race detector would each be vetted. Only the tests get the temporary directory, because
// what go itself writes there is large, and only the compiler collects garbage less often, which saves a fifth of its time.
func goTest(ctx context.Context, args []string, temporary string, r *report) (passed bool, err error) {
	start, env := "env", os.Environ()
	if os.Getenv("GOGC") == "" {
		start, env = "env -u GOGC", append(env, "GOGC=400")
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-vet=off", "-exec", start + " TMPDIR=" + temporary}, args...)...)
	cmd.Env = env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that tests remove their files
	cmd.WaitDelay = time.Minute
	cmd.Stderr = os.Stderr
	if slices.Contains(args, "-race") {
		// The race detector needs C. By default, each of its processes sleeps for a second before it exits.
		cmd.Env = append(env, "CGO_ENABLED=1", "GORACE=atexit_sleep_ms=0")
	}
	events, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	if err := r.read(events); err != nil {
		return false, err
	}
	return cmd.Wait() == nil, nil
}

// event is a line of go test -json.
type event struct {
	Action      string
	Package     string
	ImportPath  string // the package that was compiled, for the actions build-output and build-fail
	Test        string
	Elapsed     float64 // in seconds
	Output      string
	FailedBuild string
}

// report collects the output of tests, and prints that of failed ones.
type report struct {
	out  io.Writer
	said map[string]*bytes.Buffer // by package and test
	took []event                  // the tests that ended, without subtests
}

func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				r.out.Write(line) // output of go itself
			} else {
				r.add(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// raceReport begins a report of the race detector. It stands in the output of any test that runs then, also of one that passes.
const raceReport = "WARNING: DATA RACE"

func (r *report) add(e event) {
	key := cmp.Or(e.Package, e.ImportPath) + " " + e.Test
	switch e.Action {
	case "output":
		if r.said[key] == nil {
			r.said[key] = &bytes.Buffer{}
		}
		r.said[key].WriteString(e.Output)
	case "build-output":
		io.WriteString(r.out, e.Output)
	case "pass", "fail", "skip":
		switch {
		case e.Action == "fail" && e.Test == "":
			r.printUnfinished(e.Package)
		case r.said[key] != nil && (e.Action == "fail" || bytes.Contains(r.said[key].Bytes(), []byte(raceReport))):
			r.said[key].WriteTo(r.out)
		case e.Test == "" && e.Action == "pass":
			fmt.Fprintf(r.out, "ok\t%s\t%.1fs\n", e.Package, e.Elapsed)
		}
		delete(r.said, key)
		if e.Test != "" && !strings.Contains(e.Test, "/") {
			r.took = append(r.took, e)
		}
	}
}

// printUnfinished prints the output of a failed package and of the tests that it did not finish, such as a panic or
// the goroutines of a test that took too long.
func (r *report) printUnfinished(pkg string) {
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(r.said))) { // the package's own output comes last
		if strings.HasPrefix(key, pkg+" ") {
			r.said[key].WriteTo(r.out)
			delete(r.said, key)
		}
	}
}

func (r *report) printSlowest() {
	slices.SortFunc(r.took, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	fmt.Fprintf(r.out, "\nthe slowest of %d tests:\n", len(r.took))
	for _, e := range r.took[:min(listed, len(r.took))] {
		fmt.Fprintf(r.out, "%7.1fs  %s  %s\n", e.Elapsed, strings.TrimPrefix(e.Package, "github.com/arbe-dev/arbe/"), e.Test)
	}
}
