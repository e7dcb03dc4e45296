package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestLocalPath(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"/", "/houses/home", "/threads/abc?at=3#e3", "/a%20b?c=%2F%2Fevil.example", "/a:b", "/%2F/evil.example", "/@evil.example"} {
		if got := localPath(p); got != p {
			t.Errorf("%q becomes %q", p, got)
		}
		staysHere(t, p)
	}
	for _, p := range []string{
		"", "evil.example", "https://evil.example", "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example",
		"\t//evil.example", "/\n/evil.example", "/\r/evil.example", "/\x00/evil.example", " //evil.example", "/ /evil.example", "/a\\b", "/a\x7f", "/ä",
		"/%zz", "javascript:alert(1)", "/\u2028", "\x01/a", "?a", "#a",
	} {
		if got := localPath(p); got != "/" {
			t.Errorf("%q becomes %q", p, got)
		}
		staysHere(t, p)
	}
}

// staysHere fails the test if a redirect to the local path of p leads a browser to another host.
func staysHere(t *testing.T, p string) {
	t.Helper()
	w := httptest.NewRecorder()
	http.Redirect(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/theme", nil), localPath(p), http.StatusSeeOther)
	for _, address := range []string{localPath(p), w.Header().Get("Location")} {
		// Browsers ignore tabs and newlines, and spaces at both ends, and treat a backslash as a slash.
		read := strings.NewReplacer("\t", "", "\n", "", "\r", "", "\\", "/").Replace(strings.TrimFunc(address, func(c rune) bool { return c <= ' ' }))
		here := &url.URL{Scheme: "https", Host: "arbe.example", Path: "/theme"}
		there, err := here.Parse(read)
		if err != nil || there.Host != here.Host || there.Scheme != here.Scheme || !strings.HasPrefix(read, "/") || strings.HasPrefix(read, "//") {
			t.Errorf("%q leads to %q", p, address)
		}
	}
}

// FuzzLocalPath tries addresses to return to. No address may lead to another host.
func FuzzLocalPath(f *testing.F) {
	for _, p := range []string{"/", "/a?b#c", "//e.com", "/\t/e.com", "/\\e.com", "/.//e.com", "/..//e.com/", "/%09/e.com", "http://e.com", "/a/../..//e.com"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) { staysHere(t, p) })
}
