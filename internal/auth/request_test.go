package auth_test

import (
	"net/http"
	"testing"

	"github.com/arbe-dev/arbe/internal/auth"
)

func TestCredential(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, authorization, cookies, token string
		cookie                              bool
	}{
		{"nothing", "", "", "", false},
		{"a bearer token", "Bearer abc", "", "abc", false},
		{"a bearer token before a cookie", "bearer abc", "arbe_session=def", "abc", false},
		{"a cookie", "", "arbe_session=def", "def", true},
		{"a cookie of https", "", "__Host-arbe_session=ghi", "ghi", true},
		{"a cookie of https before one that another host may have set", "", "arbe_session=def; __Host-arbe_session=ghi", "ghi", true},
		{"another cookie", "", "arbe_theme=dark", "", false},
	} {
		h := http.Header{}
		if c.authorization != "" {
			h.Set("Authorization", c.authorization)
		}
		if c.cookies != "" {
			h.Set("Cookie", c.cookies)
		}
		if token, cookie := auth.Credential(h); token != c.token || cookie != c.cookie {
			t.Errorf("%s: got %q, %t", c.name, token, cookie)
		}
	}
}

// Over https, another host of the domain can set the cookie without the prefix, as a preview's pages can.
func TestOverHTTPSASessionCountsInTheCookieOfItsHostAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	link, _, err := b.auth.CreateLink(t.Context(), b.ada)
	if err != nil {
		t.Fatal(err)
	}
	session, _, _, err := b.auth.Redeem(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	for cookie, accepted := range map[string]struct{ http, https bool }{
		auth.SessionCookie:       {true, false},
		auth.SecureSessionCookie: {true, true},
	} {
		h := http.Header{"Cookie": {cookie + "=" + session}}
		for secure, want := range map[bool]bool{false: accepted.http, true: accepted.https} {
			p, err := auth.New(auth.Config{DB: b.DB, Sealer: b.Sealer, Secure: secure}).Request(t.Context(), h)
			if (err == nil && p.Agent == b.ada) != want {
				t.Errorf("%s, https %t: it is %v (%v)", cookie, secure, p, err)
			}
		}
	}
}
