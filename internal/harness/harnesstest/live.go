package harnesstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// This file is about agents at work: what they show, and what reaches them.

// shows: the model goes on with its answer only once the beginning was shown. The answer is a success, whole.
func shows(t *testing.T, h harness.Harness) {
	t.Parallel()
	begun := make(chan struct{})
	text := "It begins. " + strings.Repeat("It goes on. ", 20) + "It ends."
	b := newBox(t, h, func(*modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Text: text, Before: func(part int) {
			if part != 40 {
				return
			}
			select {
			case <-begun:
			case <-time.After(3 * time.Minute):
				t.Error("nothing is shown until the answer ends")
			}
		}}
	})
	once := sync.OnceFunc(func() { close(begun) })
	b.shown = func(text string) {
		if len(b.messages) == 0 && strings.Contains(text, "It") {
			once()
		}
	}
	if o := b.run("go on", nil); o.Failed != "" || o.Text != text {
		t.Errorf("the outcome is %+v", o)
	}
}

// interrupt: an agent that waits for its model ends soon after it is interrupted, which is not a success.
func interrupt(t *testing.T, h harness.Harness) {
	t.Parallel()
	b := newBox(t, h, func(*modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Text: "It begins and never ends", Hold: true}
	})
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		if _, err := b.model.Await(t.Context(), 1); err != nil {
			t.Error(err)
		}
	}()
	if o := b.run("hello", stop); o.Failed == "" {
		t.Errorf("the outcome is %+v", o)
	}
}

// interruptsCommand: an agent that is interrupted while a command runs ends the command, and keeps the conversation.
func interruptsCommand(t *testing.T, h harness.Harness, bash Bash) {
	t.Parallel()
	b := newBox(t, h, func(r *modeltest.Request) modeltest.Reply {
		if strings.Contains(r.Asked(), "SECOND") {
			return modeltest.Reply{Text: "second done"}
		}
		return modeltest.Reply{Text: "I look.", Calls: []modeltest.Call{bash("echo $$ > pipe; exec sleep 1000")}}
	})
	pipe := filepath.Join(b.job.Dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	stop, command := make(chan struct{}), 0
	go func() {
		defer close(stop)
		text, err := os.ReadFile(pipe) // once the command writes it
		if command, _ = strconv.Atoi(strings.TrimSpace(string(text))); command == 0 {
			t.Errorf("the command writes %q: %v", text, err)
		}
	}()
	if o := b.run("FIRST", stop); o.Failed == "" {
		t.Errorf("the outcome is %+v", o)
	}
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", command)); err == nil && !strings.Contains(string(state), ") Z ") {
		t.Errorf("the command still runs: %s", state)
	}
	if o := b.run("SECOND", nil); o.Failed != "" || o.Text != "second done" {
		t.Errorf("afterwards, the outcome is %+v", o)
	}
	b.knows("after an interruption", "FIRST", "I look.", "SECOND")
}

// steers: a message sent while a tool runs reaches the current work.
func steers(t *testing.T, h harness.Harness, bash Bash) {
	t.Parallel()
	b := newBox(t, h, func(r *modeltest.Request) modeltest.Reply {
		if strings.Contains(string(r.Body), "STEERED") {
			return modeltest.Reply{Text: "steered"}
		}
		if r.Last().Role == "tool" {
			return modeltest.Reply{Text: "not steered"}
		}
		return modeltest.Reply{Calls: []modeltest.Call{bash("echo begun; sleep 3; echo ended")}}
	})
	if !h.Info().Steer {
		if h.Read(b.job, "", "begin").Steer("x") != nil {
			t.Error("it can be steered, and does not say so")
		}
		return
	}
	b.steer = "Do it STEERED."
	if o := b.run("begin", nil); o.Failed != "" || o.Text != "steered" {
		t.Errorf("the outcome is %+v", o)
	}
}
