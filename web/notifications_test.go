package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// serverKey is a key of a push server, in base64url.
const serverKey = "BMwfRHHMcCrJKzJpHDQLYoAVCpqRZtAgUrzB_D_dlMfJKvGUnjUqVvmbrmQxwTLhnFC2Bk0wUOOHkDsD7M4DYE0"

func TestAReaderChoosesHowTheyAreTold(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.notified = arbev1.GetNotificationsResponse{ServerKey: serverKey, SendsMail: true, Email: "ada" + evil + "@example.com", Devices: []*arbev1.PushDevice{
		{Id: "d1", Client: evil + "phone", CreatedAt: timestamppb.Now(), NotifiedAt: timestamppb.Now()}, {Id: "d2", CreatedAt: timestamppb.Now()},
	}}
	in := ada(t, f)
	_, page := in.get("/houses/home")
	contains(t, page, `<a href="/notifications">`)
	_, page = in.get("/notifications")
	contains(t, page, `<a class="place" href="/houses/home">`, `<a class="place" href="/notifications" aria-current>`, "Notify me on this device", `data-key="`+serverKey+`"`, "phone", "last notified", "Unknown", `value="d1"`, "It goes to ada")
	lacks(t, page, evil)

	res, _ := in.post("/notifications/devices/remove", url.Values{"device": {"d1"}})
	want(t, res, http.StatusSeeOther, "/notifications")
	res, _ = in.post("/notifications", url.Values{"digest": {"daily"}, "from": {"22:00"}, "to": {"07:30"}, "zone": {"Europe/Berlin"}})
	want(t, res, http.StatusSeeOther, "/notifications")
	if s := f.notified.Settings; s.Digest != arbev1.MailDigest_MAIL_DIGEST_DAILY || s.QuietHours.From != 1320 || s.QuietHours.To != 450 || s.QuietHours.TimeZone != "Europe/Berlin" {
		t.Errorf("it was set to %v", s)
	}
	_, page = in.get("/notifications")
	contains(t, page, `value="daily" selected`, `value="22:00"`, `value="07:30"`, `value="Europe/Berlin"`)
	lacks(t, page, `value="d1"`)
	for _, wrong := range []url.Values{
		{"from": {"22:00"}, "zone": {"UTC"}}, {"from": {"22:00"}, "to": {"25:00"}, "zone": {"UTC"}}, {"from": {"22:00"}, "to": {"07:00"}}, {"from": {"22:00"}, "to": {"07:00"}, "zone": {"Nowhere"}},
	} {
		res, page = in.post("/notifications", wrong)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(page, `role="alert"`) || !strings.Contains(page, `value="22:00"`) {
			t.Errorf("%v is answered with %d: %s", wrong, res.StatusCode, page)
		}
	}
	res, _ = in.post("/notifications", url.Values{"digest": {"off"}})
	want(t, res, http.StatusSeeOther, "/notifications")
	if s := f.notified.Settings; s.Digest != arbev1.MailDigest_MAIL_DIGEST_OFF || s.QuietHours != nil {
		t.Errorf("it was set to %v", s)
	}
	res, _ = in.post("/notifications/devices", url.Values{"endpoint": {"https://push.example.com/1"}, "p256dh": {"key"}, "auth": {"secret"}})
	want(t, res, http.StatusSeeOther, "/notifications")
	if len(f.pushed) != 1 || f.pushed[0].Endpoint != "https://push.example.com/1" || f.pushed[0].P256Dh != "key" || f.pushed[0].Auth != "secret" || f.pushed[0].UserAgent != "Go-http-client/1.1" {
		t.Errorf("it added %v", f.pushed)
	}
	f.notified.Email = ""
	_, page = in.get("/notifications")
	contains(t, page, `value="daily" disabled`, "No login provider has verified an address")
}

