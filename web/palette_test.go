package web_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// ask opens the palette, types words, and waits until a script is true.
func (b *tab) ask(words, what, script string) {
	b.t.Helper()
	b.untilLive()
	b.do(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.until("the palette", "document.querySelector('#palette').open")
	b.do(keysInto("#palette input", words))
	b.until(what, script)
}

const chosen = "document.querySelector('#palette-choices [aria-selected=true]')"

func TestThePaletteActsOnTheOpenThread(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("openopen", "Open")
	b := newTab(t, f.start(t))
	b.open("/threads/openopen")
	b.untilLive()
	b.ask("mute th", "the action with its key", chosen+"?.innerText.startsWith('Mute thread') && "+chosen+".querySelector('kbd').innerText === 'm'")
	b.untilAnother(b.enter)
	b.until("a muted thread", "document.querySelector('#mute')?.getAttribute('aria-pressed') === 'true'")
	b.ask("rename", "the action", chosen+"?.innerText.startsWith('Rename thread')")
	b.enter()
	b.until("the field with the name", "document.activeElement.closest('#rename') !== null")
	b.open("/threads/openopen")
	b.untilLive()
	b.ask("stop", "why nothing can be stopped", "document.querySelector('#palette-choices [aria-disabled]')?.innerText.includes('nothing runs')")
	b.pictures("palette")
	b.accessibleEverywhere("the palette")
	b.do(chromedp.KeyEvent("\x1b"))
	b.ask("close th", "the action", chosen+"?.innerText.startsWith('Close thread')")
	b.untilAnother(b.enter)
	b.until("a closed thread", "document.title.startsWith('closed')")
	b.ask("reopen", "the action", chosen+"?.innerText.startsWith('Reopen thread')")
	b.untilAnother(b.enter)
	b.until("an open thread", "!document.title.startsWith('closed')")
	f.update("openopen", func(t *arbev1.Thread) { t.Running = &arbev1.Running{TurnId: "turn1", AgentName: "Bee"} })
	b.until("Stop", "!!document.querySelector('#thread-head .stop')")
	b.ask("stop", "the action", chosen+"?.innerText.startsWith('Stop what runs') && !"+chosen+".ariaDisabled")
	b.enter()
	f.until(t, "that it was stopped", func() bool { return len(f.stoppedTurns) == 1 })
}

// The palette finds threads that the sidebar does not list. Their names are text.
func TestThePaletteFindsThreadsBeyondTheSidebar(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("farfaraway", "needle "+evil)
	for i := range 110 {
		f.thread(fmt.Sprintf("filler%04d", i), "Filler")
	}
	b := newTab(t, f.start(t))
	b.open("/houses/home")
	b.untilLive()
	if eval[bool](b, "!!document.querySelector('#place-farfaraway')") {
		t.Fatal("the sidebar lists it")
	}
	b.ask("needle", "the thread", chosen+"?.innerText.startsWith('needle <script>')")
	b.enter()
	b.until("the thread", "location.pathname === '/threads/farfaraway'")
	if eval[bool](b, "!!window.evil") {
		t.Error("the name was run")
	}
}
