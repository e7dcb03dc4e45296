package web_test

import (
	"net/http"
	"net/url"
	"testing"

	"connectrpc.com/connect"
)

func TestAReaderApprovesTheLoginOfATerminal(t *testing.T) {
	t.Parallel()
	const page = "/login/device?code=BCDF-GHJK"
	answer := func(as, word string) url.Values {
		return url.Values{"code": {"BCDF-GHJK"}, "as": {as}, "answer": {word}}
	}

	t.Run("after a login, if nobody is logged in", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		nobody := client{t: t, base: f.start(t)}
		res, _ := nobody.get(page)
		want(t, res, http.StatusSeeOther, "/login")
		remembered := res.Cookies()[0]
		res, _ = nobody.post("/login", url.Values{"token": {"fresh"}}, "Cookie", remembered.Name+"="+remembered.Value)
		want(t, res, http.StatusSeeOther, page)
		res, _ = nobody.post("/login/device", answer(f.me.Id, "approve"))
		want(t, res, http.StatusUnauthorized, "")
		if len(f.deviceAnswers) > 0 {
			t.Errorf("nobody answered %v", f.deviceAnswers)
		}
	})
	t.Run("on a page that says what asks, as whom, and when to deny", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		res, text := ada(t, f).get(page)
		contains(t, text, "Log in a terminal as Ada?", "<code>BCDF-GHJK</code>", "Approve only if your own terminal shows this code now.", "deny it",
			"arbe on &lt;b&gt;build&lt;/b&gt;", "192.0.2.7", "just now", `method="post" action="/login/device"`, `value="approve"`, `value="deny"`)
		lacks(t, text, "<b>build")
		if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Referrer-Policy") != "strict-origin" {
			t.Errorf("the code may leak: the headers are %v", res.Header)
		}
		if len(f.deviceAnswers) > 0 {
			t.Errorf("opening the page answers %v", f.deviceAnswers)
		}
	})
	t.Run("with a form of this page, and no other site's", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		in := ada(t, f)
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
			if res, _ := in.post("/login/device", answer(f.me.Id, "approve"), header...); res.StatusCode != http.StatusForbidden {
				t.Errorf("with %q it answers %d", header, res.StatusCode)
			}
		}
		res, _ := in.post("/login/device", answer("somebody who was logged in before", "approve"))
		want(t, res, http.StatusSeeOther, page)
		res, _ = in.post("/login/device", answer(f.me.Id, "perhaps"))
		want(t, res, http.StatusBadRequest, "")
		if len(f.deviceAnswers) > 0 {
			t.Errorf("these answered %v", f.deviceAnswers)
		}
		_, text := in.post("/login/device", answer(f.me.Id, "approve"), "Sec-Fetch-Site", "same-origin")
		contains(t, text, "Approved", "Your terminal logs in as Ada")
		_, text = in.post("/login/device", answer(f.me.Id, "deny"))
		contains(t, text, "Denied", "Nobody is logged in with this code.")
		if len(f.deviceAnswers) != 2 || f.deviceAnswers[0] != "BCDF-GHJK VERDICT_APPROVE" || f.deviceAnswers[1] != "BCDF-GHJK VERDICT_DENY" {
			t.Errorf("the answers are %q", f.deviceAnswers)
		}
	})
}

func TestAReaderTypesTheCodeOfATerminal(t *testing.T) {
	t.Parallel()
	f := newFake()
	in := ada(t, f)
	_, text := in.get("/login/device")
	contains(t, text, `method="get" action="/login/device"`, "shows it in your terminal")
	for code, status := range map[connect.Code]int{
		connect.CodeNotFound: http.StatusNotFound, connect.CodeFailedPrecondition: http.StatusPreconditionFailed, connect.CodeResourceExhausted: http.StatusTooManyRequests,
	} {
		f.fails("GetDeviceLogin", refused(code, "something is wrong with this code", "log in again in your terminal"))
		res, text := in.get("/login/device?code=%22%3E%3Cscript%3E")
		want(t, res, status, "")
		contains(t, text, "Something is wrong with this code. Log in again in your terminal.", `value="&#34;&gt;&lt;script&gt;"`)
	}
	f.fails("AnswerDeviceLogin", refused(connect.CodeFailedPrecondition, "this code has expired", "log in again in your terminal"))
	res, text := in.post("/login/device", url.Values{"code": {"BCDF-GHJK"}, "as": {f.me.Id}, "answer": {"approve"}})
	want(t, res, http.StatusPreconditionFailed, "")
	contains(t, text, "This code has expired. Log in again in your terminal.")
}
