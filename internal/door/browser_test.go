package door_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/door"
)

const page = "<!doctype html><script>fetch('/arbe.v1.AgentService/CreateLoginLink')</script>"

// harmless checks every answer that the tests of this package get. This test gets all kinds of answers.
func TestWhatABrowserMakesOfAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, prefix := range door.Prefixes {
		w.url = strings.Replace(w.url, "/api/stream/", prefix, 1)
		w.run(t, prefix, func(t *testing.T, w *world) {
			const asHTML = "Content-Type: text/html; charset=utf-8"
			name := "page" + strings.ReplaceAll(strings.Trim(prefix, "/"), "/", "-")
			w.do("PUT", name, page, asHTML).want(201).says("Content-Type", "text/html; charset=utf-8")
			w.do("PUT", name, page, asHTML).want(200)
			tag := w.do("GET", name, "").want(200).says("Content-Type", "text/html; charset=utf-8").holds(page).header.Get("ETag")
			w.do("GET", name, "", "If-None-Match: "+tag).want(304)
			w.do("GET", name+"?offset=now", "").want(200)
			w.do("GET", name+"?offset=-1&live=long-poll", "").want(200)
			w.do("GET", name+"?offset=now&live=long-poll", "").want(204)
			w.do("HEAD", name, "").want(200)
			w.do("POST", name, page, asHTML).want(204)
			w.do("POST", name, page, asJSON).want(409)
			w.do("POST", name, "", asHTML, closing).want(204)
			w.do("GET", name+"?offset=-1&live=sse", "").want(200)
			w.do("OPTIONS", name, "").want(204)
			w.do("PATCH", name, "").want(405)
			w.do("DELETE", name, "").want(204)
			for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
				w.do(method, name, "").wantOneOf(400, 404)
			}
			w.do("GET", "", "").want(400)
			w.do("GET", "__ds/jwks.json", "").want(200)
			w.do("GET", "__ds/nothing", "").want(404)
			w.do("GET", "__ds/subscriptions/none", "").want(404)
			w.do("PUT", "__ds/subscriptions/none", page, asHTML).want(400)
			w.do("PATCH", "__ds/subscriptions/none", "").want(405)
		})
	}
	w.run(t, "even over HTTP/2 and from the proxy", func(t *testing.T, w *world) {
		w.do("PUT", "other", page, "Content-Type: text/html", closing).want(201)
		server := httptest.NewUnstartedServer(door.New(door.Config{Log: w.log, Authorize: w.authorize, Logger: slog.New(slog.DiscardHandler)}))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		t.Cleanup(server.Close)
		client := &http.Transport{Protocols: new(http.Protocols)}
		client.Protocols.SetUnencryptedHTTP2(true)
		for _, query := range []string{"", "?offset=-1&live=sse"} {
			res, err := client.RoundTrip(w.request(server.URL, "GET", "/api/stream/other"+query, "", "Authorization: Bearer "+w.ours.key))
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			response{t, res.StatusCode, res.Header, string(text)}.want(200).harmless()
		}
	})
}

func TestACookieGivesNoAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("insert into login_sessions (hash, agent_id, expires_at) values ($1, $2, now() + interval '1 hour')", digest("session"), w.ours.member)
	w.make("notes")
	for what, headers := range map[string][]string{
		"a navigation":             {"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"},
		"a frame":                  {"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"},
		"a script element":         {"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"},
		"our own page":             {"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"},
		"an old browser":           nil,
		"a session key in a token": {"Authorization: Basic c2Vzc2lvbjo="},
	} {
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE"} {
			for _, name := range []string{"notes", w.ours.stream(), "__ds/subscriptions/s"} {
				w.run(t, fmt.Sprint(what, " ", method, " ", name), func(t *testing.T, w *world) {
					w.at(w.url, method, name, "", append(headers, "Cookie: arbe_session=session", asText)...).wantOneOf(401, 405)
				})
			}
		}
	}
	w.run(t, "and does not disable a bearer token", func(t *testing.T, w *world) {
		w.do("GET", "notes", "", "Cookie: arbe_session=other").want(200)
	})
}

// browserCache is a private cache as RFC 9111 allows: it stores what it may, selects by Vary, and revalidates.
type browserCache struct {
	kept map[string][]kept
	// asked counts the requests that it did not answer itself.
	asked int
}

