package web_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// press presses a key that types no text.
func (b *tab) press(key string, code int64) {
	b.t.Helper()
	event := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: key, Code: key, WindowsVirtualKeyCode: code}
	call(b, input.DispatchKeyEvent, event)
	event.Type = input.DispatchKeyEventTypeKeyUp
	call(b, input.DispatchKeyEvent, event)
}

const tabKey, escapeKey, upKey, downKey = 9, 27, 38, 40

func TestTheMenuOfNamesAndCommands(t *testing.T) {
	t.Parallel()
	f := newFake()
	for i, name := range []string{"Grace Hopper", "Gregor", "Ångström", evil} {
		f.agents = append(f.agents, &arbev1.Agent{Id: fmt.Sprintf("7f6f0a52-0000-4000-8000-00000000001%d", i), Kind: "human", Name: name})
	}
	f.agents = append(f.agents, &arbev1.Agent{Id: "7f6f0a52-0000-4000-8000-000000000020", Kind: "bot", Runtime: "pi", Name: "The Reviewer", Handle: "coder"})
	f.thread("t1", "Talk")
	b := newTab(t, f.start(t))
	b.open("/threads/t1")
	b.untilLive()

	const text = "#composer-text"
	types := func(t *testing.T, what string) {
		t.Helper()
		eval[int](b, "(document.querySelector('"+text+"').value = '', 1)")
		b.in(t).do(keysInto(text, what))
	}
	offers := func(t *testing.T, want ...string) {
		t.Helper()
		script := fmt.Sprintf("[...document.querySelectorAll('#composer-text-menu [role=option] .completion')].map(e => e.innerText).join() === %q", strings.Join(want, ","))
		b.in(t).until("the menu to offer "+strings.Join(want, ", "), script)
	}
	says := func(t *testing.T, want string) {
		t.Helper()
		b.in(t).until("the text "+want, fmt.Sprintf("document.querySelector('%s').value === %q", text, want))
		offers(t)
	}

	t.Run("a name is found by its beginning, or that of a word in it, and Enter takes it", func(t *testing.T) {
		types(t, "ask @GR")
		offers(t, "Grace Hopper", "Gregor")
		b.until("the first one to be chosen", "document.getElementById(document.querySelector('"+text+"').getAttribute('aria-activedescendant'))?.getAttribute('aria-selected') === 'true'")
		b.press("ArrowDown", downKey)
		b.enter()
		says(t, "ask @Gregor ")
		types(t, "@hop")
		offers(t, "Grace Hopper")
		b.press("Tab", tabKey)
		says(t, "@Grace Hopper ")
		types(t, "@ang")
		offers(t, "Ångström")
		if n := len(f.log("t1")); n != 0 {
			t.Errorf("%d entries were sent", n)
		}
	})
	t.Run("a bot is found by its handle and by its name, and mentioned by its handle", func(t *testing.T) {
		types(t, "@cod")
		offers(t, "coder")
		types(t, "@revi")
		offers(t, "coder")
		b.enter()
		says(t, "@coder ")
	})
	t.Run("the arrows go round, and a click takes what it is on", func(t *testing.T) {
		types(t, "@gr")
		offers(t, "Grace Hopper", "Gregor")
		b.press("ArrowUp", upKey)
		b.until("the last one to be chosen", "document.querySelector('#composer-text-menu [aria-selected=true]').innerText.includes('Gregor')")
		b.in(t).do(chromedp.Click(chromedp.CSS("#composer-text-menu li:first-child")))
		says(t, "@Grace Hopper ")
	})
	t.Run("Escape puts it away, and Enter sends then", func(t *testing.T) {
		types(t, "hello @gr")
		offers(t, "Grace Hopper", "Gregor")
		b.press("Escape", escapeKey)
		offers(t)
		if !eval[bool](b, "document.activeElement.id === 'composer-text'") {
			t.Error("the text lost the focus")
		}
		b.in(t).do(keysInto(text, "e"))
		offers(t)
		b.enter()
		f.until(t, "what was written", func() bool {
			log := f.logs["t1"]
			return len(log) > 0 && strings.Contains(log[len(log)-1].Payload, "hello @gre")
		})
	})
	t.Run("a slash at the beginning offers the commands, and nowhere else", func(t *testing.T) {
		types(t, "/")
		offers(t, "/run COMMAND", "/delegate @AGENT TASK", "/think LEVEL TEXT")
		b.press("Tab", tabKey)
		says(t, "/run ")
		types(t, "either/")
		says(t, "either/")
		types(t, "mail ada@gr")
		says(t, "mail ada@gr")
	})
	t.Run("a path is completed folder by folder, from the sandbox", func(t *testing.T) {
		f.mu.Lock()
		f.tree = map[string]string{"src/menu.go": "", "README.md": "", "bad\u202e": ""}
		f.mu.Unlock()
		types(t, "look at @")
		b.in(t).until("a way to the files", "document.querySelector('#composer-text-menu li:last-child .completion')?.innerText === './'")
		types(t, "look at @./")
		offers(t, "README.md", "src/")
		b.press("ArrowDown", downKey)
		b.enter()
		b.in(t).until("the folder", "document.querySelector('"+text+"').value === 'look at @src/'")
		offers(t, "menu.go")
		b.pictures("files-menu")
		b.in(t).do(keysInto(text, "men"))
		offers(t, "menu.go")
		b.press("Tab", tabKey)
		says(t, "look at `src/menu.go` ")
		types(t, "@nothing/")
		offers(t)
	})
	t.Run("a name is only text", func(t *testing.T) {
		types(t, "@<scr")
		offers(t, evil)
		if eval[bool](b, "!!window.evil || !!document.querySelector('.completions script, .completions img')") {
			t.Error("a name is more than text")
		}
	})
	t.Run("who joins is offered, and who leaves is not, without a reload", func(t *testing.T) {
		f.mu.Lock()
		f.agents = append(slices.DeleteFunc(f.agents, func(a *arbev1.Agent) bool { return a.Name == "Gregor" }),
			&arbev1.Agent{Id: "7f6f0a52-0000-4000-8000-000000000030", Kind: "human", Name: "Greta"})
		f.wake()
		f.mu.Unlock()
		b.in(t).until("the names that the page has", "[...document.querySelector('#completions').content.querySelectorAll('[data-kind=name]')].some(e => e.dataset.name === 'Greta')")
		types(t, "@gre")
		offers(t, "Greta")
		types(t, "@gr")
		offers(t, "Grace Hopper", "Greta")
	})
	t.Run("it is there where a thread begins, too", func(t *testing.T) {
		b.open("/houses/home")
		b.untilLive()
		b.in(t).do(keysInto("#starter-text", "@cod"))
		b.in(t).until("the menu", "document.querySelector('#starter-text-menu [role=option] .completion')?.innerText === 'coder'")
	})
}
