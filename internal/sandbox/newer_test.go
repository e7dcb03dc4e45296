package sandbox

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// A thread leaves a sandbox that others still use. Each time that sandbox is saved, what was saved before is deleted: then the
// thread's new sandbox gets what was saved last.
func TestANewSandboxGetsWhatWasSavedLast(t *testing.T) {
	t.Parallel()
	kept := map[string]string{"third": "the third"}
	open := func(_ context.Context, id string) (io.ReadCloser, error) {
		if text, there := kept[id]; there {
			return io.NopCloser(strings.NewReader(text)), nil
		}
		return nil, fault.New(fault.NotFound, "it is gone", "")
	}
	saved := func(id string, at int64) Tree {
		return Tree{Saved: []SavedPart{{Folder: ".", Artifact: id, By: "old"}}, SavedAt: time.Unix(at, 0)}
	}
	now := []Tree{saved("second", 2), saved("third", 3)}
	r := &restoring{from: saved("first", 1), open: open, now: func(context.Context) (last Tree, err error) {
		last, now = now[0], now[1:]
		return last, nil
	}}
	part := r.from.Saved[0]
	content, gone, err := r.content(t.Context(), &part)
	if err != nil || gone {
		t.Fatalf("it is gone: %v (%v)", gone, err)
	}
	if text, err := io.ReadAll(content); err != nil || string(text) != "the third" || part.Artifact != "third" {
		t.Errorf("the new sandbox gets %q of %+v (%v)", text, part, err)
	}
	if r.from.Saved[0].Artifact != "third" || !r.from.SavedAt.Equal(time.Unix(3, 0)) {
		t.Errorf("what counts as saved is %+v", r.from)
	}

	r = &restoring{from: saved("first", 1), open: open, now: func(context.Context) (Tree, error) { return saved("first", 1), nil }}
	part = r.from.Saved[0]
	if _, gone, err := r.content(t.Context(), &part); !gone || err != nil {
		t.Errorf("of what somebody deleted it says %v, %v", gone, err)
	}
}
