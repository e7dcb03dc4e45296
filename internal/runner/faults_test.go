package runner_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/harness/all"
	"github.com/arbe-dev/arbe/internal/harness/pi"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// children returns the processes whose parent is pid.
func children(t *testing.T, pid int) (found []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if string(fields[1]) == strconv.Itoa(pid) {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			found = append(found, n)
		}
	}
	return found
}

// working makes the agent call a tool that creates a file and then does not end. tool waits for the file.
func working(t *testing.T, name string) (script modeltest.Script, tool func(*world) int) {
	script = func(r *modeltest.Request) modeltest.Reply {
		if r.Seen > 0 {
			return modeltest.Reply{Text: "It has ended."}
		}
		return modeltest.Reply{Text: "I wait.", Calls: []modeltest.Call{bash[name]("echo $$ > pid; echo more >> README.md; (setsid sleep 1000 &) ; sleep 1000")}}
	}
	return script, func(w *world) int {
		t.Helper()
		w.await(w.ctx, "the tool call", w.has("pi.assistant", "I wait."))
		for {
			if text, err := os.ReadFile(filepath.Join(w.spec.WorkDir, "pid")); err == nil && strings.HasSuffix(string(text), "\n") {
				pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
				return pid
			}
			if w.ctx.Err() != nil {
				t.Fatal("the tool does not run")
			}
			time.Sleep(5 * time.Millisecond) // the file comes from another process
		}
	}
}

// runs reports whether a process still runs.
func runs(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// gone fails if a process still runs.
func gone(t *testing.T, pid int) {
	t.Helper()
	if runs(pid) {
		t.Errorf("process %d still runs", pid)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, h := range all.Harnesses {
		t.Run("a cancelled run of "+h.Info().Name+" stops agent and tools within two seconds, and keeps the tree", func(t *testing.T) {
			t.Parallel()
			script, tool := working(t, h.Info().Name)
			w := newWorld(t, h, script)
			w.chat("wait")
			r := w.start()
			pid := tool(w)
			stopped := append(children(t, r.cmd.Process.Pid), pid)
			began := time.Now()
			w.say(person, "signal.thread.cancel_requested", map[string]int{"epoch": 1})
			for slices.ContainsFunc(stopped, runs) && w.ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond) // they are not children of this process
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %s", took)
			}
			f := r.finish() // saves the tree first
			if f.Outcome != "cancelled" || f.Error != "" || f.PatchFiles != 2 {
				t.Errorf("the report is %+v", f)
			}
			gone(t, pid)
			if !w.has("pi.tool_result", `"isError":true`)() {
				t.Error("the cut tool call has no result")
			}
		})
	}
	for _, h := range all.Harnesses {
		name := h.Info().Name
		t.Run(name+" is killed", func(t *testing.T) {
			t.Parallel()
			script, tool := working(t, name)
			w := newWorld(t, h, script)
			w.chat("wait")
			r := w.start()
			pid := tool(w)
			for _, child := range children(t, r.cmd.Process.Pid) {
				_ = syscall.Kill(child, syscall.SIGKILL)
			}
			f := r.finish()
			if f.Outcome != "failed" || f.Phase != "execution" || !strings.Contains(f.Error, "signal 9") {
				t.Errorf("the report is %+v", f)
			}
			gone(t, pid)
			if got := w.types(); got != "assistant tool_result run_finished" || !w.has("pi.tool_result", "interrupted")() {
				t.Errorf("the log has %s", got)
			}
		})
		t.Run(name+" hangs, because its model does", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, h, func(*modeltest.Request) modeltest.Reply {
				return modeltest.Reply{Text: "never", Hold: true, HoldHeaders: true}
			})
			w.spec.MaxSeconds = 3
			w.chat("wait")
			if f := w.start().finish(); f.Outcome != "failed" || f.Phase != "execution" || !strings.Contains(f.Error, "3s") {
				t.Errorf("the report is %+v", f)
			}
		})
	}
	t.Run("the runner is killed, and started again", func(t *testing.T) {
		t.Parallel()
		script, tool := working(t, "pi")
		w := newWorld(t, pi.Harness{}, script)
		w.chat("wait")
		r := w.start()
		pid := tool(w)
		_ = r.cmd.Process.Kill()
		r.exit()
		f := w.start().finish()
		if f.Outcome != "failed" || f.Phase != "observation" {
			t.Errorf("the report is %+v", f)
		}
		gone(t, pid)
		// The next run receives the message, and learns that the call was interrupted.
		w.again(f.Through)
		if f = w.start().finish(); f.Outcome != "completed" || f.Result != "It has ended." {
			t.Errorf("the report is %+v", f)
		}
		requests := w.model.Requests()
		last := requests[len(requests)-1]
		if len(requests) != 2 || len(last.Messages) != 4 || last.Messages[0].Text != "wait" || !strings.Contains(last.Messages[2].Text, "interrupted") {
			t.Errorf("the model was asked %d times, the last time with %+v", len(requests), last.Messages)
		}
	})
	t.Run("the door is away, and loses answers", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, pi.Harness{}, func(r *modeltest.Request) modeltest.Reply {
			if r.Seen < 3 {
				return modeltest.Reply{Text: "step " + strconv.Itoa(r.Seen), Calls: []modeltest.Call{bash["pi"]("echo " + strconv.Itoa(r.Seen))}}
			}
			return modeltest.Reply{Text: "done"}
		})
		w.chat("count")
		w.set(func(d *fakeDoor) { d.drop = 2 })
		r := w.start()
		w.await(w.ctx, "the first step", w.has("pi.assistant", "step 0"))
		w.set(func(d *fakeDoor) { d.status = -1 })
		if _, err := w.model.Await(w.ctx, 4); err != nil {
			t.Fatal(err)
		}
		w.set(func(d *fakeDoor) { d.status = http.StatusServiceUnavailable })
		w.set(func(d *fakeDoor) { d.status, d.renew = 0, "token-two" })
		if f := r.finish(); f.Outcome != "completed" || f.Result != "done" {
			t.Errorf("the report is %+v", f)
		}
		if got := w.types(); got != "assistant tool_result assistant tool_result assistant tool_result assistant run_finished" {
			t.Errorf("the log has %s", got)
		}
	})
	t.Run("the door refuses one entry for good", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, pi.Harness{}, func(r *modeltest.Request) modeltest.Reply {
			if r.Seen < 3 {
				return modeltest.Reply{Text: "step " + strconv.Itoa(r.Seen), Calls: []modeltest.Call{bash["pi"]("echo $((40+" + strconv.Itoa(r.Seen) + "))x")}}
			}
			return modeltest.Reply{Text: "done"}
		})
		w.chat("count")
		w.set(func(d *fakeDoor) { d.poison = "41x" })
		r := w.start()
		if f := r.finish(); f.Outcome != "completed" || f.Result != "done" {
			t.Errorf("the report is %+v", f)
		}
		if got := w.types(); got != "assistant tool_result assistant assistant tool_result assistant run_finished" {
			t.Errorf("the log has %s", got)
		}
		if !strings.Contains(r.stderr.String(), "an entry is dropped") {
			t.Errorf("the runner says %s", r.stderr.String())
		}
	})
	t.Run("the door is away for a minute", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("it takes a minute")
		}
		w := newWorld(t, pi.Harness{}, func(r *modeltest.Request) modeltest.Reply {
			if r.Seen < 3 {
				return modeltest.Reply{Text: "step " + strconv.Itoa(r.Seen), Calls: []modeltest.Call{bash["pi"]("echo " + strconv.Itoa(r.Seen))}}
			}
			return modeltest.Reply{Text: "done"}
		})
		w.ctx = t.Context()
		w.chat("count")
		r := w.start()
		w.await(w.ctx, "the first step", w.has("pi.assistant", "step 0"))
		w.set(func(d *fakeDoor) { d.status = -1 })
		time.Sleep(time.Minute)
		if _, err := w.model.Await(w.ctx, 4); err != nil {
			t.Fatal(err)
		}
		w.set(func(d *fakeDoor) { d.status = 0 })
		if f := r.finish(); f.Outcome != "completed" || f.Result != "done" {
			t.Errorf("the report is %+v", f)
		}
		if got := w.types(); got != "assistant tool_result assistant tool_result assistant tool_result assistant run_finished" {
			t.Errorf("the log has %s", got)
		}
	})
	t.Run("the run is over for this runner", func(t *testing.T) {
		t.Parallel()
		script, tool := working(t, "pi")
		w := newWorld(t, pi.Harness{}, script)
		w.chat("wait")
		r := w.start()
		pid := tool(w)
		w.set(func(d *fakeDoor) { d.status = http.StatusForbidden })
		if code := r.exit(); code != 3 {
			t.Errorf("it ended with %d: %s", code, r.stderr.String())
		}
		gone(t, pid)
	})
}

