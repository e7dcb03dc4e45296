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
	// A page shows a signal for a few seconds only, so it keeps what it has shown. Its clock stands still, so that the letters come
	// at one time.
	eval[bool](b, "(now => { Date.now = () => now; return true })(Date.now())")
	eval[bool](b, `(window.shown = [], new MutationObserver(() => {
		if (`+line+`) window.shown.push({ line: `+line+`, instead: `+hint("is writing…")+` && !`+hint("Everyone")+` })
	}).observe(document.body, { childList: true, characterData: true, subtree: true }), true)`)
	forget := func() { eval[int](b, "window.shown.length = 0") }

	t.Run("one's own writing is sent once every few seconds, and not shown to oneself", func(t *testing.T) {
		b := b.in(t)
		b.do(keysInto("#composer-text", "   hello there"))
		f.until(t, "a sign of it", func() bool { return len(f.typed) == 1 })
		f.types("typing01", f.me.Id) // in another tab
		f.types("typing02", bob)
		f.types("typing01", bob)
		b.until("that only another person is shown, in place of the hint", "window.shown.length > 0 && window.shown.every(s => s.line === 'Bob <b> is writing…' && s.instead)")
		f.mu.Lock()
		defer f.mu.Unlock()
		if n := len(slices.DeleteFunc(slices.Clone(f.typed), func(s string) bool { return s != "typing01 "+f.me.Id })); n != 2 {
			t.Errorf("the service was called %d times, with that of the other tab", n)
		}
	})
	t.Run("several are named, and who has said it is no longer", func(t *testing.T) {
		b := b.in(t)
		f.types("typing01", cyd)
		f.types("typing01", bob)
		b.until("both", "window.shown.some(s => s.line === 'Bob <b> and Cyd are writing…')")
		forget()
		f.types("typing01", cyd) // whose time is over first
		f.types("typing01", bob)
		f.says("typing01", bob, "", entry.Chat{Text: "There."})
		b.until("the other one", "window.shown.some(s => s.line === 'Cyd is writing…')")
	})
	t.Run("it ends by itself", func(t *testing.T) {
		b := b.in(t)
		b.until("that nobody is shown", line+" === '' && "+hint("Everyone"))
	})
	t.Run("a stranger is not shown", func(t *testing.T) {
		b := b.in(t)
		forget()
		f.types("typing01", "7f6f0a52-0000-4000-8000-0000000000d0")
		f.types("typing01", "nobody")
		f.types("typing01", cyd)
		b.until("the member alone", "window.shown[0]?.line === 'Cyd is writing…'")
	})
}
