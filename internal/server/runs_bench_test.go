package server_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/harnesstest"
	"github.com/arbe-dev/arbe/internal/harness/pi"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// BenchmarkDelegate measures how long it takes from a task until pi, in a sandbox, asks its model for the first time: in a
// sandbox that has pi, and in a new one, which installs it. It compares both with the same process outside any sandbox. It
// also measures how long a piece of an answer takes from the model's server, through the agent and its runner, to a follower
// of the thread.
func BenchmarkDelegate(b *testing.B) {
	models := modeltest.New(b, func(r *modeltest.Request) modeltest.Reply {
		if strings.Contains(r.Asked(), "SLOW") {
			return modeltest.Reply{Text: strings.Repeat("word ", pieces+1), Hold: true}
		}
		return modeltest.Reply{Text: "Done."}
	})
	for name, value := range map[string]string{
		"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": models.URL, "ARBE_MODEL": "anthropic/plain",
		"ARBE_SANDBOX_PRIVATE_HOSTS": "registry.npmjs.org", "ARBE_SANDBOX_MAX_MEMORY_MB": "2048",
	} {
		b.Setenv(name, value)
	}
	cfg := served(b)
	cfg.Maxima.DiskMB, cfg.Local.Grace = 8192, 2*time.Minute
	startProcess(b, cfg)
	c := client(b, cfg)
	parent, err := c.Threads.GetThread(b.Context(), &arbev1.GetThreadRequest{Id: newThread(b, c)})
	if err != nil {
		b.Fatal(err)
	}
	// A mirror of packages at a private address may have a certificate that only this machine knows.
	env, err := c.Environments.CreateEnvironment(b.Context(), &arbev1.CreateEnvironmentRequest{HouseId: parent.Thread.HouseId, Name: "agents",
		Config: &arbev1.EnvironmentConfig{Setup: "npm config set strict-ssl false"}})
	if err != nil {
		b.Fatal(err)
	}
	delegate := func(task, box string) (thread string) {
		d, err := c.Runs.Delegate(b.Context(), &arbev1.DelegateRequest{HouseId: parent.Thread.HouseId, ParentThreadId: parent.Thread.Id, Task: task,
			Agent: "@pi", EnvironmentId: env.Environment.Id, Sandbox: box})
		if err != nil {
			b.Fatal(err)
		}
		return d.Thread.Id
	}
	// asks measures the time until the model is asked.
	asks := func(begin func()) time.Duration {
		n, began := len(models.Requests()), time.Now()
		begin()
		if _, err := models.Await(b.Context(), n+1); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	var thread string
	fresh := asks(func() { thread = delegate("fix it", "") })
	awaitLong(b, c, thread, `"from":"running"`)
	got, err := c.Threads.GetThread(b.Context(), &arbev1.GetThreadRequest{Id: thread})
	if err != nil {
		b.Fatal(err)
	}
	box := got.Thread.SandboxId

	var warm, bare []time.Duration
	for b.Loop() {
		warm = append(warm, asks(func() { thread = delegate("fix it", box) }))
		awaitLong(b, c, thread, `"from":"running"`)
		var agent *exec.Cmd
		bare = append(bare, asks(func() { agent = startPi(b, models.URL) }))
		_ = agent.Process.Kill()
		_ = agent.Wait()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(median(warm).Milliseconds()), "warm-ms")
	b.ReportMetric(float64(median(bare).Milliseconds()), "bare-ms")
	b.ReportMetric(float64(median(warm))/float64(median(bare)), "warm/bare")
	b.ReportMetric(float64(fresh.Milliseconds()), "fresh-ms")

	thread = delegate("SLOW", box)
	var seen []time.Duration
	began := time.Now()
	for event, err := range c.Tail(b.Context(), thread, 0) {
		if err != nil {
			b.Fatal(err)
		}
		if d := event.GetDelta(); d == nil || !bytes.Contains(d.GetData(), []byte("word")) {
			continue
		}
		if seen = append(seen, time.Since(began)); len(seen) == pieces {
			break
		}
		if began = time.Now(); models.Step(b.Context()) != nil {
			b.Fatal("the model does not go on")
		}
	}
	seen = seen[1:] // the first includes the agent's start
	slices.Sort(seen)
	b.ReportMetric(float64(median(seen).Microseconds())/1000, "piece-ms")
	b.ReportMetric(float64(seen[len(seen)*99/100].Microseconds())/1000, "piece-p99-ms")
}

// pieces is the number of pieces of an answer that are measured.
const pieces = 200

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

// startPi starts pi outside any sandbox, as its harness does.
func startPi(b *testing.B, address string) *exec.Cmd {
	b.Helper()
	h, dir := pi.Harness{}, b.TempDir()
	job := harness.Job{Program: harnesstest.Program(b, h), Dir: filepath.Join(dir, "workspace"), Session: filepath.Join(dir, "session"),
		Model: harness.Model{Provider: "anthropic", ID: "plain", Dialect: harness.Messages, BaseURL: address, Key: "key"}}
	s, err := h.Start(job, "", "fix it")
	if err == nil {
		err = os.MkdirAll(job.Dir, 0o755)
	}
	for _, f := range s.Files {
		path := filepath.Join(job.Session, f.Path)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, f.Content, 0o755)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(s.Argv[0], s.Argv[1:]...)
	cmd.Dir, cmd.Env = job.Dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + job.Dir}
	for _, pair := range s.Env {
		if strings.Contains(pair, "=") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = in.Write(s.Input)
	}
	if err != nil {
		b.Fatal(err)
	}
	return cmd
}
