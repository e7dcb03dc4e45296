package web_test

import (
	"net/http"
	"net/url"
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAReaderLogsOutElsewhere(t *testing.T) {
	t.Parallel()
	f := newFake()
	for _, id := range []string{"s1", "s2", "s3"} {
		f.sessions = append(f.sessions, &arbev1.Session{Id: id, Client: evil + id})
	}
	in := ada(t, f)
	end := func(form url.Values) string {
		t.Helper()
		res, _ := in.post("/sessions", form)
		want(t, res, http.StatusSeeOther, "/sessions")
		_, page := in.get("/sessions")
		return page
	}
	_, page := in.get("/houses/home")
	contains(t, page, `<a href="/sessions">`)
	_, page = in.get("/sessions")
	contains(t, page, "Go-http-client", "this one", `value="s1"`, `value="s3"`, "Log out everywhere else")
	lacks(t, page, evil, `value="own"`)
	page = end(url.Values{"session": {"s2"}})
	contains(t, page, `value="s1"`, `value="s3"`)
	lacks(t, page, `value="s2"`)
	page = end(url.Values{"others": {"true"}})
	lacks(t, page, `value="s1"`, `value="s3"`, "Log out everywhere else")
}
