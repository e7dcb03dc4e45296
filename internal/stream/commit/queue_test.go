package commit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// The tests of the queue are internal, because a caller cannot see what waits in it.
func TestQueue(t *testing.T) {
	t.Parallel()
	t.Run("a flood on one stream leaves space in the next batch for others", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		for range 4 * batchEntries {
			mustPut(t, q, "flood", 1)
		}
		mustPut(t, q, "quiet", 1)
		got := map[string]int{}
		for _, p := range q.take() {
			got[p.lane.ref.Name] = p.entries
		}
		if got["quiet"] != 1 || got["flood"] != batchEntries/2 {
			t.Errorf("the batch has %v", got)
		}
	})

	t.Run("streams that found no place in a batch come first in the next", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		const streams = batchEntries + 10
		for i := range streams {
			mustPut(t, q, fmt.Sprint(i), 1)
			mustPut(t, q, fmt.Sprint(i), 1)
		}
		first := q.take()
		for _, p := range first {
			q.resume(p.lane, 1, 1, false)
		}
		second := q.take()
		if len(first) != batchEntries || second[0].lane.ref.Name != fmt.Sprint(batchEntries) {
			t.Errorf("a batch of %d streams, and the next begins with %s", len(first), second[0].lane.ref.Name)
		}
	})

	t.Run("a call is never divided, however large, and its stream keeps its order", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		large := mustPut(t, q, "s", 3*batchEntries)
		small := mustPut(t, q, "s", 1)
		p := q.take()[0]
		if len(p.calls) != 1 || p.calls[0] != large {
			t.Errorf("the batch has %d calls", len(p.calls))
		}
		if q.take() != nil {
			t.Error("the stream's next call was taken before the first had its result")
		}
		q.resume(p.lane, 1, 1, false)
		if p := q.take()[0]; p.calls[0] != small {
			t.Error("the next batch has another call")
		}
	})

	t.Run("a call that exceeds a whole batch is written alone", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		mustPut(t, q, "large", batchEntries+1)
		mustPut(t, q, "small", 1)
		mustPut(t, q, "full", batchEntries)
		alone := map[string]bool{}
		for range 2 { // a call of these ends a batch
			for _, p := range q.take() {
				alone[p.lane.ref.Name] = p.alone
			}
		}
		if len(alone) != 3 || !alone["large"] || alone["small"] || alone["full"] {
			t.Errorf("alone are %v", alone)
		}
	})

	t.Run("calls that exceed their stream's quota are refused after a while, and calls of other streams are not", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		for range 8 {
			mustPut(t, q, "full", laneBytes/8/entryBytes)
		}
		start := time.Now()
		err := tryPut(t.Context(), q, "full", newTestCall(1))
		if fault.CodeOf(err) != fault.Exhausted || time.Since(start) < enqueueTimeout {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := tryPut(ended, q, "full", newTestCall(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v for a caller who is gone", err)
		}
		mustPut(t, q, "other", 1)

		p := q.take()[0]
		q.finish(p.lane, p.calls, nil)
		mustPut(t, q, "full", 1)
	})

	t.Run("all streams together have a quota too", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		for i := range queueBytes / laneBytes {
			mustPut(t, q, fmt.Sprint(i), laneBytes/entryBytes)
		}
		if err := tryPut(t.Context(), q, "one more", newTestCall(1)); fault.CodeOf(err) != fault.Exhausted {
			t.Errorf("got %v", err)
		}
	})

	t.Run("closing it refuses waiting and new calls", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		waiting, parked := mustPut(t, q, "a", 1), mustPut(t, q, "b", 1)
		for _, p := range q.take() {
			q.retry(p.lane, p.calls)
		}
		over := errors.New("over")
		q.close(over)
		for _, c := range []*call{waiting, parked} {
			if <-c.done; c.err != over {
				t.Errorf("got %v", c.err)
			}
		}
		if err := tryPut(t.Context(), q, "a", newTestCall(1)); err != over {
			t.Errorf("got %v", err)
		}
	})

	t.Run("idle streams are forgotten", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		mustPut(t, q, "busy", 1)
		for i := range 10 * keptLanes {
			q.learn(store.Ref{Name: fmt.Sprint(i)}, int64(i+1))
		}
		if len(q.lanes) > 2*keptLanes || len(q.ids) > len(q.lanes) || q.enter(store.Ref{Name: "busy"}) == nil {
			t.Errorf("%d lanes are kept", len(q.lanes))
		}
	})
}

func newTestCall(entries int) *call {
	return &call{entries: make([]entry.Entry, entries), done: make(chan struct{}), bytes: int64(entries) * entryBytes}
}

func tryPut(ctx context.Context, q *queue, name string, c *call) error {
	ref := store.Ref{Name: name}
	n := q.enter(ref)
	if n == nil {
		q.learn(ref, int64(-1-len(q.lanes)))
		n = q.enter(ref)
	}
	return q.put(ctx, n, c)
}

func mustPut(t *testing.T, q *queue, name string, entries int) *call {
	t.Helper()
	c := newTestCall(entries)
	if err := tryPut(t.Context(), q, name, c); err != nil {
		t.Fatal(err)
	}
	return c
}
