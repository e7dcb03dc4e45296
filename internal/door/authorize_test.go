package door_test

import (
	"encoding/json"
	"fmt"
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

func TestWhoMayUseASubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const path = "__ds/subscriptions/work"
	const spec = `{"type":"pull-wake","streams":["jobs"],"wake_stream":"wakes"}`
	w.do("PUT", "wakes", "", asJSON).want(201)
	w.do("PUT", path, spec, asJSON).want(201)
	w.do("PUT", "jobs", "1", asJSON).want(201)
	theirs := "Authorization: Bearer " + w.stranger.key

	for _, c := range []struct{ name, method, path, body string }{
		{"shown", "GET", "", ""},
		{"claimed", "POST", "/claim", `{"worker":"w"}`},
		{"followed by more streams", "POST", "/streams", `{"streams":["more"]}`},
		{"deleted", "DELETE", "", ""},
	} {
		w.run(t, "it is not "+c.name+" to nobody and to strangers", func(t *testing.T, w *world) {
			w.do(c.method, path+c.path, c.body, asJSON, "Authorization: ").want(401).failure()
			w.do(c.method, path+c.path, c.body, asJSON, theirs).want(404).failure()
			w.do(c.method, path+c.path, c.body, asJSON, theirs, "Arbe-House: "+w.ours.id).want(404).failure()
		})
	}
	w.run(t, "its wake is acknowledged with the wake's token, and with no key", func(t *testing.T, w *world) {
		var claim struct {
			WakeID     string `json:"wake_id"`
			Generation int64
			Token      string
		}
		if err := json.Unmarshal([]byte(w.do("POST", path+"/claim", `{"worker":"w"}`, asJSON).want(200).body), &claim); err != nil {
			t.Fatal(err)
		}
		ack := fmt.Sprintf(`{"wake_id":%q,"generation":%d,"done":true}`, claim.WakeID, claim.Generation)
		w.do("POST", path+"/ack", ack, asJSON, "Authorization: ").want(401).failure()
		if f := w.do("POST", path+"/ack", ack, asJSON).want(409).failure(); f.Code != "FENCED" {
			t.Errorf("with a key it says %s", f.Code)
		}
		w.do("POST", path+"/ack", ack, asJSON, "Authorization: Bearer "+claim.Token).want(200).holds(`{"next_wake":true,"ok":true}`)
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
