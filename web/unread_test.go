package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// A line stands above the first message of others that the reader has not seen.
func TestALineStandsAboveWhatIsUnread(t *testing.T) {
	t.Parallel()
	const cleo = "7f6f0a52-0000-4000-8000-0000000000c1"
	f := newFake()
	f.agents = append(f.agents, &arbev1.Agent{Id: cleo, Kind: "human", Name: "Cleo"})
	f.thread("unreadline", "Talk")
	f.says("unreadline", cleo, "", entry.Chat{Text: "seen"})
	f.says("unreadline", f.me.Id, "", entry.Chat{Text: "mine"})
	f.says("unreadline", cleo, "", entry.Chat{Text: "first unread"})
	f.says("unreadline", cleo, "", entry.Chat{Text: "second unread"})
	c := ada(t, f)
	const line = `class="unread-line">New</p>`
	for _, read := range []*arbev1.Reading{{Seq: 0, Unread: 3}, {Seq: 4}} {
		read.ThreadId = "unreadline"
		f.inbox.Readings = []*arbev1.Reading{read}
		_, page := c.get("/threads/unreadline")
		log, _, _ := strings.Cut(page, `id="outbox"`)
		lacks(t, log, line)
	}
	f.inbox.Readings = []*arbev1.Reading{{ThreadId: "unreadline", Seq: 1, Unread: 2}}
	_, page := c.get("/threads/unreadline")
	_, after, found := strings.Cut(page, line)
	if !found || strings.Index(after, `id="e3"`) > strings.Index(after, `id="e4"`) || strings.Contains(after, `id="e2"`) {
		t.Errorf("the line is not above the first unread message: %.500s", after)
	}
	res, _ := c.post("/threads/unreadline/entries/3/unread", nil)
	want(t, res, http.StatusSeeOther, "/threads/unreadline")
}

// A reader marks messages as unread. The page that they do it on leaves them unread.
func TestMessagesAreMarkedUnread(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("markunread", "Talk")
	for _, text := range []string{"one", "two", "three"} {
		f.says("markunread", f.me.Id, text, entry.Chat{Text: text})
	}
	b := newTab(t, f.start(t))
	b.open("/threads/markunread")
	b.untilLive()
	f.until(t, "that it is read", func() bool { return f.called["MarkRead"] > 0 })
	b.hover("#e2")
	b.do(chromedp.Click(chromedp.CSS("#e2 .mark-unread button")))
	b.until("the line", "document.querySelector('#unread-line')?.nextElementSibling.id === 'e2' && document.body.innerText.includes('Marked unread from here.')")
	b.pictures("unread")
	f.says("markunread", f.me.Id, "four", entry.Chat{Text: "four"})
	b.until("a fourth message", "!!document.querySelector('#e4')")
	b.until("the number in the list", "document.querySelector('#place-markunread .unread-count')?.innerText === '1'")
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.inbox.Readings; len(r) != 1 || r[0].Seq != 1 {
		t.Errorf("the readings are %v", r)
	}
}
