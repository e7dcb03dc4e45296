package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestSomeoneComesBackLater plays the return of a third person. While she was away, others worked and asked for her, the server
// was killed, and the sandbox was destroyed. Her page says what needs her, she finds the rest, and she picks the work up.
func TestSomeoneComesBackLater(t *testing.T) {
	t.Parallel()
	a := installation(t)
	a.start()
	c := a.client()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	homes, err := c.Houses.ListHouses(ctx, &arbev1.ListHousesRequest{})
	must(err)
	house := homes.Houses[0].Id
	invite, err := c.Houses.CreateInvite(ctx, &arbev1.CreateInviteRequest{HouseId: house})
	must(err)
	joined, err := arbe.New("http://"+a.addr, "").Houses.AcceptInvite(ctx, &arbev1.AcceptInviteRequest{Token: strings.TrimPrefix(invite.Path, "/join?token="), Name: "Cleo"})
	must(err)
	her := arbe.New("http://"+a.addr, joined.Session)
	_, err = her.Houses.CreateHouse(ctx, &arbev1.CreateHouseRequest{Name: "Her own"})
	must(err)

	thread := func(name string, lines ...string) *arbev1.Thread {
		t.Helper()
		made, err := c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: house, Name: name})
		must(err)
		for _, line := range lines {
			_, err := c.Entries.Say(ctx, &arbev1.SayRequest{ThreadId: made.Thread.Id, Text: line})
			must(err)
		}
		return made.Thread
	}
	noise := thread("Noise", "Nothing here is for her.")
	_, err = her.Inboxes.MuteThread(ctx, &arbev1.MuteThreadRequest{ThreadId: noise.Id, Muted: true})
	must(err)
	notes := thread("Release notes", "!echo the first draft > notes.md; cat notes.md", "The *zanzibar* flag is gone.", "@Cleo, can you finish it?")
	direct, err := c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: house, ParentAgentId: joined.Agent.Id, Reuse: true})
	must(err)
	_, err = c.Entries.Say(ctx, &arbev1.SayRequest{ThreadId: direct.Thread.Id, Text: "Call me when you are back."})
	must(err)
	await(t, c, notes.Id, `"exit_code":0`)
	box, err := c.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: notes.Id})
	must(err)
	_, err = c.Sandboxes.DestroySandbox(ctx, &arbev1.DestroySandboxRequest{Id: box.Thread.SandboxId})
	must(err)
	a.kill()
	a.start()

	b := newTab(t, "http://"+a.addr)
	call(b, network.SetCookie, network.SetCookieParams{Name: "arbe_session", Value: joined.Session, URL: b.base})
	b.open("/houses/" + house)
	b.untilLive()
	needs := func(n int) {
		t.Helper()
		b.until(fmt.Sprint("the number of threads that need her: ", n), fmt.Sprintf("document.title.startsWith('(%d) ') && document.querySelector('#mine .count').innerText === '%[1]d'", n))
	}
	needs(2)
	b.until("which these are", "[...document.querySelectorAll('#needs-rows .thread-name')].map(n => n.innerText).sort().join() === 'Call me when you are back.,Release notes'")
	b.until("what is unread", fmt.Sprintf("['%s', '%s'].every(id => document.querySelector('#place-' + id)?.classList.contains('unread'))", notes.Id, direct.Thread.Id))
	if eval[bool](b, "!!document.querySelector('#direct [id=\"place-"+notes.Id+"\"]')") {
		t.Error("a thread of the house is listed as a direct message")
	}

	b.do(chromedp.KeyEvent("?"))
	b.until("the list of keys", "document.querySelector('#sheet').matches(':popover-open')")
	b.do(chromedp.KeyEvent("\x1b"))
	b.do(chromedp.KeyEvent("/"))
	b.until("the search", "location.pathname.endsWith('/search') && document.activeElement.id === 'search-text'")
	b.do(keysInto("#search-text", "zanzibar"))
	b.enter()
	b.until("what was said, with its thread", "[...document.querySelectorAll('main .thread-link')].some(a => a.innerText.includes('Release notes') && a.innerText.includes('zanzibar'))")
	b.do(chromedp.Click(chromedp.CSS("main .thread-link:has(.snippet)")))
	b.until("the entry that it found", "document.querySelector(':target')?.innerText.includes('zanzibar')")
	needs(1)
	b.until("the mention of her", "[...document.querySelectorAll('#log .mention')].some(m => m.innerText.includes('Cleo'))")

	b.write("!cat notes.md; echo and the last >> notes.md")
	b.until("the file, in another sandbox", "[...document.querySelectorAll('.screen')].filter(s => s.innerText.includes('the first draft')).length === 2")

	goTo := func(words, kind, arrived string) {
		t.Helper()
		eval[bool](b, "(document.activeElement.blur(), document.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', ctrlKey: true, bubbles: true })))")
		b.until("the palette", "document.querySelector('#palette').open")
		b.do(keysInto("#palette input", words))
		b.until("the choice of a "+kind, fmt.Sprintf("document.querySelector('#palette-choices [aria-selected=true]')?.innerText.endsWith(%q)", kind))
		b.enter()
		b.until("a "+kind, arrived)
		b.untilLive()
	}
	goTo("noise", "thread", "location.pathname === '/threads/"+noise.Id+"'")
	b.until("that it is muted", "document.querySelector('#mute').getAttribute('aria-pressed') === 'true'")
	b.untilAnother(func() { b.do(chromedp.Click(chromedp.CSS("#mute"))) })
	b.until("that it is not muted any more", "document.querySelector('#mute')?.getAttribute('aria-pressed') === 'false'")
	owner := eval[string](b, "document.querySelector('#direct .place-name').innerText")
	goTo(strings.ToLower(owner), "direct message", "location.pathname === '/threads/"+direct.Thread.Id+"'")
	b.until("that nothing needs her any more", "!document.title.startsWith('(') && !document.querySelector('#mine .count')")
	b.write("I am.")
	await(t, a.client(), direct.Thread.Id, "I am.")
	goTo("her own", "house", "document.querySelector('.house-name').innerText === 'Her own'")
	b.do(chromedp.Click(chromedp.CSS(".switch summary")))
	b.do(chromedp.Click(chromedp.CSS(".switch a:not([aria-current])")))
	b.until("the first house", "location.pathname === '/houses/"+house+"'")
}

// await waits until an entry of a thread contains a text.
func await(t *testing.T, c *arbe.Client, thread, text string) {
	t.Helper()
	for event, err := range c.Tail(t.Context(), thread, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(event.GetEntry().GetPayload(), text) {
			return
		}
	}
}
