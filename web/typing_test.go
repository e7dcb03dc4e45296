package web_test

import (
	"slices"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestWhoIsWritingIsSeenByTheOthers(t *testing.T) {
	t.Parallel()
	const bob, cyd = "7f6f0a52-0000-4000-8000-0000000000b0", "7f6f0a52-0000-4000-8000-0000000000c0"
	f := newFake()
	f.agents = append(f.agents, &arbev1.Agent{Id: bob, Kind: "human", Name: "Bob <b>"}, &arbev1.Agent{Id: cyd, Kind: "human", Name: "Cyd"})
	f.thread("typing01", "Typing")
	f.thread("typing02", "Another")
	b := newTab(t, f.start(t))
	b.open("/threads/typing01")
	b.untilLive()
	const line = "document.querySelector('#typing').textContent"
	hint := func(word string) string {
		return "(e => e.getBoundingClientRect().height > 0 && e.innerText.includes('" + word + "'))(document.querySelector('#composer-hint'))"
	}

	t.Run("one's own writing is sent once every few seconds, and not shown to oneself", func(t *testing.T) {
		b := b.in(t)
		b.do(keysInto("#composer-text", "   hello there"))
		f.until(t, "a sign of it", func() bool { return len(f.typed) == 1 })
		f.types("typing01", f.me.Id) // in another tab
		f.types("typing02", bob)
		f.types("typing01", bob)
		b.until("that only another person is shown", line+" === 'Bob <b> is writing…'")
		b.until("that it takes the place of the hint", hint("Bob")+" && !"+hint("Everyone"))
		f.mu.Lock()
		defer f.mu.Unlock()
		if n := len(slices.DeleteFunc(slices.Clone(f.typed), func(s string) bool { return s != "typing01 "+f.me.Id })); n != 2 {
			t.Errorf("the service was called %d times, with that of the other tab", n)
		}
	})
	t.Run("several are named, and who has said it is no longer", func(t *testing.T) {
		b := b.in(t)
		f.types("typing01", cyd)
		b.until("both", line+" === 'Bob <b> and Cyd are writing…'")
		f.says("typing01", bob, "", entry.Chat{Text: "There."})
		b.until("the other one", line+" === 'Cyd is writing…'")
	})
	t.Run("it ends by itself", func(t *testing.T) {
		b := b.in(t)
		b.until("that nobody is shown", line+" === '' && "+hint("Everyone"))
	})
	t.Run("a stranger is not shown", func(t *testing.T) {
		b := b.in(t)
		f.types("typing01", "7f6f0a52-0000-4000-8000-0000000000d0")
		f.types("typing01", "nobody")
		f.types("typing01", cyd)
		b.until("the member alone", line+" === 'Cyd is writing…'")
	})
}
