package door_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestWhoMayUseAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("notes").want(201)
	w.exec("insert into members (house_id, agent_id, role) values ($1, $2, 'member')", w.stranger.id, w.ours.member) // now in two
	theirs := []string{"Authorization: Bearer " + w.stranger.key}

	for _, c := range []struct {
		name    string
		stream  string
		headers []string
		status  int
	}{
		{"nobody", "notes", []string{"Authorization: "}, 401},
		{"nobody, a thread", w.ours.stream(), []string{"Authorization: "}, 401},
		{"an unknown key", "notes", []string{"Authorization: Bearer arbe_nonsense"}, 401},
		{"a member of two houses who names none", "notes", nil, 400},
		{"a member who names the house in a header", "notes", []string{"Arbe-House: " + w.ours.id}, 200},
		{"a member who names the house in the query", "notes?house=" + w.ours.id, nil, 200},
		{"a member who names another house of theirs", "notes", []string{"Arbe-House: " + w.stranger.id}, 404},
		{"a key of the house", "notes", []string{"Authorization: Bearer " + w.ours.limited}, 200},
		{"a key of the house that names another", "notes", []string{"Authorization: Bearer " + w.ours.limited, "Arbe-House: " + w.stranger.id}, 404},
		{"a stranger", "notes", theirs, 404},
		{"a stranger who names the house", "notes", append(theirs, "Arbe-House: "+w.ours.id), 404},
		{"a member, a thread", w.ours.stream(), nil, 200},
		{"a key of the house, a thread", w.ours.stream(), []string{"Authorization: Bearer " + w.ours.limited}, 200},
		{"a key of the house, a thread of another", w.stranger.stream(), []string{"Authorization: Bearer " + w.ours.limited}, 404},
		{"a stranger, a thread", w.ours.stream(), theirs, 404},
		{"a member, no thread", "arbe-thread-none", nil, 404},
	} {
		w.run(t, c.name, func(t *testing.T, w *world) {
			w.do("GET", c.stream, "", c.headers...).want(c.status)
			w.do("HEAD", c.stream, "", c.headers...).want(c.status)
			if c.status != 200 { // who may not read may do nothing else
				for _, method := range []string{"PUT", "POST", "DELETE"} {
					if method == "PUT" && c.stream == "notes" && (c.status == 404 || c.status == 200) {
						continue // makes one of theirs
					}
					w.do(method, c.stream, "x", append([]string{asText}, c.headers...)...).want(c.status).failure()
				}
			}
		})
	}
	w.run(t, "two houses have streams of the same name", func(t *testing.T, w *world) {
		w.do("PUT", "notes", "theirs", append(theirs, asText)...).want(201)
		w.do("GET", "notes", "", theirs...).want(200).holds("theirs")
		w.do("GET", "notes?house="+w.ours.id, "").want(200).holds("")
	})
	w.run(t, "a browser's session counts, but not for another site's page", func(t *testing.T, w *world) {
		w.exec("insert into login_sessions (hash, agent_id, expires_at) values ($1, $2, now() + interval '1 hour')", digest("session"), w.stranger.member)
		session := []string{"Cookie: arbe_session=session", asText}
		w.at(w.url, "POST", "notes", "more", session...).want(204)
		refused := w.at(w.url, "POST", "notes", "more", append(session, "Sec-Fetch-Site: cross-site", "Origin: https://evil.example")...).want(403)
		if f := refused.failure(); !strings.Contains(f.Message, "another site") {
			t.Errorf("it says %q", f.Message)
		}
	})
}

func TestPagesOfAllSitesMayAsk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t, "a preflight needs no credential", func(t *testing.T, w *world) {
		res := w.at(w.url, "OPTIONS", "notes", "").want(204)
		for _, name := range []string{"Authorization", "If-None-Match", "Stream-Seq", "Producer-Id", "Stream-Forked-From"} {
			if !strings.Contains(res.header.Get("Access-Control-Allow-Headers"), name) {
				t.Errorf("%s is not allowed", name)
			}
		}
	})
	w.run(t, "errors carry what keeps browsers from guessing", func(t *testing.T, w *world) {
		w.at(w.url, "GET", "notes", "").want(401).says("X-Content-Type-Options", "nosniff").says("Access-Control-Allow-Origin", "*").
			says("Access-Control-Allow-Credentials", "").says("WWW-Authenticate", "Bearer")
	})
	w.run(t, "what no stream knows is told what there is", func(t *testing.T, w *world) {
		res := w.do("PATCH", "notes", "").want(http.StatusMethodNotAllowed)
		if !strings.Contains(res.header.Get("Allow"), "POST") {
			t.Errorf("Allow is %q", res.header.Get("Allow"))
		}
	})
}
