package web_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestAThreadGetsAModelOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.models = priced()
	f.thread("modelmodel", "Hard work")
	b := newTab(t, f.start(t))
	b.open("/threads/modelmodel/model")
	b.until("that each bot uses its own", "document.querySelector('#f-model').value === ''")
	b.accessibleEverywhere("the model of a thread")
	b.pictures("threadmodel")
	b.do(chromedp.SetValue(chromedp.CSS("#f-model"), "anthropic/opus"), chromedp.SetValue(chromedp.CSS("#f-think"), "high"), chromedp.Click(chromedp.CSS("main form button")))
	b.until("the thread, which says so", "location.pathname === '/threads/modelmodel' && [...document.querySelectorAll('.facts a')].some(a => a.textContent === 'anthropic/opus' && a.nextElementSibling.textContent === 'thinks: high')")
	b.pictures("threadmodel-thread")

	c := client{t: t, base: b.base, session: "good"}
	res, page := c.post("/threads/modelmodel/model", url.Values{"model": {"other"}, "model_other": {"opus"}})
	want(t, res, http.StatusBadRequest, "")
	contains(t, page, `<span class="wrong">It does not say which provider`, `name="model_other" value="opus"`, `name="skip_check"`)
}
