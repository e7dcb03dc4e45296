package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
)

// kept returns the record of a host that was refused to a command.
func kept(host string) entry.HostRefused {
	return entry.HostRefused{CommandID: "c1", SandboxID: "b1", EnvironmentID: "v1", Host: host, Program: "curl"}
}

func TestAHostThatWasRefusedIsAllowedOnThePage(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.begins("hosts")
	f.says("hosts", "", "r1", kept("example.com"))
	f.says("hosts", "", "r2", kept("93.184.216.34:443"))
	f.says("hosts", "", "r3", entry.HostRefused{CommandID: "c1", SandboxID: "b1", EnvironmentID: "v1", Host: "intranet", Program: "<b>x</b>", Private: true})
	c := ada(t, f)
	_, text := c.get("/threads/hosts")
	contains(t, text, "curl was kept from example.com, which the environment does not allow.", `action="/threads/hosts/hosts"`, `value="example.com"`,
		"curl was kept from 93.184.216.34:443", "&lt;b&gt;x&lt;/b&gt; was kept from intranet, which has no public address.")
	lacks(t, text, `value="93.184.216.34:443"`, `value="intranet"`)
	res, _ := c.post("/threads/hosts/hosts", url.Values{"environment": {"v1"}, "host": {"example.com"}})
	want(t, res, http.StatusSeeOther, "/threads/hosts")
	if fmt.Sprint(f.allowed) != "[v1 [example.com] hosts]" {
		t.Errorf("allowed were %v", f.allowed)
	}
	_, text = c.get("/threads/hosts")
	contains(t, text, "Ada allowed it.", "Ada allowed example.com for sandboxes of this environment.")
	lacks(t, text, `value="example.com"`)
}

func TestAHostIsAllowedWithOneClick(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.begins("hosts")
	f.says("hosts", "", "r1", kept("example.com"))
	f.says("hosts", "", "r2", kept("example.com"))
	b := newTab(t, f.start(t))
	b.open("/threads/hosts")
	b.until("the buttons", "document.querySelectorAll('.host-answer button').length === 2")
	b.do(chromedp.Click(chromedp.CSS(".host-answer button")))
	b.until("who allowed it, at both", "[...document.querySelectorAll('.host-answer')].filter(e => e.innerText.includes('Ada allowed it.')).length === 2 && !document.querySelector('.host-answer button')")
}
