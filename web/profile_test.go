package web_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestSomebodyWithoutANameIsAskedForIt(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.unnamed, f.me.Name = true, "Owner"
	b := newTab(t, f.start(t))
	b.open("/houses/home")
	b.until("the question", "document.querySelector('.name-form')?.innerText.includes('Others see you as “Owner” now.')")
	b.accessibleEverywhere("the question for a name")
	b.pictures("name")
	b.do(keysInto("#f-name", "Grace Hopper"), chromedp.Click(chromedp.CSS(".name-form button")))
	b.until("the name in place of the question", "location.pathname === '/houses/home' && !document.querySelector('.name-form') && document.querySelector('.me').innerText.includes('Grace Hopper')")
	b.open("/profile")
	b.until("the name on one's page", "document.querySelector('#f-name').value === 'Grace Hopper'")
	b.accessibleEverywhere("the profile")
	b.pictures("profile")
}

func TestTheProfileKeepsWhatItRefuses(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := ada(t, f)
	res, page := c.post("/profile", url.Values{"name": {"Ada\tLovelace"}, "back": {"/houses/home"}})
	want(t, res, http.StatusBadRequest, "")
	contains(t, page, `<span class="wrong">It has a tab`, "value=\"Ada\tLovelace\"", `name="back" value="/houses/home"`)
	res, _ = c.post("/profile", url.Values{"name": {"Ada"}, "back": {"https://example.com/"}})
	want(t, res, http.StatusSeeOther, "/")
	res, _ = c.post("/profile", url.Values{"name": {"Ada"}})
	want(t, res, http.StatusSeeOther, "/profile?saved")
}
