package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/harnesstest"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/runner"
)

// program is the runner's program, built once.
var program struct {
	once sync.Once
	path string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if program.path != "" {
		os.RemoveAll(filepath.Dir(program.path))
	}
	os.Exit(code)
}

func built(t *testing.T) string {
	t.Helper()
	program.once.Do(func() {
		dir, err := os.MkdirTemp("", "arbe-runner-")
		if err != nil {
			program.err = err
			return
		}
		program.path = filepath.Join(dir, "arbe-runner")
		cmd := exec.Command("go", "build", "-o", program.path, "../../cmd/arbe-runner")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("%w: %s", err, said)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return program.path
}

// world is a thread, its models, and the box in which its runs take place.
type world struct {
	*fakeDoor
	t     *testing.T
	ctx   context.Context
	model *modeltest.Server
	spec  runner.Spec
	dir   string
	env   []string
}

// newWorld makes a thread whose agent is h, in a git repository with one file. A nil script is modeltest's.
func newWorld(t *testing.T, h harness.Harness, script modeltest.Script) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	model := modeltest.New(t, script)
	w := &world{fakeDoor: newDoor(t, model.URL), t: t, ctx: ctx, model: model, dir: t.TempDir()}
	w.spec = runner.Spec{Epoch: 1, Harness: h.Info().Name, Program: harnesstest.Program(t, h), WorkDir: filepath.Join(w.dir, "workspace"),
		Session: filepath.Join(w.dir, "session"), Model: runner.Model{Provider: "test", ID: "fake-answer", BaseURL: w.url + "/api/model/test"}}
	for name, text := range map[string]string{"workspace/README.md": "hello\n", "home/.keep": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(w.dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.git("init", "-q")
	w.git("add", "-A")
	w.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
	return w
}

func (w *world) git(args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx, "git", args...)
	cmd.Dir = w.spec.WorkDir
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// running is a started runner.
type running struct {
	w      *world
	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan int
}

// start starts the runner of the next run.
func (w *world) start() *running {
	w.t.Helper()
	dir := filepath.Join(w.dir, fmt.Sprintf("run-%d", w.spec.Epoch))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	text, err := json.Marshal(w.spec)
	if err != nil {
		w.t.Fatal(err)
	}
	spec := filepath.Join(dir, "spec.json")
	if err := os.WriteFile(spec, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
	r := &running{w: w, cmd: exec.Command(built(w.t), spec), done: make(chan int, 1)}
	r.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(w.dir, "home"), "ARBE_THREAD_ID=" + w.thread, "ARBE_STREAM_URL=" + w.url + "/api/stream",
		"ARBE_STREAM_TOKEN=token-one", "ARBE_AUTHOR_ID=" + self, "ARBE_PI_MIRROR_NEXT_INDEX=0"}, w.env...)
	r.cmd.Stderr = &r.stderr
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		r.done <- r.cmd.ProcessState.ExitCode()
	}()
	w.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		if w.t.Failed() {
			w.t.Logf("the runner said: %s\nthe log is\n%s", r.stderr.String(), w.dump())
		}
	})
	return r
}

// exit waits for the runner's end and returns its exit code.
func (r *running) exit() int {
	r.w.t.Helper()
	select {
	case code := <-r.done:
		return code
	case <-r.w.ctx.Done():
		r.w.t.Fatalf("the runner does not end; the log is\n%s", r.w.dump())
		return 0
	}
}

// report is the payload of the last run_finished.
type report struct {
	Epoch                         int64
	Outcome, Error, Phase, Result string
	StopReason                    string `json:"stop_reason"`
	ExitCode                      *int   `json:"exit_code"`
	LastLines                     string `json:"last_lines"`
	Through                       int64
	PatchPath                     string `json:"patch_path"`
	PatchFiles                    int    `json:"patch_files"`
	PatchBytes                    int64  `json:"patch_bytes"`
	PatchSHA256                   string `json:"patch_sha256"`
	PatchError                    string `json:"patch_error"`
	Usage                         *struct{ Input, Output int64 }
}

// finish waits until the run has ended with exit code 0, and returns its report.
func (r *running) finish() report {
	r.w.t.Helper()
	if code := r.exit(); code != 0 {
		r.w.t.Fatalf("the runner ended with %d: %s", code, r.stderr.String())
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	last := r.w.log[len(r.w.log)-1]
	var f report
	if last.Type != "signal.thread.run_finished" || json.Unmarshal(last.Payload, &f) != nil || f.Epoch != r.w.spec.Epoch {
		r.w.t.Fatalf("the last entry is %s %s", last.Type, last.Payload)
	}
	return f
}

// types returns the kinds of the run's entries, in order, without its takes.
func (w *world) types() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kinds []string
	for _, e := range w.log {
		if strings.HasPrefix(e.ID, "run.") && e.Type != (entry.QueueTaken{}).Type() {
			kinds = append(kinds, strings.TrimPrefix(strings.TrimPrefix(e.Type, "signal.thread."), "pi."))
		}
	}
	return strings.Join(kinds, " ")
}

// again prepares the next run of the thread in the same box.
func (w *world) again(after int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spec.Epoch++
	w.spec.After = after
	w.next, w.ended = 0, false
}
