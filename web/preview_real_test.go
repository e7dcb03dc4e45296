package web_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/internal/port/porttest"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// inBox runs a command in the sandbox of a thread, and returns what it prints.
func inBox(t *testing.T, c *arbe.Client, thread, line string) string {
	t.Helper()
	var out bytes.Buffer
	req := &arbev1.RunCommandRequest{Id: uuid.NewString(), ThreadId: thread, What: &arbev1.RunCommandRequest_Argv{Argv: &arbev1.Argv{Args: []string{"/bin/sh", "-c", line}}}}
	if _, err := c.Run(t.Context(), req, arbe.WithOutput(&out, &out)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// livePage is a page like those of development servers: a WebSocket and a stream of events keep it current.
const livePage = `<!doctype html><title>live</title><script>
const socket = new WebSocket(location.origin.replace('http', 'ws') + '/socket')
socket.onopen = () => socket.send('hot reload')
socket.onmessage = event => { document.title += ' ' + event.data }
new EventSource('/events').onmessage = event => { document.title += ' ' + event.data }
</script>`

// hostilePage attacks the house, another preview and its own cookies, and collects the results in window.got.
const hostilePage = `<!doctype html><title>hostile</title><body><script>
const house = HOUSE, thread = THREAD, other = OTHER
const got = {}
const form = new URLSearchParams({ text: 'hacked' })
const limited = promise => Promise.race([promise, new Promise((_, no) => setTimeout(() => no('late'), 5000))])
const attempt = async (name, what) => { try { got[name] = String(await limited(what())) } catch { got[name] = 'refused' } }
const loads = (tag, address) => new Promise((yes, no) => {
	const e = document.createElement(tag)
	e.src = address; e.onload = () => yes('loaded'); e.onerror = no
	document.body.append(e)
})
const framed = address => new Promise(yes => {
	const e = document.createElement('iframe')
	e.src = address
	e.onload = () => { try { yes(e.contentDocument.body.innerText || 'refused') } catch { yes('refused') } }
	document.body.append(e)
})
;(async () => {
	await attempt('reading a page of the house', async () => (await fetch(house + '/threads/' + thread, { credentials: 'include' })).text())
	await attempt('reading a stream of the house', async () => {
		const answer = await fetch(house + '/api/stream/arbe-thread-' + thread + '?offset=-1', { credentials: 'include' })
		return answer.ok ? answer.text() : 'refused'
	})
	await attempt('framing the house', () => framed(house + '/threads/' + thread))
	await attempt('reading another preview', async () => (await fetch(other + '/', { credentials: 'include' })).text())
	await attempt('framing another preview', () => framed(other + '/'))
	await attempt('a script of another preview', () => loads('script', other + '/page.js'))
	await attempt('a WebSocket of another preview', () => new Promise((yes, no) => {
		const socket = new WebSocket(other.replace('http', 'ws') + '/socket')
		socket.onopen = () => yes('open'); socket.onerror = no
	}))
	await attempt('its own pass', async () => document.cookie.includes('arbe') ? document.cookie : 'refused')
	await attempt('a header with its pass', async () => { const text = await (await fetch('/headers')).text(); return text.includes('arbe_') ? text : 'refused' })
	const noCors = (path, body, type) => fetch(house + path, { method: 'POST', mode: 'no-cors', credentials: 'include', body, headers: { 'Content-Type': type } }).catch(() => {})
	await noCors('/threads/' + thread + '/entries', form, 'application/x-www-form-urlencoded')
	await noCors('/threads/' + thread + '/delete', form, 'application/x-www-form-urlencoded')
	await noCors('/arbe.v1.EntryService/Append', JSON.stringify({ threadId: thread, type: 'chat', payload: '{"text":"hacked"}' }), 'text/plain')
	await noCors('/logout', form, 'application/x-www-form-urlencoded')
	await fetch(other + '/upload', { method: 'POST', mode: 'no-cors', credentials: 'include', body: 'hacked' }).catch(() => {})
	document.body.insertAdjacentHTML('beforeend', '<iframe name="target"></iframe><form id="f" method="post" target="target" action="' + house + '/threads/' + thread + '/entries"><input name="text" value="hacked"></form>')
	const answered = new Promise(yes => { document.querySelector('[name=target]').onload = yes })
	document.querySelector('#f').submit()
	await attempt('', () => answered)
	delete got['']
	window.got = got
})()
</script>`

// TestPreviews uses previews as people do, with a server, a sandbox and a browser, and attacks the house from a preview.
func TestPreviews(t *testing.T) {
	t.Parallel()
	for name, hosts := range map[string]func(port string) (house string, env []string){
		"on a laptop": func(port string) (string, []string) { return "http://127.0.0.1:" + port, nil },
		// This is the hardest case: browsers treat the house and its previews as one site, and do not say where requests come
		// from.
		"on hosts of one domain, without TLS": func(port string) (string, []string) {
			house := "http://house.arbe.test:" + port
			return house, []string{"ARBE_PUBLIC_URL=" + house, "ARBE_PREVIEW_URL=http://preview.arbe.test:" + port}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := installation(t)
			house, env := hosts(a.addr[strings.LastIndex(a.addr, ":")+1:])
			a.env = env
			a.start()
			previewed(t, a, house)
		})
	}
}

func previewed(t *testing.T, a *arbeInstallation, house string) {
	c := a.client()
	link, err := c.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t, house)
	b.allow("") // attacks that fail are errors
	b.logOut()
	b.open(link.Path)
	b.do(chromedp.Click(chromedp.CSS("form[action='/login'] button")))
	b.until("the house", "location.pathname.startsWith('/houses/')")
	thread, other := a.thread(c, 0), a.thread(c, 0)
	open := func(t *testing.T, thread string) (origin string) {
		b := b.in(t)
		b.open("/threads/" + thread + "/preview?port=3000")
		b.do(chromedp.Click(chromedp.CSS("main button.primary")))
		b.until("the preview", "location.origin !== "+quoted(house)+" && location.pathname === '/'")
		return eval[string](b, "location.origin")
	}
	t.Run("a port at which nothing listens tries again, until something does", func(t *testing.T) {
		inBox(t, c, thread, "true")
		origin := open(t, thread)
		b := b.in(t)
		b.until("why there is nothing", "document.body.innerText.includes('Nothing listens on this port')")
		inBox(t, c, thread, porttest.Start(3000))
		b.until("what the program serves", "document.body.innerText.startsWith('GET /')")
		if strings.Contains(origin, thread) {
			t.Errorf("the origin %s tells the thread", origin)
		}
	})
	save := func(page string) {
		inBox(t, c, thread, "cat > page.html <<'END'\n"+page+"\nEND")
	}
	t.Run("a page is kept current", func(t *testing.T) {
		save(livePage)
		b := b.in(t)
		b.do(chromedp.Navigate(open(t, thread) + "/page"))
		b.until("what the WebSocket and the stream sent", "document.title.includes('hot reload') && document.title.includes('first')")
	})
	t.Run("a hostile page gets nothing of the house and of other previews", func(t *testing.T) {
		inBox(t, c, other, porttest.Start(3000)+"; echo secret of the other > page.html")
		theirs := open(t, other)
		mine := open(t, thread)
		save(strings.NewReplacer("HOUSE", quoted(house), "THREAD", quoted(thread), "OTHER", quoted(theirs)).Replace(hostilePage))
		b := b.in(t)
		b.do(chromedp.Navigate(mine + "/page"))
		b.until("the end of the attacks", "!!window.got")
		got := eval[map[string]string](b, "window.got")
		if len(got) != 9 {
			t.Errorf("there were %d attacks: %v", len(got), got)
		}
		for attack, result := range got {
			if result != "refused" {
				t.Errorf("%s: %s", attack, result)
			}
		}
		b.open("/threads/" + thread) // the thread is there, and the reader is still logged in
		b.until("the thread", "!!document.querySelector('#log')")
		log, err := c.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread, Limit: 200})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range log.Entries {
			if e.Type == "chat" {
				t.Errorf("the page said %s in the name of its reader", e.Payload)
			}
		}
		if log := inBox(t, c, other, "cat site.log"); strings.Contains(log, "POST") {
			t.Errorf("the other preview got a form: %s", log)
		}
	})
	t.Run("who logs out sees it no longer", func(t *testing.T) {
		mine := open(t, thread)
		b := b.in(t)
		b.open("/")
		b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('form[action=\"/logout\"]').submit()"))
		b.until("the way in", "location.pathname === '/login'")
		b.do(chromedp.Navigate(mine + "/"))
		b.until("a page of arbe", "!!document.querySelector('a[href*=\"/threads/"+thread+"/preview\"]') && !document.body.innerText.startsWith('GET /')")
	})
}

// quoted returns a text as a string literal of a script.
func quoted(text string) string {
	literal, _ := json.Marshal(text)
	return string(literal)
}
