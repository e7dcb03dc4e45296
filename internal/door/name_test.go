package door

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/stream"
)

// names are the streams that paths and references lead to; empty means none.
var names = map[string]string{
	"/api/stream/a":                     "a",
	"/v1/stream/a/b":                    "a/b",
	"/v1/stream/a%3Ab":                  "a:b",
	"/v1/stream/%61":                    "a",
	"a/b":                               "a/b",
	"api/stream/a":                      "api/stream/a", // a name like any other
	"/v1/stream/v1/stream/a":            "v1/stream/a",
	"/v1/stream/...":                    "...",
	"/v1/stream/" + long(255):           long(255),
	"/v1/stream/__ds/jwks.json":         "__ds/jwks.json",
	"/v1/stream/__ds/a/b/streams/c%2Fd": "__ds/a/b/streams/c/d",

	"": "", "/": "", "/v1/stream": "", "/v1/stream/": "", "/a": "", "a/": "", "a//b": "", ".": "", "..": "", "a/../b": "", "a\x00": "", `a\b`: "",
	"/v1/stream/" + long(256):                    "",
	"/other/v1/stream/a":                         "",
	"/v1/stream/../../../other-app/api/stream/x": "",
	"/v1/stream/../v1/stream/x":                  "",
	"/other-app/../v1/stream/x":                  "",
	"http://example.com/v1/stream/a":             "",
	"//v1/stream/a":                              "",
	"/v1//stream/a":                              "",
	"/v1/stream//a":                              "",
	"/v1/stream/a/":                              "",
	"/v1/stream/%2e%2e/a":                        "",
	"/v1/stream/.%2e/a":                          "",
	"/v1/stream/%2e/a":                           "",
	"/v1/stream/a%2fb":                           "",
	"/v1/stream/a%2Fb":                           "",
	"/v1/stream/a%252fb":                         "",
	"/v1/stream/a%5cb":                           "",
	"/v1/stream/a%00":                            "",
	"/v1/stream/a%":                              "",
	"/v1/stream/a%0d%0ab":                        "",
	"/v1%2fstream/a":                             "",
	"/V1/stream/a":                               "",
	"/v1/stream/a?b":                             "",
	"/v1/stream/a b":                             "",
	"/v1/stream/ä":                               "",
	"/v1/stream/__ds%2Fjwks.json":                "",
	"/v1/stream/__ds/a/b/streams/..%2f..%2fc":    "",
	"/v1/stream/__ds/a/b/streams/c%2F":           "",
	"/v1/stream/__ds/a/b/claim/c%2Fd":            "",
	"/v1/stream/__ds/a/b/streams/c%2Fd/e":        "",
	"/v1/stream/other/a/b/streams/c%2Fd":         "",
}

func long(n int) string { return strings.Repeat("n", n) }

func TestWhereAPathLeads(t *testing.T) {
	t.Parallel()
	for given, want := range names {
		if got, err := streamName(given); err == nil && got != want || (err == nil) != (want != "") {
			t.Errorf("%q leads to %q (%v), want %q", given, got, err, want)
		}
	}
}

func FuzzStreamName(f *testing.F) {
	for given := range names {
		f.Add(given)
	}
	f.Fuzz(func(t *testing.T, given string) {
		name, err := streamName(given)
		if err != nil {
			return
		}
		if len(name) > maxName || !nameForm.MatchString(name) {
			t.Errorf("%q leads to %q, which is not a valid name", given, name)
		}
		for _, prefix := range Prefixes {
			whole := prefix + name
			if path.Clean(whole) != whole {
				t.Errorf("%q leads to %q, which leads out of %s", given, name, prefix)
			}
			if u, err := url.Parse(whole); err != nil || u.EscapedPath() != whole {
				t.Errorf("%q leads to %q, whose path is not what it is sent as", given, name)
			}
			if again, err := pathName(whole); err != nil || again != name {
				t.Errorf("%q leads to %q, whose path leads to %q (%v)", given, name, again, err)
			}
		}
		if strings.HasPrefix(given, "/") && !strings.HasPrefix(given, Prefixes[0]) && !strings.HasPrefix(given, Prefixes[1]) {
			t.Errorf("%q leads to %q from outside", given, name)
		}
	})
}

func FuzzOffset(f *testing.F) {
	for _, given := range []string{"-1", "0", "now", "", " ", "1", "5_0", "0000000000000000_0000000000000000", "9999999999999999_9999999999999999",
		"99999999999999999_0", "1_", "_1", "1_2_3", "-1_0", "1,2", "a/../b", "1\x00_0", "1_0\n", "٣_0"} {
		f.Add(given)
	}
	f.Fuzz(func(t *testing.T, given string) {
		p, err := startOf(url.Values{"offset": {given}})
		if err != nil {
			return
		}
		if !p.given || p.after < 0 || p.now && given != "now" {
			t.Errorf("%q is %+v", given, p)
		}
		if again, err := stream.ParseOffset(stream.Offset(p.after)); err != nil || again != p.after {
			t.Errorf("%q is position %d, which comes back as %d (%v)", given, p.after, again, err)
		}
	})
}
