//go:build linux

package local_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// awaitStop waits until nothing of a box is left on the machine, and returns that time.
func awaitStop(t *testing.T, id string) time.Time {
	t.Helper()
	for deadline := time.Now().Add(patience); traces(t, id+".") != ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the box still runs:\n%s", traces(t, id+"."))
		}
	}
	return time.Now()
}

func TestAnIdleBoxIsStopped(t *testing.T) {
	const idle, background = time.Second, 4 * time.Second
	d := newDriver(t, local.Config{Dir: t.TempDir(), IdleStop: idle, BackgroundStop: background})
	defer closeDriver(t, d)
	if !d.Capabilities().OwnIDs {
		t.Skip("traces of boxes are not found")
	}
	quiet, server, agent, busy := word("quiet"), word("server"), word("agent"), word("busy")
	boxes := map[string]string{}
	for _, id := range []string{quiet, server, agent, busy} {
		boxes[id] = create(t, d, sandbox.Spec{ID: id})
		sh(t, d, boxes[id], "echo work > f")
	}
	// The running command writes the temporary file itself, because the box may be stopped between two commands.
	if err := d.Launch(t.Context(), boxes[agent], "agent", sandbox.Command{Argv: []string{"sh", "-c", "echo temporary > /tmp/f; sleep 1000"}}); err != nil {
		t.Fatal(err)
	}
	var others sync.WaitGroup
	others.Go(func() {
		if got := sh(t, d, boxes[busy], "echo temporary > /tmp/f; sleep 6; cat /tmp/f"); got != "temporary\n" {
			t.Errorf("a command that takes longer than every limit finds %q", got)
		}
	})
	begin := time.Now()
	sh(t, d, boxes[server], "sleep 1000 &")
	t.Run("when nothing runs in it", func(t *testing.T) {
		awaitStop(t, quiet)
		for id, want := range map[string]bool{quiet: true, agent: false} {
			if asleep, err := d.Asleep(t.Context(), boxes[id]); asleep != want || err != nil {
				t.Errorf("the box %s is asleep: %v, %v; want %v", id, asleep, err, want)
			}
			if meter, err := d.Meter(t.Context(), boxes[id]); (meter.Power == sandbox.PowerOff) != want || meter.HourlyMicros != 0 || err != nil {
				t.Errorf("the meter of the box %s says %+v, %v", id, meter, err)
			}
		}
	})
	t.Run("later when something was left in the background", func(t *testing.T) {
		if took := awaitStop(t, server).Sub(begin); took < background {
			t.Errorf("it was stopped after %v, want %v", took, background)
		}
	})
	t.Run("and started by its next command, with its files", func(t *testing.T) {
		for _, id := range []string{quiet, server} {
			if got := sh(t, d, boxes[id], "cat f"); got != "work\n" {
				t.Errorf("its file is %q", got)
			}
		}
	})
	others.Wait()
	t.Run("but not while a launched command runs", func(t *testing.T) {
		if got := sh(t, d, boxes[agent], "cat /tmp/f"); got != "temporary\n" {
			t.Errorf("the box was stopped: its temporary file is %q", got)
		}
	})
}

// An environment may have a shorter time than the operator's.
func TestALimitOfABoxSaysWhenItIsIdle(t *testing.T) {
	d := newDriver(t, local.Config{Dir: t.TempDir(), IdleStop: 30 * time.Second})
	defer closeDriver(t, d)
	if !d.Capabilities().OwnIDs {
		t.Skip("traces of boxes are not found")
	}
	short, usual := word("short"), word("usual")
	brief, other := create(t, d, sandbox.Spec{ID: short, Limits: sandbox.Limits{Idle: 100 * time.Millisecond}}), create(t, d, sandbox.Spec{ID: usual})
	sh(t, d, brief, "echo work > f")
	sh(t, d, other, "true")
	awaitStop(t, short)
	if asleep, err := d.Asleep(t.Context(), other); asleep || err != nil {
		t.Errorf("the box without a limit is stopped as early: %v, %v", asleep, err)
	}
	if got := sh(t, d, brief, "cat f"); got != "work\n" {
		t.Errorf("its file is %q", got)
	}
}

func TestOnlySoManyBoxesRunAtOnce(t *testing.T) {
	d := newDriver(t, local.Config{Dir: t.TempDir(), Running: 2})
	defer closeDriver(t, d)
	boxes := []string{create(t, d, sandbox.Spec{ID: "a"}), create(t, d, sandbox.Spec{ID: "b"})}
	sh(t, d, boxes[0], "echo a > /tmp/f")
	sh(t, d, boxes[1], "echo b > /tmp/f")
	boxes = append(boxes, create(t, d, sandbox.Spec{ID: "c"}))
	t.Run("the one that was idle longest gives way", func(t *testing.T) {
		if got := sh(t, d, boxes[1], "cat /tmp/f"); got != "b\n" {
			t.Errorf("the box that was used later was stopped: %q", got)
		}
		if got := sh(t, d, boxes[0], "cat /tmp/f 2>/dev/null || echo was stopped"); got != "was stopped\n" {
			t.Errorf("the box that was used first: %q", got)
		}
	})
	t.Run("none gives way in which a command runs", func(t *testing.T) {
		// Two commands run and keep their boxes' slots until they are told to end.
		var running sync.WaitGroup
		ready, end := make(chan struct{}, 2), make(chan struct{})
		for _, ref := range boxes[:2] {
			running.Go(func() {
				in, out := newGate(end), &signalWriter{ready}
				result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", "echo ready; read x; exit 7"}, Stdin: in, Stdout: out})
				if err != nil || result.ExitCode != 7 {
					t.Errorf("the command in the way ended with %+v, %v", result, err)
				}
			})
		}
		<-ready
		<-ready
		_, err := d.Exec(t.Context(), boxes[2], sandbox.Command{Argv: []string{"true"}})
		if fault.CodeOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "sandboxes_running") {
			t.Errorf("a third one: %v", err)
		}
		_, err = d.Create(t.Context(), sandbox.Spec{ID: "d", Limits: sandbox.Limits{DiskMB: 16}})
		if fault.CodeOf(err) != fault.Exhausted {
			t.Errorf("a new one: %v", err)
		}
		close(end)
		running.Wait()
		sh(t, d, boxes[2], "true")
	})
	t.Run("many at once wait for no one", func(t *testing.T) {
		var all sync.WaitGroup
		for range 5 {
			for _, ref := range boxes {
				all.Go(func() {
					_, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"true"}})
					if err != nil && fault.CodeOf(err) != fault.Exhausted {
						t.Errorf("%s", fault.From(err).Detail())
					}
				})
			}
		}
		all.Wait()
	})
}

// gate is an input that yields one line after it was opened.
type gate struct {
	opened <-chan struct{}
	text   *bytes.Reader
}

func newGate(opened <-chan struct{}) *gate { return &gate{opened, bytes.NewReader([]byte("go\n"))} }

func (g *gate) Read(p []byte) (int, error) {
	<-g.opened
	return g.text.Read(p)
}

// signalWriter signals each write.
type signalWriter struct{ said chan<- struct{} }

func (w *signalWriter) Write(p []byte) (int, error) {
	w.said <- struct{}{}
	return len(p), nil
}
