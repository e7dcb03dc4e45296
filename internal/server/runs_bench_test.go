package server_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
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
	"github.com/arbe-dev/arbe/internal/server"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// BenchmarkDelegate measures how long it takes from a task until pi, in a sandbox, asks its model for the first time: in a
// sandbox that has pi, and in a new one, which installs it. It compares both with the same process outside any sandbox. It
// also measures how long a piece of an answer takes from the model's server, through the agent and its runner, to a follower
// of the thread and to its page.
func BenchmarkDelegate(b *testing.B) {
	models := modeltest.New(b, func(r *modeltest.Request) modeltest.Reply {
		if strings.Contains(r.Asked(), "SLOW") {
			return modeltest.Reply{Text: words(pieces + 1), Hold: true}
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
	b.ReportMetric(float64(fresh)/float64(median(bare)), "fresh/bare")

	step := func() time.Time {
		began := time.Now()
		if models.Step(b.Context()) != nil {
			b.Fatal("the model does not go on")
		}
		return began
	}
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
		seen = append(seen, time.Since(began))
		if began = step(); len(seen) == pieces {
			break
		}
	}
	reportPieces(b, "piece", seen)
	rest, stop := context.WithCancel(b.Context())
	go func() { // what is left of the answer
		for models.Step(rest) == nil {
		}
	}()
	awaitLong(b, c, thread, `"from":"running"`)
	stop()

	seen = nil
	page := openPage(b, cfg, delegate("SLOW", box))
	began = time.Now()
	for n := range pieces {
		if err := page.await(word(n)); err != nil {
			b.Fatal(err)
		}
		seen = append(seen, time.Since(began))
		began = step()
	}
	reportPieces(b, "page", seen)
}

// reportPieces reports how long pieces took. The first includes the agent's start.
func reportPieces(b *testing.B, name string, seen []time.Duration) {
	slices.Sort(seen[1:])
	b.ReportMetric(float64(median(seen[1:]).Microseconds())/1000, name+"-ms")
	b.ReportMetric(float64(seen[len(seen)*99/100].Microseconds())/1000, name+"-p99-ms")
}

// word returns a word of the answer, and words its first n.
func word(n int) string { return fmt.Sprintf("word-%d-", n) }
func words(n int) (text string) {
	for i := range n {
		text += word(i) + " "
	}
	return strings.TrimSpace(text)
}

// livePage is the stream of events of a thread's page.
type livePage struct {
	lines *bufio.Scanner
}

// openPage opens the live stream of a thread's page, as a browser does.
func openPage(b *testing.B, cfg server.Config, thread string) livePage {
	b.Helper()
	host, c := login(b, cfg).Host, client(b, cfg)
	link, err := c.Agents.CreateLoginLink(b.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		b.Fatal(err)
	}
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	in, err := browser.PostForm(host+"/login", url.Values{"token": {strings.TrimPrefix(link.Path, "/login?token=")}})
	if err != nil {
		b.Fatal(err)
	}
	in.Body.Close()
	res, err := browser.Get(host + "/live?t=thread/" + thread + "/0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		b.Fatal(res.Status)
	}
	p := livePage{bufio.NewScanner(res.Body)}
	p.lines.Buffer(nil, 16<<20)
	return p
}

// await waits until the page shows a word.
func (p livePage) await(word string) error {
	for p.lines.Scan() {
		if bytes.Contains(p.lines.Bytes(), []byte(word)) {
			return nil
		}
	}
	return cmp.Or(p.lines.Err(), io.ErrUnexpectedEOF)
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
