package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness/pi"
	"github.com/arbe-dev/arbe/internal/server"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// counter is the setup of an environment in which another program replaces pi and speaks pi's protocol. It says "step 1",
// "step 2" and so on until a file named go exists, and then "done after" and the number of steps.
const counter = `set -e
dir=$HOME/.arbe/agents/pi-` + pi.Version + `
mkdir -p $dir/node_modules/.bin
echo ` + pi.Version + ` > $dir/.installed
cat > $dir/node_modules/.bin/node <<'END'
#!/bin/sh
says() {
	printf '{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"%s"}],"stopReason":"stop","usage":{}}}\n' "$1"
}
read -r prompt
echo '{"type":"response","command":"prompt","success":true}'
echo '{"type":"agent_start"}'
n=0
until test -e /workspace/go-$ARBE_THREAD_ID; do
	n=$((n+1))
	says "step $n"
	echo $n > /workspace/steps-$ARBE_THREAD_ID
	sleep 0.1
done
says "done after $n"
echo '{"type":"agent_settled"}'
cat > /dev/null
END
chmod +x $dir/node_modules/.bin/node
`

// counters are runs of the counter on a server that the tests kill.
type counters struct {
	t      *testing.T
	cfg    server.Config
	server *exec.Cmd
	parent *arbev1.Thread
	env    string
}

func newCounters(t *testing.T) *counters {
	t.Helper()
	return newCountersIn(t, settings(t), &arbev1.EnvironmentConfig{Setup: counter}) // with a Postgres of its own, which dies
}

// newCountersIn returns counters on a server with these settings, in an environment whose setup includes counter.
func newCountersIn(t *testing.T, cfg server.Config, config *arbev1.EnvironmentConfig) *counters {
	t.Helper()
	t.Setenv("ANTHROPIC_API_KEY", "sk-test") // the counter asks no model, but a run needs one
	t.Setenv("ARBE_MODEL", "anthropic/plain")
	cfg.Local.Grace = 2 * time.Minute
	c := &counters{t: t, cfg: cfg, server: startProcess(t, cfg)}
	got, err := c.client().Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: newThread(t, c.client())})
	if err != nil {
		t.Fatal(err)
	}
	c.parent = got.Thread
	env, err := c.client().Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: c.parent.HouseId, Name: "counter", Config: config})
	if err != nil {
		t.Fatal(err)
	}
	c.env = env.Environment.Id
	return c
}

func (c *counters) client() *arbe.Client { return client(c.t, c.cfg) }

// counting is a run that has begun to count.
type counting struct {
	*counters
	t      *testing.T
	thread string
	runner int
}

// count begins a run in a sandbox, or in a new one, and waits until it counts.
func (c *counters) count(t *testing.T, sandbox string) *counting {
	t.Helper()
	made, err := c.client().Runs.Delegate(t.Context(), &arbev1.DelegateRequest{HouseId: c.parent.HouseId, ParentThreadId: c.parent.Id, Task: "Count.", EnvironmentId: c.env, Sandbox: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	r := &counting{counters: c, t: t, thread: made.Thread.Id}
	await(t, c.client(), r.thread, func(e *arbev1.TailResponse) bool {
		if e.GetEntry().GetType() == (entry.StatusChanged{}).Type() && strings.Contains(e.GetEntry().Payload, `"failed"`) {
			t.Fatalf("the run failed: %s", r.words())
		}
		return strings.Contains(e.GetEntry().GetPayload(), "step 1")
	})
	r.find()
	return r
}

// find finds the runner. For a moment there may be two processes with its command line: a child that has not yet begun its
// program, or the runner of the run before, which is ending.
func (r *counting) find() {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		all := r.processes()
		runners := slices.DeleteFunc(slices.Clone(all), func(pid int) bool {
			line := commandLine(pid)
			return len(line) != 2 || !strings.Contains(line[0], "/.arbe/runner-")
		})
		if len(runners) == 1 {
			r.runner = runners[0]
			return
		} else if time.Now().After(deadline) {
			r.t.Fatalf("the runners are %v among %v", runners, all)
		}
	}
}

// processes returns the process ids of the run on this machine.
func (r *counting) processes() (list []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("ARBE_THREAD_ID="+r.thread)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			list = append(list, pid)
		}
	}
	return list
}

