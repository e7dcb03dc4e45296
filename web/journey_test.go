package web_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// outage is how long the server of TestANewcomersFirstHour is away: longer than a browser retries a request on its own, and
// longer than people wait at an unresponsive page.
const outage = time.Minute

// TestANewcomersFirstHour plays the first hour of two people in a house of 300 threads. One works at a desk, and invites the
// other, who has a phone. In the middle, the server is away for a minute.
func TestANewcomersFirstHour(t *testing.T) {
	t.Parallel()
	a := newInstallation(t)
	a.start()
	house := a.threads(300)
	link, err := a.client().Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	desk := newTab(t, "http://"+a.addr)
	desk.logOut()
	desk.open("/houses/" + house)
	desk.until("that she has to log in", "location.pathname === '/login'")
	desk.open(link.Path)
	desk.do(chromedp.Click(chromedp.CSS("form[action='/login'] button")))
	desk.until("the page she asked for", fmt.Sprintf("location.pathname === '/houses/%s'", house))
	desk.untilLive()

	t.Run("a list of 300 threads does not move the page", func(t *testing.T) {
		b := desk.in(t)
		for range 5 {
			b.do(chromedp.KeyEvent("j"))
		}
		b.until("a thread in the list has the focus", "!!document.activeElement.closest('.thread-item')")
		if moved := eval[float64](b, "document.scrollingElement.scrollTop + Math.abs(document.body.getBoundingClientRect().top)"); moved != 0 {
			t.Errorf("the page has moved by %v px", moved)
		}
	})
	t.Run("a thread begins with one line, and the next line can be typed at once", func(t *testing.T) {
		b := desk.in(t)
		b.open("/houses/" + house)
		b.untilLive()
		b.do(keysInto("#starter-text", "!echo built by $(whoami)"))
		b.enter()
		b.until("the thread", "location.pathname.startsWith('/threads/')")
		b.until("the focus in the composer", "document.activeElement.id === 'composer-text'")
		b.until("the output", "document.querySelector('.screen')?.innerText.includes('built by')")
	})
	thread := eval[string](desk, "location.pathname")

	phone := newTab(t, "http://"+a.addr)
	t.Run("a second person joins by a link, on a phone", func(t *testing.T) {
		b := desk.in(t)
		b.open("/houses/" + house + "/members")
		b.do(keysInto("#f-note", "Bob"))
		b.do(chromedp.Click(chromedp.CSS("form[action$='/invites'] button")))
		b.until("the link", "document.querySelector('#secret')?.value.includes('/join?token=')")
		invite := eval[string](b, "document.querySelector('#secret').value")
		path := invite[strings.Index(invite, "/join"):]

		b = phone.in(t)
		b.logOut()
		call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 844, DeviceScaleFactor: 2, Mobile: true})
		b.open(path)
		b.do(keysInto("#f-name", "Bob"))
		b.do(chromedp.Click(chromedp.CSS("form[action='/join'] button")))
		b.until("the house", fmt.Sprintf("location.pathname === '/houses/%s'", house))
		b.untilLive()
		if wide := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("the page is %d px too wide for a phone", wide)
		}
	})
	if t.Failed() {
		return
	}
	t.Run("what one of them says, the other sees", func(t *testing.T) {
		desk, phone := desk.in(t), phone.in(t)
		desk.open(thread)
		desk.untilLive()
		phone.open(thread)
		phone.untilLive()
		phone.write("hello from the phone.")
		desk.until("what he says, with his name", says("hello from the phone.", 1)+" && document.querySelector('#log').innerText.includes('Bob')")
		desk.write("!cat /etc/hostname; sleep 1000")
		// This is the Stop in the head. The Stop of a command moves down with the first lines of its output.
		phone.until("the command that runs, and Stop", "!!document.querySelector('.foot.running') && !!document.querySelector('#thread-head .stop button')")
		phone.do(chromedp.Click(chromedp.CSS("#thread-head .stop button")))
		desk.until("that he stopped it", "!document.querySelector('.foot.running') && document.querySelector('.foot.cancelled')?.innerText.includes('stopped by Bob')")
	})
	t.Run("what is written while the server is away is sent once, when it is back", func(t *testing.T) {
		desk, phone := desk.in(t), phone.in(t)
		a.kill()
		away := time.NewTimer(outage)
		desk.until("that the server is away", "document.documentElement.dataset.connection === 'lost'")
		phone.until("that the server is away", "document.documentElement.dataset.connection === 'lost'")
		desk.write("from the desk, meanwhile.")
		phone.write("from the phone, meanwhile.")
		<-away.C
		a.start()
		for _, b := range []*tab{desk, phone} {
			b.until("both", says("from the desk, meanwhile.", 1)+" && "+says("from the phone, meanwhile.", 1))
			b.until("an empty outbox and silence", "!document.querySelector('#outbox form') && !document.documentElement.dataset.connection")
		}
	})
	phone.allow("404") // for the thread that he may no longer see
	t.Run("who is removed sees the house no more", func(t *testing.T) {
		desk, phone := desk.in(t), phone.in(t)
		desk.open("/houses/" + house + "/members")
		desk.do(chromedp.Click(chromedp.CSS("li:has(form[action$='/remove'] input[value=members]) summary")))
		desk.do(chromedp.Click(chromedp.CSS("form[action$='/remove']:has(input[value=members]) button")))
		desk.until("that he is gone", "document.querySelectorAll('li[id^=member-]').length === 1")
		desk.open(thread)
		desk.until("his name at what he said", "document.querySelector('header b.left')?.title === 'Bob left this house'")
		phone.open(thread)
		phone.until("a page that says no more than that there is nothing", "document.title.startsWith('Error')")
	})
}

// threads makes n threads with one message each, and returns their house.
func (a *arbeInstallation) threads(n int) (house string) {
	a.t.Helper()
	c := a.client()
	homes, err := c.Houses.ListHouses(a.t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	house = homes.Houses[0].Id
	g, ctx := errgroup.WithContext(a.t.Context())
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error {
			made, err := c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: house, Name: fmt.Sprint("thread ", i)})
			if err != nil {
				return err
			}
			_, err = c.Entries.Say(ctx, &arbev1.SayRequest{ThreadId: made.Thread.Id, Text: fmt.Sprintf("This is about %d.", i)})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		a.t.Fatal(err)
	}
	return house
}
