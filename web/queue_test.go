package web_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
)

// waiting adds a thread that Bee drives, with waiting messages that have these ids.
func (f *fake) waiting(thread string, ids ...string) {
	f.drives(thread)
	f.says(thread, bee, "run.1.take.0", entry.QueueTaken{Epoch: 1, EntryIDs: []string{"task"}})
	for _, id := range ids {
		f.says(thread, f.me.Id, id, entry.Chat{Text: "do " + id})
	}
}

// Without the script, the queue is a list of forms.
func TestTheQueueIsChangedWithForms(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.waiting("queued001", "one", "two", "<three>")
	c := ada(t, f)
	_, text := c.get("/threads/queued001")
	contains(t, text, "Waiting for Bee: 3 messages", "do one", "do &lt;three&gt;", `action="/threads/queued001/queue"`)
	harmless(t, text)
	for _, form := range []url.Values{
		{"entry_id": {"two"}, "version": {"5"}, "once": {"a"}, "edit": {"do two better"}},
		{"entry_id": {"<three>"}, "version": {"6"}, "once": {"b"}, "move": {"one"}},
		{"entry_id": {"one"}, "version": {"4"}, "once": {"c"}, "cancel": {"true"}},
	} {
		if res, text := c.post("/threads/queued001/queue", form); res.StatusCode != 303 || res.Header.Get("Location") != "/threads/queued001" {
			t.Fatalf("%v: %s %s", form, res.Status, text)
		}
	}
	_, text = c.get("/threads/queued001")
	contains(t, text, "Waiting for Bee: 2 messages", "Ada, edited by Ada", "cancelled by Ada; Bee was not told this", "edited by Ada for Bee: do two better", "Ada moved “do &lt;three&gt;” before “do one”")
	list := text[strings.Index(text, `id="queue"`):strings.Index(text, `id="composer"`)]
	if first, second := strings.Index(list, "do &lt;three&gt;"), strings.Index(list, "do two better"); first < 0 || second < first {
		t.Errorf("the list is %s", list)
	}
	lacks(t, list, "do one")
	if res, text := c.post("/threads/queued001/queue", url.Values{"entry_id": {"two"}, "version": {"99"}, "edit": {"x"}}); res.StatusCode != 409 || !strings.Contains(text, "omebody else changed this message") {
		t.Errorf("a stale change: %s %s", res.Status, text)
	}
	if res, _ := c.post("/threads/queued001/queue", url.Values{"entry_id": {"two"}, "version": {"x"}}); res.StatusCode != 400 {
		t.Errorf("no version: %s", res.Status)
	}
	f.thread("talk00001", "Talk")
	_, text = c.get("/threads/talk00001")
	contains(t, text, `<section id="queue" class="queue" aria-label="Messages that wait" hidden></section>`)
}

// The list changes while the page is open, and a text being edited stays.
func TestTheQueueIsLive(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.waiting("queued002")
	b := newTab(t, f.start(t))
	b.open("/threads/queued002")
	b.untilLive()
	b.until("that nothing waits", "document.querySelector('#queue').hidden")
	f.says("queued002", f.me.Id, "one", entry.Chat{Text: "do one"})
	f.says("queued002", f.me.Id, "two", entry.Chat{Text: "do two"})
	run := func(script string) { eval[int](b, "(() => { "+script+"; return 1 })()") }
	const items = "[...document.querySelectorAll('#queue .queued-text')].map(p => p.innerText).join()"
	b.until("two messages", items+" === 'do one,do two'")

	run("document.querySelectorAll('#queue summary')[0].click(); document.querySelector('#queue textarea').value = 'do one better'")
	f.says("queued002", f.me.Id, "three", entry.Chat{Text: "do three"})
	b.until("the third", items+" === 'do one,do two,do three'")
	b.until("the text that is being edited", "document.querySelector('#queue details[open] textarea')?.value === 'do one better'")
	run("document.querySelector('#queue details[open] button').click()")
	b.until("the edited text", items+" === 'do one better,do two,do three' && !document.querySelector('#queue details[open]')")
	b.until("that the log says so", "document.querySelector('#log').innerText.includes('edited by Ada for Bee: do one better')")

	run("document.querySelectorAll('#queue button[title=Earlier]')[1].click()")
	b.until("the third before the second", items+" === 'do one better,do three,do two'")
	run("document.querySelector('#queue button[title=Later]').click()")
	b.until("the first behind the third", items+" === 'do three,do one better,do two'")
	run("document.querySelectorAll('#queue button[name=cancel]')[2].click()")
	b.until("two messages", items+" === 'do three,do one better'")
	b.until("that the log says so", "document.querySelector('#log .entry:has(.fate.gone)')?.innerText.includes('do two')")
	b.loadAxe()
	b.accessible("a queue")
	f.says("queued002", bee, "run.1.take.1", entry.QueueTaken{Epoch: 1, EntryIDs: []string{"three", "one"}})
	b.until("that nothing waits", "document.querySelector('#queue').hidden")
}

// Where an agent takes messages while it works, people choose whether a message waits, and send it now after all. Where it does
// not, there is no choice, and the page says when it gets the message.
func TestTheTimeOfAMessageIsChosenOnThePage(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.waiting("steered01")
	f.waiting("queued003", "one")
	c := ada(t, f)
	_, text := c.get("/threads/queued003")
	contains(t, text, "The next prompt, when the current work is done.")
	lacks(t, text, `name="queue"`)
	_, text = c.get("/threads/steered01")
	contains(t, text, `type="checkbox" name="queue"`)

	b := newTab(t, f.start(t))
	b.open("/threads/steered01")
	b.untilLive()
	b.until("the choice", "document.querySelector('.composer .later').checkVisibility()")
	b.do(chromedp.Click(chromedp.CSS(".composer .later input")), keysInto("#composer-text", "do it later"))
	b.do(chromedp.Click(chromedp.CSS(".composer .send")))
	b.until("that it waits", "document.querySelector('#queue button[name=queue][value=false]') !== null && !document.querySelector('.composer .later input').checked")
	if said := f.last("steered01"); !strings.Contains(said.Payload, `"queue":true`) {
		t.Errorf("the last entry is %v", said)
	}
	b.loadAxe()
	b.accessible("a choice")
	eval[int](b, "setTimeout(() => document.querySelector('#queue button[name=queue]').click())") // the queue may move under the pointer
	b.until("that it can wait again", "document.querySelector('#queue button[name=queue][value=true]') !== null")
	b.until("that the log says so", "document.querySelector('#log').innerText.includes('Ada sends “do it later” to Bee now')")
}