func commandLine(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// stat returns the kernel's data on a process.
func stat(pid int, name string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, name+":"); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// agent returns the process of the agent, which is the oldest child of the runner. Commands that leave their group become
// children of the runner later.
func (r *counting) agent() int {
	r.t.Helper()
	children := r.agents()
	if len(children) == 0 {
		r.t.Fatal("the agent is not found")
	}
	return slices.Min(children)
}

// first returns the first process of the run's sandbox. When it ends, all others end.
func (r *counting) first() int {
	r.t.Helper()
	for pid := r.runner; pid > 1; pid, _ = strconv.Atoi(stat(pid, "PPid")) {
		if ids := strings.Fields(stat(pid, "NSpid")); len(ids) > 1 && ids[len(ids)-1] == "1" {
			return pid
		}
	}
	r.t.Fatal("the sandbox has no first process")
	return 0
}

// file returns the path of a file in the run's working tree.
func (r *counting) file(name string) string {
	return fmt.Sprintf("/proc/%d/root/workspace/%s-%s", r.runner, name, r.thread)
}

// steps waits until the counter has taken some more steps.
func (r *counting) steps(more int) {
	r.t.Helper()
	first := r.step()
	for deadline := time.Now().Add(3 * time.Minute); r.step() < first+more; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("it does not go on from step %d", r.step())
		}
	}
}