type kept struct {
	request http.Header
	answer  response
}

func (c *browserCache) get(w *world, name string, headers ...string) response {
	w.t.Helper()
	req := w.request(w.url, "GET", name, "", headers...)
	var stored *kept
	for i, k := range c.kept[name] {
		same := true
		for field := range strings.SplitSeq(k.answer.header.Get("Vary"), ",") {
			field = strings.TrimSpace(field)
			same = same && k.request.Get(field) == req.Header.Get(field)
		}
		if same {
			stored = &c.kept[name][i]
		}
	}
	if stored != nil {
		if strings.Contains(stored.answer.header.Get("Cache-Control"), "max-age=") { // fresh for the duration of a test
			return stored.answer
		}
		headers = append(headers, "If-None-Match: "+stored.answer.header.Get("ETag"))
	}
	c.asked++
	got := w.at(w.url, "GET", name, "", headers...)
	switch {
	case got.status == http.StatusNotModified:
		return stored.answer
	case got.status == http.StatusOK && !strings.Contains(got.header.Get("Cache-Control"), "no-store"):
		c.kept[name] = append(c.kept[name], kept{req.Header, got})
	}
	return got
}

func TestACacheMixesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("insert into members (house_id, agent_id, role) values ($1, $2, 'member')", w.stranger.id, w.ours.member) // in both houses
	line := strings.Repeat("x", 900<<10)
	ours, theirs := "Arbe-House: "+w.ours.id, "Arbe-House: "+w.stranger.id
	for house, text := range map[string]string{ours: "ours", theirs: "theirs"} {
		w.do("PUT", "notes", `["`+text+`"]`, house, asJSON).want(201)
		w.do("PUT", "long", "", house, asJSON).want(201)
		for range 12 { // more than one page
			w.do("POST", "long", `["`+text+line+`"]`, house, asJSON).want(204)
		}
	}
	member, other := "Authorization: Bearer "+w.ours.key, "Authorization: Bearer "+w.stranger.key
	for _, name := range []string{"notes", "long"} {
		w.run(t, name, func(t *testing.T, w *world) {
			cache := &browserCache{kept: map[string][]kept{}}
			for range 2 { // once to fill it
				for _, lines := range []bool{false, true} {
					for _, c := range []struct {
						holds   string
						headers []string
					}{
						{"ours", []string{member, ours}},
						{"theirs", []string{member, theirs}},
						{"theirs", []string{other}},
						{"ours", []string{"Authorization: Bearer " + w.ours.limited}},
					} {
						start := `["` + c.holds
						if lines {
							start = `"` + c.holds
							c.headers = append(c.headers, "Accept: application/x-ndjson")
						}
						if got := cache.get(w, name, c.headers...).want(200); !strings.HasPrefix(got.body, start) {
							t.Errorf("%v reads %.20q, want %q", c.headers, got.body, start)
						}
					}
				}
			}
			if name == "long" && cache.asked != 8 {
				t.Errorf("%d requests reached the server, want 8: full pages are kept", cache.asked)
			}
			if got := cache.get(w, name); got.status != http.StatusUnauthorized {
				t.Errorf("without a credential it answers %d", got.status)
			}
		})
	}
	w.run(t, "an entity tag reveals nothing about another house", func(t *testing.T, w *world) {
		tags := map[string]bool{}
		for _, house := range []string{ours, theirs} {
			for _, accept := range []string{"Accept: */*", "Accept: application/x-ndjson"} {
				tag := w.do("GET", "notes", "", house, accept).want(200).header.Get("ETag")
				if tags[tag] {
					t.Errorf("two answers have the tag %s", tag)
				}
				tags[tag] = true
			}
		}
		for tag := range tags {
			if strings.Contains(tag, ":") || len(tag) != 24 {
				t.Errorf("the tag %s is not keyed", tag)
			}
		}
		anyTag := ""
		for tag := range tags {
			anyTag += tag + ", "
		}
		w.at(w.url, "GET", "notes", "", other, ours, "If-None-Match: "+anyTag+"*").want(404)
		w.at(w.url, "GET", "notes", "", "If-None-Match: *").want(401)
	})
}
