package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
)

// sleepy is a cloud that puts boxes to sleep. A command wakes its box.
type sleepy struct {
	*cloud
	asleep map[string]bool // by ref
	// unsure makes the provider unable to say whether a box is asleep.
	unsure bool
}

func (s *sleepy) Guarantees() sandbox.Guarantees {
	return sandbox.Guarantees{StopsIdle: true, UserID: -1}
}

func (s *sleepy) Asleep(_ context.Context, ref string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsure {
		return false, fault.New(fault.Unavailable, "the provider does not answer", "try again")
	}
	return s.asleep[ref], nil
}

func (s *sleepy) Dial(context.Context, string, uint16) (sandbox.Conn, error) {
	return nil, errors.New("no test connects")
}

func (s *sleepy) Exec(ctx context.Context, ref string, cmd sandbox.Command) (sandbox.Result, error) {
	s.mu.Lock()
	s.asleep[ref] = false
	s.mu.Unlock()
	return s.cloud.Exec(ctx, ref, cmd)
}

func (s *sleepy) sleep(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep[ref] = true
}

// woken returns the entries of a thread about sandboxes that woke.
func (b *bench) woken(threadID string) (list []entry.SandboxWoken) {
	b.t.Helper()
	th, err := b.threads.Get(b.t.Context(), b.scope, threadID)
	if err != nil {
		b.t.Fatal(err)
	}
	entries, _, err := b.log.Read(b.t.Context(), th.Stream(), stream.Range{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		if w, ok := entry.As[entry.SandboxWoken](e); ok {
			list = append(list, w)
		}
	}
	return list
}

func TestASandboxThatSleptSaysSo(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := &sleepy{cloud: c, asleep: map[string]bool{}}
	b := setupWith(t, c, map[string]sandbox.Driver{"cloud": s})
	th := b.thread(b.environment(sandbox.Recipe{}))
	use := func() (h sandbox.Handle) {
		t.Helper()
		err := b.boxes.Use(t.Context(), b.scope, th, "", func(used sandbox.Handle) error {
			h = used
			if asleep, err := s.Asleep(t.Context(), h.Ref); err == nil && asleep {
				t.Error("a command finds it asleep")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	box := use()
	use()
	if list := b.woken(th); len(list) != 0 {
		t.Errorf("one that was awake says %+v", list)
	}
	s.sleep(box.Ref)
	var together sync.WaitGroup
	for range 3 {
		together.Go(func() { use() })
	}
	together.Wait()
	list := b.woken(th)
	// They may fall into two minutes.
	if n := len(list); n == 0 || n > 2 || slices.ContainsFunc(list, func(w entry.SandboxWoken) bool { return w.SandboxID != box.ID }) {
		t.Errorf("it says %+v", list)
	}
	s.mu.Lock()
	s.unsure = true
	s.mu.Unlock()
	use()
	if again := b.woken(th); len(again) != len(list) {
		t.Errorf("one whose provider does not answer says %+v", again)
	}
}
