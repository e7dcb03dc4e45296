package web_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// needs makes a thread need the reader.
func (f *fake) needs(thread, name string, reasons ...arbev1.NeedReason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inbox.Needs = append([]*arbev1.Need{{ThreadId: thread, ThreadName: name, Reasons: reasons, Seq: 1, At: timestamppb.Now()}}, f.inbox.Needs...)
	f.inbox.Readings = append(f.inbox.Readings, &arbev1.Reading{ThreadId: thread, Unread: 3})
	f.inbox.Total = int32(len(f.inbox.Needs))
	f.wake()
}

func TestWhatNeedsYouIsOnTopWithOneNumber(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("asksasks", "Asks <b>")
	f.thread("restrest", "Rest")
	f.needs("asksasks", "Asks <b>", arbev1.NeedReason_NEED_REASON_MENTION, arbev1.NeedReason_NEED_REASON_FINISHED)
	_, page := ada(t, f).get("/houses/home")
	contains(t, page, "<title id=\"title\">(1) Home · arbe</title>", `<span class="count">1</span>`, `href="/threads/asksasks#e1"`, "mentions you, finished", "Asks &lt;b&gt;")
	_, page = ada(t, f).get("/threads/restrest")
	contains(t, page, "<title id=\"title\">(1) Rest · Home</title>", `<span class="count">1</span>`)
}

func TestUnreadThreadsAreSeenInEveryTabUntilTheyAreRead(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("asksasks", "Asks")
	f.thread("restrest", "Rest")
	list := newTab(t, f.start(t))
	list.open("/houses/home")
	list.untilLive()
	list.until("nothing", "document.title === 'Home · arbe' && !document.querySelector('.unread, #needs-rows')")
	f.needs("asksasks", "Asks", arbev1.NeedReason_NEED_REASON_APPROVAL)
	const bold = "document.querySelector('#t-asksasks.unread .unread-count')?.innerText === '3' && !!document.querySelector('#place-asksasks.unread') && !document.querySelector('#t-restrest.unread')"
	list.until("the number, the row and the icon", "document.title === '(1) Home · arbe' && document.querySelector('#mine .count').innerText === '1' && "+bold+
		" && !!document.querySelector('#needs-rows #need-asksasks.waiting') && document.querySelector('#favicon').href.includes('/icon-needs')")
	f.update("asksasks", func(t *arbev1.Thread) { t.Name = "Renamed" })
	list.until("its new name, still bold", "document.querySelector('#t-asksasks .thread-name').innerText === 'Renamed' && "+bold)
	reader := list.another()
	reader.open("/threads/asksasks")
	f.says("asksasks", f.me.Id, "e1", entry.Chat{Text: "hello"})
	reader.until("it is read there", "document.title === 'Renamed · Home'")
	list.until("it is read here", "document.title === 'Home · arbe' && !document.querySelector('.unread, .unread-count, #needs-rows') && !document.querySelector('#favicon').href.includes('/icon-needs')")
}

func TestAnInboxSendsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	f := newFake()
	for i := range 100 {
		f.needs(fmt.Sprintf("many%04d", i), fmt.Sprintf("a long name of thread number %d", i), arbev1.NeedReason_NEED_REASON_FAILED)
	}
	l := listen(t, f.start(t), "mine/home/")
	if e := l.next(); len(e.P) != 3 || !strings.Contains(e.P[0].H, "thread number 99") {
		t.Fatalf("the first event is %.300v", e)
	}
	f.needs("newonenew", "one more", arbev1.NeedReason_NEED_REASON_MENTION)
	size := 0
	e := l.next()
	for _, p := range e.P {
		size += len(p.S) + len(p.H)
	}
	if size > 4<<10 || len(e.P) != 3 {
		t.Errorf("one more thread is %d patches of %d bytes", len(e.P), size)
	}
}

func TestANeedShowsAFaceAndASentenceAsText(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.needs("asksasks", "Asks", arbev1.NeedReason_NEED_REASON_MENTION)
	f.needs("nobodysa", "Quiet", arbev1.NeedReason_NEED_REASON_FINISHED)
	n := f.inbox.Needs[1]
	n.AgentId, n.AgentName, n.AgentKind, n.Text = "b1", evil, "bot", "**@ada** is "+evil+" right?"
	_, page := ada(t, f).get("/houses/home")
	row := page[strings.Index(page, `id="need-asksasks"`):]
	row = row[:strings.Index(row, "</li>")]
	contains(t, row, `class="disc`, "bot", `<b>`+html.EscapeString(evil), "@ada is "+html.EscapeString(evil)+" right?")
	lacks(t, page, evil, "**@ada**")
	row = page[strings.Index(page, `id="need-nobodysa"`):]
	lacks(t, row[:strings.Index(row, "</li>")], "disc", "thread-last")
}

