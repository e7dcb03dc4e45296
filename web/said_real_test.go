package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// as logs the tab in with a session.
func (b *tab) as(session string) *tab {
	b.t.Helper()
	call(b, network.SetCookie, network.SetCookieParams{Name: "arbe_session", Value: session, URL: b.base})
	return b
}

// TestTwoPeopleInOneThread checks what two people see of each other, one at a desk and one with a phone.
func TestTwoPeopleInOneThread(t *testing.T) {
	t.Parallel()
	a := installation(t)
	a.start()
	api := a.client()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	token := func(path string) string {
		_, token, _ := strings.Cut(path, "token=")
		return token
	}
	link, err := api.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	must(err)
	in, err := api.Agents.RedeemLoginLink(t.Context(), &arbev1.RedeemLoginLinkRequest{Token: token(link.Path)})
	must(err)
	homes, err := api.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	must(err)
	house := homes.Houses[0].Id
	invite, err := api.Houses.CreateInvite(t.Context(), &arbev1.CreateInviteRequest{HouseId: house})
	must(err)
	bob, err := arbe.New("http://"+a.addr, "").Houses.AcceptInvite(t.Context(), &arbev1.AcceptInviteRequest{Token: token(invite.Path), Name: "Bob"})
	must(err)
	made, err := api.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house, Name: "Release"})
	must(err)
	thread := made.Thread.Id

	desk := newTab(t, "http://"+a.addr).as(in.Session)
	phone := newTab(t, "http://"+a.addr).as(bob.Session)
	call(phone, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 844, DeviceScaleFactor: 1, Mobile: true})
	for _, b := range []*tab{desk, phone} {
		b.open("/threads/" + thread)
		b.untilLive()
	}
	both := func(t *testing.T, what, script string) {
		t.Helper()
		for _, b := range []*tab{desk, phone} {
			b.in(t).until(what, script)
		}
	}

	t.Run("each sees that the other is here", func(t *testing.T) {
		desk.in(t).until("Bob", "document.querySelector('#presence').textContent.includes('Bob is here')")
		phone.in(t).until("the other one", "/^.+ is here/.test(document.querySelector('#presence').textContent.trim()) && !document.querySelector('#presence').textContent.includes('Bob')")
	})
	t.Run("the last message is edited where it is written", func(t *testing.T) {
		b := desk.in(t)
		b.write("helo to all")
		both(t, "the message", says("helo to all", 1))
		b.until("that it can be edited", "!!document.querySelector('.own-last .revise')")
		b.do(chromedp.Focus(chromedp.CSS("#composer-text")))
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "ArrowUp", Code: "ArrowUp", WindowsVirtualKeyCode: 38})
		b.until("its text in the composer", "document.querySelector('#composer-text').value === 'helo to all' && document.querySelector('#replying').innerText.includes('Editing')")
		eval[int](b, "(e => { e.value = 'hello to all'; e.dispatchEvent(new Event('input')); return 1 })(document.querySelector('#composer-text'))")
		b.do(chromedp.Reload())
		b.untilLive()
		b.until("the edit after a reload", "document.querySelector('#composer-text').value === 'hello to all' && document.querySelector('#replying').innerText.includes('Editing')")
		b.do(chromedp.Focus(chromedp.CSS("#composer-text")))
		b.enter()
		both(t, "the new text", says("hello to all", 1)+" && !document.querySelector('#log').innerText.includes('helo to') && !!document.querySelector('.edited')")
		b.until("an empty composer", "document.querySelector('#composer-text').value === '' && document.querySelector('.replying').hidden")
	})
	t.Run("what it said before is shown to who asks", func(t *testing.T) {
		b := phone.in(t)
		b.do(chromedp.Click(chromedp.CSS(".edited > a")))
		b.until("the first wording", "document.querySelector('.wordings')?.innerText.includes('helo to all')")
	})
	t.Run("only the author of the last message can change it", func(t *testing.T) {
		if n := eval[int](phone.in(t), "document.querySelectorAll('.own-last').length"); n != 0 {
			t.Errorf("the other one may change %d messages", n)
		}
	})
	t.Run("a reaction is seen by all, with who reacts", func(t *testing.T) {
		b := phone.in(t)
		entry := eval[string](b, "document.querySelector('.react').closest('.entry').id")
		eval[int](b, "(document.querySelector('.react').click(), 1)") // beside the entry, when it is tapped
		b.do(chromedp.Click(chromedp.CSS("#react-picker button[value='🎉']")))
		chip := fmt.Sprintf("document.querySelector('#%s .reactions button[value=\"🎉\"]')", entry)
		both(t, "it", chip+"?.ariaLabel === '🎉 1: Bob'")
		b.until("that it is one's own", chip+".ariaPressed === 'true'")
		desk.in(t).until("that it is another one's", chip+".ariaPressed === 'false'")
		desk.in(t).do(chromedp.Click(chromedp.CSS("#" + entry + " .reactions button")))
		both(t, "both", chip+".ariaLabel.startsWith('🎉 2: Bob and ')")
		b.do(chromedp.Click(chromedp.CSS("#" + entry + " .reactions button")))
		both(t, "the other one", chip+".ariaLabel.startsWith('🎉 1: ') && !"+chip+".ariaLabel.includes('Bob')")
		b.open("/threads/" + thread)
		b.untilLive()
		b.until("it after a reload", chip+".ariaLabel.startsWith('🎉 1: ')")
	})
	t.Run("what a program says shows that", func(t *testing.T) {
		_, err := api.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: thread, Text: "built"})
		if err != nil {
			t.Fatal(err)
		}
		both(t, "how", "/via (API|key .+)/.test(document.querySelector('.via')?.innerText)")
		if n := eval[int](desk.in(t), "document.querySelectorAll('.via').length"); n != 1 {
			t.Errorf("%d entries say how they were said", n)
		}
	})
	t.Run("all of it is accessible", func(t *testing.T) {
		desk.in(t).accessibleEverywhere("a thread with reactions and edits")
	})
	t.Run("a deleted message is gone from every tab", func(t *testing.T) {
		b := desk.in(t)
		b.write("the password is hunter2")
		both(t, "the message", says("hunter2", 1))
		b.until("that it can be deleted", "document.querySelector('.own-last')?.innerText.includes('hunter2')")
		eval[int](b, "(window.confirm = () => true, document.querySelector('.own-last .unsay').click(), 1)")
		both(t, "that it is gone", "!document.querySelector('#log').innerHTML.includes('hunter2') && document.querySelectorAll('.unsaid').length === 1")
		for _, b := range []*tab{desk.in(t), phone.in(t)} {
			b.open("/threads/" + thread)
			b.untilLive()
			b.until("that it is gone after a reload", "!document.querySelector('#log').innerHTML.includes('hunter2') && document.querySelectorAll('.unsaid').length === 1")
		}
	})
	t.Run("who leaves is here no more", func(t *testing.T) {
		desk.in(t).until("Bob again", "document.querySelector('#presence').textContent.includes('Bob is here')")
		phone.in(t).open("/houses/" + house)
		desk.in(t).until("nobody else", "document.querySelector('#presence').textContent.trim() === ''")
	})
	t.Run("the page of the settings is named on a phone, and the others are one press away", func(t *testing.T) {
		b := phone.in(t)
		b.open("/houses/" + house + "/secrets")
		b.untilLive()
		b.until("its name in view", "document.querySelector('.settings-button').innerText.trim() === 'Secrets' && document.querySelector('.settings-button').getBoundingClientRect().bottom < innerHeight")
		b.do(chromedp.Click(chromedp.CSS(".settings-button")))
		b.do(chromedp.Click(chromedp.CSS("#settings-list a[href$='/models']")))
		b.until("another page", "location.pathname.endsWith('/models') && document.querySelector('.settings-button')?.innerText.trim() === 'Models'")
	})
	t.Run("who joined when reads as a sentence", func(t *testing.T) {
		b := phone.in(t)
		b.open("/houses/" + house + "/members")
		b.untilLive()
		b.until("all of them", `(rows => rows.length >= 2 && rows.every(e => /^joined (just now|\d+[mh] ago)$/.test(e.parentElement.innerText.trim())))([...document.querySelectorAll('.rows [id^=member-] time')])`)
	})
}
