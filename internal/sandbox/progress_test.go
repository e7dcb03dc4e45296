package sandbox_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// A thread's watchers see the output of its sandbox's build while it runs.
func TestABuildIsWatched(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// The setup ends when a watcher has seen its output.
	seen := t.TempDir() + "/seen"
	th := b.thread(b.environment(sandbox.Recipe{Setup: "echo installing; while [ ! -e " + seen + " ]; do sleep 0.01; done"}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan ran, 1)
	began := make(chan struct{})
	var begin sync.Once
	go func() {
		<-began
		done <- b.try(th, "true")
	}()
	var printed strings.Builder
	prepared := ""
	for e, err := range b.log.Tail(ctx, stream.Ref{House: b.scope.House, Name: thread.StreamName(th)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Entry == nil && e.Delta == nil:
			begin.Do(func() { close(began) })
		case e.Delta != nil:
			id, ok := entry.PreparedSandbox(e.Delta.EntryID)
			if !ok {
				t.Fatalf("a delta of %s", e.Delta.EntryID)
			}
			prepared = id
			printed.Write(e.Delta.Data)
			if strings.HasSuffix(printed.String(), "installing\n") {
				if err := os.WriteFile(seen, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		case e.Entry != nil && e.Entry.ID == entry.PreparationID(prepared):
			cancel()
		}
	}
	if want := "==> start a sandbox\n==> setup\ninstalling\n"; printed.String() != want {
		t.Errorf("the watcher saw %q, want %q", printed.String(), want)
	}
	select {
	case r := <-done:
		if r.err != nil || r.box.ID != prepared {
			t.Errorf("the command came to %+v", r)
		}
	case <-time.After(patience):
		t.Fatal("the command does not end")
	}
}
