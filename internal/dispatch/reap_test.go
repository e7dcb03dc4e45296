//go:build linux

package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
)

func TestDeletingAThread(t *testing.T) {
	t.Parallel()
	b := setup(t)
	word := fmt.Sprint("8", time.Now().UnixNano())
	parent := b.thread(sandbox.Recipe{})
	id := b.ask(parent, "echo begun; sleep "+word)
	b.printed(parent, id, "begun\n")
	for range 2 {
		if err := b.dispatcher.DeleteThread(t.Context(), b.scope, parent); err != nil {
			t.Fatal(detail(err))
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left, err := b.driver.List(t.Context(), sandbox.Labels{House: b.scope.House})
		if err == nil && len(left) == 0 && !runs(t, "sleep "+word) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("its sandbox is left: %v (%v)", left, err)
		}
	}
	_, _, err := b.log.Read(t.Context(), b.ref(parent), stream.Range{})
	wantCode(t, err, fault.NotFound)
	if r := b.sh(b.thread(sandbox.Recipe{}), "echo works"); r.Output != "works\n" {
		t.Errorf("another thread: %+v", r)
	}
}

func TestASandboxOnAnotherMachine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	here, there := b.driver, newLocal(t, t.TempDir())
	th := b.thread(sandbox.Recipe{})
	running := b.ask(th, "echo begun; sleep 1000")
	b.printed(th, running, "begun\n")
	made, err := b.threads.Get(t.Context(), b.scope, th)
	if err != nil {
		t.Fatal(err)
	}
	first := b.server
	b.driver = there
	b.server = b.serve()
	t.Run("is used through any server", func(t *testing.T) {
		for _, s := range []*server{first, b.server} {
			said, err := s.dispatcher.Commands.Run(t.Context(), b.scope, th, "", entry.Command{Command: "echo here"})
			if err != nil {
				t.Fatal(detail(err))
			}
			if r := b.result(th, said.ID); r.Output != "here\n" || r.SandboxID != made.Sandbox {
				t.Errorf("the result is %+v", r)
			}
		}
	})
	if err := first.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	waiting := b.ask(th, "echo works")
	t.Run("is waited for while that machine is away", func(t *testing.T) {
		if _, err := b.Owner(t).Exec(t.Context(), "update machines set seen_at = now() - interval '1 minute' where id = $1", here.(sandbox.Bound).Machine()); err != nil {
			t.Fatal(err)
		}
		b.follow(th, func(ev stream.Event) bool {
			if ev.Entry == nil {
				return false
			}
			w, ok := entry.As[entry.CommandWaiting](*ev.Entry)
			return ok && w.CommandID == waiting && w.For == entry.WaitMachine
		})
		if b.results(th, waiting)+b.results(th, running) != 0 {
			t.Errorf("the log says %s", b.story(th))
		}
	})
	t.Run("that is destroyed is replaced, and what ran there is reported as interrupted", func(t *testing.T) {
		for range 2 {
			if box, err := b.dispatcher.DestroySandbox(t.Context(), b.scope, made.Sandbox, false); err != nil || box.Status != sandbox.StatusDead {
				t.Fatalf("the sandbox is %s (%s), want it dead", box.Status, detail(err))
			}
		}
		if r := b.result(th, waiting); r.Output != "works\n" || r.SandboxID == made.Sandbox {
			t.Errorf("the result is %+v", r)
		}
		if r := b.result(th, running); r.ExitCode != -1 || r.SandboxID != made.Sandbox || !strings.Contains(r.Error, "the server stopped") {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("is deleted there by that machine's next server", func(t *testing.T) {
		if left, err := here.List(t.Context(), sandbox.Labels{Thread: th}); err != nil || len(left) != 1 {
			t.Fatalf("the sandboxes there are %v (%v), want one", left, err)
		}
		b.driver = here
		b.serve()
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			left, err := here.List(t.Context(), sandbox.Labels{Thread: th})
			if err == nil && len(left) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%v are left (%v)", left, err)
			}
		}
	})
}