// serviceWorker returns the browser's id of the registered service worker.
func (b *tab) serviceWorker() serviceworker.RegistrationID {
	b.t.Helper()
	registered := make(chan serviceworker.RegistrationID, 1)
	err := chromedp.Listen(b.ctx, func(event any) {
		e, ok := event.(*serviceworker.EventWorkerRegistrationUpdated)
		if !ok {
			return
		}
		for _, r := range e.Registrations {
			if strings.HasPrefix(r.ScopeURL, b.base) && len(registered) == 0 {
				registered <- r.RegistrationID
			}
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	call(b, serviceworker.Enable, cdp.Empty{})
	select {
	case id := <-registered:
		return id
	case <-time.After(patience):
		b.t.Fatal("the browser names no service worker")
	}
	return ""
}

func TestAServiceWorkerShowsWhatIsPushed(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.notified.ServerKey = serverKey
	f.thread("plans", "Plans")
	f.says("plans", f.me.Id, "first", entry.Chat{Text: "hello"})
	b := newTabOf(t, chromium, f.start(t)) // the headless shell keeps no notifications
	if _, err := chromedp.CallBrowser(b.ctx, browser.SetPermission, browser.SetPermissionParams{Permission: &browser.PermissionDescriptor{Name: "notifications"},
		Setting: browser.PermissionSettingGranted, Origin: b.base, BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID}); err != nil {
		t.Fatal(err)
	}
	// The browser of the tests has no push service.
	b.before(`PushManager.prototype.subscribe = async options => {
		if (!window.reachable) throw new DOMException('it is away', 'AbortError')
		return { toJSON: () => ({ endpoint: 'https://push.example.com/' + options.userVisibleOnly, keys: { p256dh: options.applicationServerKey, auth: 'secret' } }) }
	}`)
	b.open("/notifications")
	b.until("the time zone of the browser", "document.querySelector('#f-zone').value !== ''")
	b.do(chromedp.Click(chromedp.CSS("#push button")))
	b.until("why it cannot", "document.querySelector('#push .problem').textContent === 'This browser does not reach its push service: it is away'")
	eval[bool](b, "window.reachable = true")
	f.fails("AddPushDevice", refused(connect.CodeResourceExhausted, "you have 20 devices with notifications", "remove one"))
	b.allow("429")
	b.do(chromedp.Click(chromedp.CSS("#push button")))
	b.until("what the server says", "document.querySelector('#push .problem').textContent.startsWith('You have 20 devices with notifications')")
	f.fails("AddPushDevice", nil)
	b.do(chromedp.Click(chromedp.CSS("#push button")))
	b.until("the device", "document.querySelector('#device-pushed') !== null")
	if p := f.pushed[0]; p.Endpoint != "https://push.example.com/true" || p.P256Dh != serverKey || p.Auth != "secret" || !strings.HasPrefix(p.UserAgent, "Mozilla/") {
		t.Errorf("it added %v", p)
	}

	id := b.serviceWorker()
	// shows delivers a message, and waits until a notification is shown. Deliveries may be lost while the worker is busy, and a repeated
	// one replaces the first.
	shows := func(data, want string) {
		t.Helper()
		for range 60 {
			call(b, serviceworker.DeliverPushMessage, serviceworker.DeliverPushMessageParams{Origin: b.base, RegistrationID: id, Data: data})
			found, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`new Promise(async done => {
				const worker = await navigator.serviceWorker.ready
				for (const end = Date.now() + 2000; Date.now() < end; await new Promise(next => setTimeout(next, 20))) {
					const all = await worker.getNotifications()
					if (all.filter(n => [n.title, n.body, n.tag, n.data].join('|') === '`+want+`').length === 1 && all.filter(n => n.tag === 'plans').length <= 1) return done(true)
				}
				done(false)
			})`, chromedp.EvalAwaitPromise))
			if err != nil {
				t.Fatal(err)
			}
			if found {
				return
			}
		}
		t.Errorf("no notification %s is shown", want)
	}
	shows(`{"title":"Plans","body":"Bob mentioned you","url":"/threads/plans?at=3#e3","tag":"plans"}`, "Plans|Bob mentioned you|plans|/threads/plans?at=3#e3")
	shows(`{"title":"Plans","body":"Work that you asked for has failed","url":"/threads/plans","tag":"plans"}`, "Plans|Work that you asked for has failed|plans|/threads/plans")
	shows("no JSON", "arbe||arbe|/")

	// Only a person's click lets a worker focus and open windows, so here it notes them instead.
	worker := b.worker()
	clicked := func(data, want string) {
		t.Helper()
		got, err := chromedp.Run(worker, chromedp.Evaluate[string](`new Promise(async done => {
			const did = []
			WindowClient.prototype.focus = async function () { did.push('focuses ' + new URL(this.url).pathname) }
			self.clients.openWindow = async url => { did.push('opens ' + url.replace(location.origin, '')) }
			await self.registration.showNotification('Plans', { data: '`+data+`', tag: 'clicked' })
			const [notification] = await self.registration.getNotifications({ tag: 'clicked' })
			const event = new NotificationEvent('notificationclick', { notification })
			let work
			event.waitUntil = promise => { work = promise }
			self.dispatchEvent(event)
			await work
			done(did.join() + ', ' + (await self.registration.getNotifications({ tag: 'clicked' })).length + ' left')
		})`, chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("a click on %s %s, want %s", data, got, want)
		}
	}
	clicked("/threads/plans?at=1#e1", "opens /threads/plans?at=1#e1, 0 left")
	clicked("https://elsewhere.example.com/threads/plans", ", 0 left")
	thread := b.another()
	thread.open("/threads/plans")
	thread.untilLive()
	eval[bool](thread, "window.same = true")
	clicked("/threads/plans?at=1#e1", "focuses /threads/plans, 0 left")
	thread.until("the entry in the open page", "location.hash === '#e1' && document.querySelector('#e1:target') && window.same")
	clicked("/threads/plans?at=70#e70", "focuses /threads/plans, 0 left")
	thread.until("an entry that the page does not have", "location.search === '?at=70' && !window.same")
}

// worker returns a context in which scripts run in the service worker of the tab's profile.
func (b *tab) worker() context.Context {
	b.t.Helper()
	all, err := chromedp.Targets(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, info := range all {
		if info.Type == "service_worker" && strings.HasPrefix(info.URL, b.base) {
			ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(info.TargetID))
			b.t.Cleanup(cancel)
			return ctx
		}
	}
	b.t.Fatalf("there is no service worker among %d targets", len(all))
	return nil
}

func TestAReaderMutesAThread(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("loud", "Loud")
	f.says("loud", f.me.Id, "abcdefgh", entry.Chat{Text: "hello"})
	b := newTab(t, f.start(t))
	b.open("/threads/loud")
	b.untilLive()
	for _, muted := range []string{"true", "false"} {
		b.untilAnother(func() { b.do(chromedp.Click(chromedp.CSS("#mute"))) })
		b.until("muted is "+muted, "document.querySelector('#mute')?.getAttribute('aria-pressed') === '"+muted+"'")
	}
}