func TestSteer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pi.Harness{}, func(r *modeltest.Request) modeltest.Reply {
		if r.Seen == 0 {
			return modeltest.Reply{Text: "I wait.", Calls: []modeltest.Call{bash["pi"]("until test -e go; do sleep 0.02; done")}}
		}
		return modeltest.Reply{Text: "You said " + r.Asked()}
	})
	w.chat("wait")
	r := w.start()
	w.await(w.ctx, "the tool call", w.has("pi.assistant", "I wait."))
	steer := w.chat("something else")
	w.await(w.ctx, "a heartbeat that says what was given", func() bool {
		return len(w.beats) > 0 && strings.Contains(string(w.beats[len(w.beats)-1].Payload), `"through":`+strconv.FormatInt(steer, 10))
	})
	if err := os.WriteFile(filepath.Join(w.spec.WorkDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := r.finish(); f.Outcome != "completed" || f.Result != "You said something else" || f.Through != steer {
		t.Errorf("the report is %+v", f)
	}
}

// If an agent takes one prompt at a time, a message that comes while it works is its next prompt.
func TestQueue(t *testing.T) {
	t.Parallel()
	for _, h := range all.Harnesses {
		if h.Info().Steer {
			continue
		}
		t.Run(h.Info().Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, h, func(r *modeltest.Request) modeltest.Reply {
				switch {
				case strings.Contains(r.Asked(), "something else"):
					return modeltest.Reply{Text: "That, too."}
				case r.Last().Role == "tool":
					return modeltest.Reply{Text: "The first."}
				}
				return modeltest.Reply{Text: "I wait.", Calls: []modeltest.Call{bash[h.Info().Name]("until test -e go; do :; done")}}
			})
			w.chat("wait")
			r := w.start()
			w.await(w.ctx, "the tool call", w.has("pi.assistant", "I wait."))
			second := w.chat("something else")
			if err := os.WriteFile(filepath.Join(w.spec.WorkDir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if f := r.finish(); f.Outcome != "completed" || f.Result != "That, too." || f.Through != second {
				t.Errorf("the report is %+v", f)
			}
			if got := w.types(); got != "assistant tool_result assistant assistant run_finished" {
				t.Errorf("the log has %s", got)
			}
		})
	}
}