// step returns the number of steps that the counter has taken.
func (r *counting) step() int {
	text, _ := os.ReadFile(r.file("steps"))
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// goes lets the counter finish.
func (r *counting) goes() {
	r.t.Helper()
	if err := os.WriteFile(r.file("go"), nil, 0o666); err != nil {
		r.t.Fatal(err)
	}
}

func (r *counting) entries(thread string) []*arbev1.Entry {
	r.t.Helper()
	list, err := r.client().Entries.List(r.t.Context(), &arbev1.ListRequest{ThreadId: thread, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	return list.Entries
}

// words returns the log of the run as text.
func (r *counting) words() string {
	var b strings.Builder
	for _, e := range r.entries(r.thread) {
		fmt.Fprintln(&b, e.Seq, e.Id, e.Type, e.Payload)
	}
	return b.String()
}

// ends waits until the run has ended, and checks that nothing is lost: the log has every step once and in order, the row and
// the log agree, and the parent thread was told once. It returns the entry with the reason.
func (r *counting) ends(status string) *arbev1.Entry {
	r.t.Helper()
	await(r.t, r.client(), r.thread, func(e *arbev1.TailResponse) bool {
		return e.GetEntry().GetType() == (entry.StatusChanged{}).Type() && strings.Contains(e.GetEntry().Payload, `"from":"running"`)
	})
	got, err := r.client().Threads.GetThread(r.t.Context(), &arbev1.GetThreadRequest{Id: r.thread})
	if err != nil || arbev1.Word(got.Thread.Status) != status {
		r.t.Errorf("the row says %s (%v), want %s:\n%s", got.GetThread().GetStatus(), err, status, r.words())
	}
	var why, last *arbev1.Entry
	next, flips := 1, 0
	for _, e := range r.entries(r.thread) {
		last = e
		switch p, _ := entry.Decode(entry.Entry{Type: e.Type, Payload: json.RawMessage(e.Payload)}); p := p.(type) {
		case entry.PiAssistant:
			if said := p.Text(); said != fmt.Sprint("step ", next) && said != fmt.Sprint("done after ", next-1) {
				r.t.Fatalf("entry %d says %q where step %d comes next:\n%s", e.Seq, said, next, r.words())
			}
			next++
		case entry.StatusChanged:
			flips++
		case entry.RunFinished, entry.PiFailed, entry.SessionOrphaned:
			why = e
		}
	}
	if flips != 2 || last.Type != (entry.StatusChanged{}).Type() || decode[entry.StatusChanged](r.t, last).To != status {
		r.t.Errorf("its log ends with %s %s, after %d changes of status:\n%s", last.Type, last.Payload, flips, r.words())
	}
	told, said := 0, 0
	for _, e := range r.entries(r.parent.Id) {
		switch p, _ := entry.Decode(entry.Entry{Type: e.Type, Payload: json.RawMessage(e.Payload)}); p := p.(type) {
		case entry.ChildFinished:
			if p.ChildThreadID == r.thread && p.Outcome == status {
				told++
			}
		case entry.Chat:
			if p.Run != nil && p.Run.ThreadID == r.thread {
				said++
			}
		}
	}
	if told != 1 || said != 1 {
		r.t.Errorf("the thread above was told %d times that it is %s, and the result %d times", told, status, said)
	}
	return why
}

// dies kills a process of the run.
func dies(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Whatever dies, the thread says so, and everything that does not depend on it continues.
func TestNoRunIsLostWhateverDies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it looks into sandboxes from outside, as root")
	}
	c := newCounters(t)
	box := c.count(t, "")
	box.goes()
	box.ends("completed")
	first, err := c.client().Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: box.thread})
	if err != nil {
		t.Fatal(err)
	}
	shared := first.Thread.SandboxId

	t.Run("the agent is killed: the run failed, and says by what", func(t *testing.T) {
		r := c.count(t, shared)
		dies(t, r.agent())
		if why := decode[entry.PiFailed](t, r.ends("failed")); !strings.Contains(why.Error, "signal 9") || why.Phase != entry.PhaseExecution {
			t.Errorf("it says %+v", why)
		}
	})
	t.Run("the runner is killed: another one reports at once, and its agent ends", func(t *testing.T) {
		r := c.count(t, shared)
		agent := r.agent()
		began := time.Now()
		dies(t, r.runner)
		if why := decode[entry.PiFailed](t, r.ends("failed")); !strings.Contains(why.Error, "the runner was killed") || why.Phase != entry.PhaseObservation {
			t.Errorf("it says %+v", why)
		}
		if took := time.Since(began); took > time.Minute { // a runner's silence would tell it later
			t.Errorf("it took %s", took)
		}
		for deadline := time.Now().Add(2 * time.Minute); len(commandLine(agent)) > 1; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("its agent goes on: %v", commandLine(agent))
			}
		}
	})
	t.Run("the server is killed: the run goes on, also while there is none", func(t *testing.T) {
		r := c.count(t, shared)
		c.server.Process.Kill()
		c.server.Wait()
		r.steps(30)
		c.server = startProcess(c.t, c.cfg)
		r.steps(5)
		r.goes()
		r.ends("completed")
	})
	t.Run("the run ends while there is no server: its report comes when there is one", func(t *testing.T) {
		r := c.count(t, shared)
		c.server.Process.Kill()
		c.server.Wait()
		r.goes()
		for deadline := time.Now().Add(time.Minute); len(r.agents()) > 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the agent does not end")
			}
		}
		c.server = startProcess(c.t, c.cfg)
		r.ends("completed")
	})
	t.Run("Postgres is killed: the run goes on", func(t *testing.T) {
		r := c.count(t, shared)
		text, err := os.ReadFile(filepath.Join(c.cfg.DataDir, "postgres", "data", "postmaster.pid"))
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		postmaster, _ := strconv.Atoi(line)
		dies(t, postmaster)
		r.steps(10)
		r.goes()
		awaitServer(t, c)
		r.ends("completed")
	})
	t.Run("the door is away: nothing is lost, and nothing comes twice", func(t *testing.T) {
		r := c.count(t, shared)
		if err := c.server.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		r.steps(20)
		if err := c.server.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		r.goes()
		r.ends("completed")
	})
	t.Run("the runner is killed while the door is away: what it could not post comes", func(t *testing.T) {
		r := c.count(t, shared)
		if err := c.server.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("step %d", r.step()+15)
		r.spooled(1, want)
		dies(t, r.runner)
		if err := c.server.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if why := decode[entry.PiFailed](t, r.ends("failed")); !strings.Contains(why.Error, "the runner was killed") {
			t.Errorf("it says %+v", why)
		}
		if !strings.Contains(r.words(), want) {
			t.Errorf("%q is lost:\n%s", want, r.words())
		}
	})
	t.Run("the sandbox is killed: the run is lost, and continues in another one", func(t *testing.T) {
		r := c.count(t, "")
		dies(t, r.first())
		if why := decode[entry.SessionOrphaned](t, r.ends("failed")); !strings.Contains(why.Reason, "sandbox") {
			t.Errorf("it says %+v", why)
		}
		if _, err := r.client().Runs.ContinueRun(t.Context(), &arbev1.ContinueRunRequest{ThreadId: r.thread}); err != nil {
			t.Fatal(err)
		}
		await(t, r.client(), r.thread, func(e *arbev1.TailResponse) bool {
			return strings.HasPrefix(e.GetEntry().GetId(), "run.2.") && strings.Contains(e.GetEntry().Payload, "step 1")
		})
		r.find()
		r.goes()
		await(t, r.client(), r.thread, func(e *arbev1.TailResponse) bool {
			return e.GetEntry().GetType() == (entry.StatusChanged{}).Type() && strings.Contains(e.GetEntry().Payload, `"to":"completed"`)
		})
	})
}

// agents returns the children of the runner.
func (r *counting) agents() (list []int) {
	for _, pid := range r.processes() {
		if stat(pid, "PPid") == strconv.Itoa(r.runner) {
			list = append(list, pid)
		}
	}
	return list
}

// awaitServer waits until a server whose database died answers again.
func awaitServer(t *testing.T, c *counters) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		_, err := c.client().Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: c.parent.Id})
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the server does not answer: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
