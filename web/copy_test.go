package web_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
)

// On plain http, browsers have no navigator.clipboard. Copying works there too.
func TestCodeIsCopiedWithoutAClipboard(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("copycopy", "Copy")
	f.says("copycopy", f.me.Id, "", entry.Chat{Text: "Run this:\n\n```\nmake test\nmake check\n```\n"})
	b := newTab(t, f.start(t))
	b.open("/threads/copycopy")
	b.untilLive()
	eval[int](b, `(Object.defineProperty(navigator, 'clipboard', {value: undefined}),
		document.addEventListener('copy', () => { window.copied = document.activeElement.value }), 1)`)
	eval[bool](b, "document.querySelector('.chat pre').dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))")
	b.do(chromedp.Click(chromedp.CSS(".chat pre .copy")))
	b.until("that it says so", "document.querySelector('.chat pre .copy').textContent === 'Copied'")
	if got := eval[string](b, "window.copied.trim()"); got != "make test\nmake check" {
		t.Errorf("it copied %q", got)
	}
	if eval[bool](b, "!!document.querySelector('body > textarea')") {
		t.Error("the field that it copied from is still there")
	}
}

// The test checks what axe cannot check in a log.
func TestALogIsReadAloudWell(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("aloudone", "Aloud")
	f.says("aloudone", f.me.Id, "", entry.Chat{Text: "hello"})
	f.says("aloudone", f.me.Id, "", entry.Chat{Text: "שלום לכולם"})
	f.says("aloudone", "", "", entry.StatusChanged{From: "open", To: "closed"})
	f.says("aloudone", "", "", entry.StatusChanged{From: "closed", To: "open"})
	b := newTab(t, f.start(t))
	b.open("/threads/aloudone")
	b.untilLive()
	t.Run("entries have names", func(t *testing.T) {
		b := b.in(t)
		want := "Entry 1 by Ada, Entry 2 by Ada, Entry 3, Entry 4"
		if got := eval[string](b, "[...document.querySelectorAll('#log article')].map(e => e.getAttribute('aria-label')).join(', ')"); got != want {
			t.Errorf("they are %q, want %q", got, want)
		}
	})
	t.Run("a text has the direction of its language", func(t *testing.T) {
		b := b.in(t)
		if got := eval[string](b, "[...document.querySelectorAll('.chat')].map(e => getComputedStyle(e).direction).join(' ')"); got != "ltr rtl" {
			t.Errorf("the directions are %q", got)
		}
	})
	t.Run("a clock that runs is not announced every second", func(t *testing.T) {
		b := b.in(t)
		b.write("!sleep 1000")
		b.until("a clock that has moved", "document.querySelector('.foot.running .elapsed') && parseInt(document.querySelector('.foot.running .elapsed').innerText) >= 1")
		const announced = "[role=log], [role=status], [role=alert], [role=timer], [aria-live]:not([aria-live=off])"
		if eval[bool](b, "[...document.querySelectorAll('.elapsed')].some(e => e.closest('"+announced+"'))") {
			t.Error("a clock is in a live region")
		}
		b.until("the announcement of the entry", "document.querySelector('[role=log]').innerText.includes('sleep 1000')")
	})
}
