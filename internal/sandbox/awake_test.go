package sandbox_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// resting is a cloud whose boxes rest.
type resting struct {
	*cloud
	fails bool
	// asked are the requests to keep a box awake, as "REF for DURATION".
	asked []string
}

func (r *resting) KeepAwake(_ context.Context, ref string, least time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, ref+" for "+least.String())
	if r.fails {
		return fault.New(fault.Unavailable, "the provider does not answer", "try again")
	}
	return nil
}

// A box is kept awake exactly as long as a thread runs on it, or a command runs in it.
func TestABoxIsKeptAwakeWhileAThreadRunsOnIt(t *testing.T) {
	t.Parallel()
	d := &resting{cloud: newCloud(t)}
	b := setupWith(t, d.cloud, map[string]sandbox.Driver{"cloud": d})
	asks := func(what string, boxes *sandbox.Resolver, want ...string) {
		t.Helper()
		d.asked = nil
		boxes.KeepAwake(t.Context())
		if !slices.Equal(d.asked, want) {
			t.Errorf("%s: a look asks for %q, want %q", what, d.asked, want)
		}
	}
	driven := b.driven(b.environment(sandbox.Recipe{}))
	box, _ := b.sh(driven, "true")
	held, freed := box.Ref+" for 30m0s", box.Ref+" for 0s"
	if !slices.Equal(d.asked, []string{held}) {
		t.Errorf("a command asks for %q", d.asked)
	}
	b.exec("update threads set status = 'running' where id = $1", driven)
	asks("its thread runs, and the provider was asked just now", b.boxes)
	another := b.server(b.drivers)
	asks("on a server that has just started", another, held)
	b.exec("update threads set status = 'idle' where id = $1", driven)
	asks("no thread runs", b.boxes, freed)
	asks("no thread runs any more", b.boxes)
	asks("on the other server", another, freed)
	b.exec("update sandbox_trees set used_at = now() + interval '1 minute'")
	asks("something else uses it", b.boxes, held)
	b.exec("update sandbox_trees set used_at = now() - interval '1 minute'")
	asks("nothing uses it", b.boxes, freed)

	d.fails = true
	if _, out := b.sh(driven, "echo it runs"); out != "it runs\n" {
		t.Errorf("a command in a box that cannot be kept awake prints %q", out)
	}
}
