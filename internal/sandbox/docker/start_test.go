//go:build linux

package docker_test

import (
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// Two callers create the same box, and the second one comes while the first one prepares it. If both did, the second one
// would replace the program of process 1 while it runs.
func TestABoxIsPreparedOnce(t *testing.T) {
	t.Parallel()
	w := disturb(t, sharedEngine(t))
	d := opened(t, w.host())
	var copies atomic.Int32
	both := make(chan struct{})
	w.fail(failure{on: regexp.MustCompile(`^PUT /containers/[^/]*/archive$`), before: func() {
		if copies.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
		case <-time.After(time.Second): // a second copy does not come
		}
	}})
	refs := make([]string, 2)
	var all sync.WaitGroup
	for i := range refs {
		all.Go(func() { refs[i] = create(t, d, "once") })
	}
	all.Wait()
	if n := copies.Load(); n != 1 || refs[0] != refs[1] {
		t.Errorf("%q was prepared %d times", refs, n)
	}
	if got, code := run(t, d, refs[0], "echo works"); got != "works\n" || code != 0 {
		t.Errorf("%q, %d", got, code)
	}
}

// The engine learns a moment later that a box has ended, and until then starts programs in it.
func TestABoxThatEndsWhileItIsCreatedIsStartedAgain(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	w := disturb(t, e)
	d := opened(t, w.host())
	for range 3 {
		w.fail(failure{on: regexp.MustCompile(`^POST /exec/[^/]*/start$`), times: 1, before: func() {
			first := inspect(t, e, remote.Prefix("here")+"ended").State.Pid
			if err := unix.Kill(first, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}})
		ref := create(t, d, "ended")
		if got, code := run(t, d, ref, "echo works"); got != "works\n" || code != 0 {
			t.Errorf("%q, %d", got, code)
		}
		if err := d.Destroy(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
}