// Without scripts, one form marks rows of the inbox as read, mutes them, and marks all that the page lists.
func TestTheInboxIsTendedInPlace(t *testing.T) {
	t.Parallel()
	f := newFake()
	for _, id := range []string{"firstone1", "secondone", "thirdone1", "waitsone1"} {
		f.thread(id, "Thread "+id)
		f.needs(id, "Thread "+id, arbev1.NeedReason_NEED_REASON_MENTION)
		f.inbox.Needs[0].Tail = 7
	}
	f.inbox.Needs[0].Seq, f.inbox.Needs[0].Reasons = 0, []arbev1.NeedReason{arbev1.NeedReason_NEED_REASON_APPROVAL}
	in := ada(t, f)
	_, page := in.get("/houses/home")
	contains(t, page, `action="/houses/home/inbox"`, `name="read" value="firstone1:7"`, `name="mute" value="waitsone1:7"`, "Mark all as read")
	lacks(t, page, `name="read" value="waitsone1:7"`, `name="listed" value="waitsone1:7"`)
	tend := func(form url.Values) string {
		t.Helper()
		res, _ := in.post("/houses/home/inbox", form)
		want(t, res, http.StatusSeeOther, "/houses/home#needs")
		_, page := in.get("/houses/home")
		return page
	}
	page = tend(url.Values{"read": {"firstone1:7"}, "listed": {"secondone:7", "thirdone1:7"}})
	lacks(t, page, `id="need-firstone1"`)
	contains(t, page, `id="need-secondone"`)
	if page = tend(url.Values{"mute": {"secondone:7"}}); !slices.ContainsFunc(f.inbox.Readings, func(r *arbev1.Reading) bool { return r.ThreadId == "secondone" && r.Muted }) {
		t.Errorf("it is not muted: %v", f.inbox.Readings)
	}
	lacks(t, page, `id="need-secondone"`)
	page = tend(url.Values{"all": {"true"}, "listed": {"thirdone1:7", "gone:3"}})
	lacks(t, page, `id="need-thirdone1"`, "Mark all as read")
	contains(t, page, `id="need-waitsone1"`)
	res, _ := in.post("/houses/home/inbox", url.Values{"read": {"thirdone1:x"}})
	want(t, res, http.StatusBadRequest, "")
}

// With the keyboard, rows are chosen, done and muted one after the other, and nothing else of the page changes.
func TestTheInboxIsTendedByKeyboard(t *testing.T) {
	t.Parallel()
	f := newFake()
	for _, id := range []string{"thirdone1", "secondone", "firstone1"} {
		f.thread(id, "Thread "+id)
		f.needs(id, "Thread "+id, arbev1.NeedReason_NEED_REASON_FINISHED)
		n := f.inbox.Needs[0]
		n.AgentId, n.AgentName, n.AgentKind, n.Text = "b1", "Bee", "bot", "The build is green again, and the door is painted."
	}
	b := newTab(t, f.start(t))
	b.open("/houses/home")
	b.untilLive()
	b.accessibleEverywhere("the inbox")
	b.pictures("inbox")
	b.do(chromedp.KeyEvent("j"))
	b.until("the first row", "document.activeElement.closest('li').id === 'need-firstone1'")
	b.do(chromedp.KeyEvent("e"))
	b.until("that it is done, and the next row", "!document.querySelector('#need-firstone1') && document.activeElement.closest('li').id === 'need-secondone'")
	b.do(chromedp.KeyEvent("m"))
	b.until("that it is muted, and the next row", "!document.querySelector('#need-secondone') && document.activeElement.closest('li').id === 'need-thirdone1'")
	b.do(chromedp.Click(chromedp.CSS("#needs .list-head button")))
	b.until("an empty inbox", "!document.querySelector('#needs-rows') && document.title === 'Home · arbe'")
	b.do(chromedp.KeyEvent("n"))
	b.until("that nothing is unread", "document.querySelector('#notice').innerText.includes('unread')")
}

func TestTheNextUnreadThreadIsOneKeyAway(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("unreadone", "Unread")
	f.thread("restrest", "Rest")
	f.inbox.Readings = append(f.inbox.Readings, &arbev1.Reading{ThreadId: "unreadone", Unread: 2})
	b := newTab(t, f.start(t))
	b.open("/threads/restrest")
	b.untilLive()
	b.do(chromedp.KeyEvent("n"))
	b.until("the unread thread", "location.pathname === '/threads/unreadone'")
}
