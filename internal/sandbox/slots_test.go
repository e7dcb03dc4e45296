package sandbox

import (
	"context"
	"testing"
	"testing/synctest"
)

// house is a house that asks for slots.
type house struct {
	t    *testing.T
	s    *slots
	name string
	held []func() // release functions of its slots
}

// acquire asks for n slots, one after another, and returns how many the house gets without waiting.
func (h *house) acquire(n int) (got int) {
	for range n {
		ctx, giveUp := context.WithCancel(h.t.Context())
		answer := make(chan func(), 1)
		go func() {
			defer close(answer)
			if release, err := h.s.acquire(ctx, h.name); err == nil {
				answer <- release
			}
		}()
		synctest.Wait() // it has its slot, or waits
		select {
		case release := <-answer:
			h.held = append(h.held, release)
			got++
		default:
		}
		giveUp()
		synctest.Wait()
	}
	return got
}

// wait asks for one slot, sends the house's name when it gets it, and then releases it.
func (h *house) wait(got chan<- string) {
	go func() {
		if release, err := h.s.acquire(h.t.Context(), h.name); err == nil {
			got <- h.name
			release()
		}
	}()
	synctest.Wait()
}

// release releases the n slots that it got first.
func (h *house) release(n int) {
	for _, release := range h.held[:n] {
		release()
	}
	h.held = h.held[n:]
	synctest.Wait()
}

func TestSlotsAreSharedAmongTheHouses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(8)
		of := func(name string) *house { return &house{t: t, s: s, name: name} }
		a, b, c, d, e := of("a"), of("b"), of("c"), of("d"), of("e")

		// Each house gets half of what the others left, and at least one while there is one.
		for _, want := range []struct {
			of    *house
			slots int
		}{{a, 4}, {b, 2}, {c, 1}, {d, 1}, {e, 0}} {
			if got := want.of.acquire(10); got != want.slots {
				t.Errorf("house %s gets %d slots, want %d", want.of.name, got, want.slots)
			}
		}
		// Those who gave up no longer wait.
		if len(s.waiting) != 0 {
			t.Errorf("%d wait", len(s.waiting))
		}
		// The house that came first has too many.
		got := make(chan string)
		a.wait(got)
		e.wait(got)
		c.release(1)
		if name := <-got; name != "e" {
			t.Errorf("%s gets the slot that became free", name)
		}
		// It gets one when it has few enough.
		a.release(4)
		if name := <-got; name != "a" {
			t.Errorf("%s gets the next", name)
		}
		// All slots are free again.
		b.release(2)
		d.release(1)
		if s.free != 8 || len(s.held) != 0 || len(s.waiting) != 0 {
			t.Errorf("in the end: %d free, held %v, %d wait", s.free, s.held, len(s.waiting))
		}
	})
}
