package door_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/fault"
)

// access says who may do what through this door: the specification, in one table. A line about a thread is about its
// stream. A line about a house is about another stream of that house, which the request names. Those who may
// use a stream get 409 for what a thread's stream does not allow. A call about a wake (callback, ack, release) gets 409 with
// any credential but the wake's.
const access = `
                         nobody unknown expired revoked outsider member owner bot house-key owner-key elsewhere token reader writer sibling

GET a thread's           401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
GET sse a thread's       401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
GET long-poll a thread's 401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
HEAD a thread's          401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
POST a thread's          401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    403    ok     403
PUT a thread's           401    401     401     401     404      409    409   409 409       409       404       403   403    403    403
DELETE a thread's        401    401     401     401     404      409    409   409 409       409       404       403   403    403    403

GET a house's            401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
GET sse a house's        401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
GET long-poll a house's  401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
HEAD a house's           401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
POST a house's           401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
PUT a house's            401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
DELETE a house's         401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403

PUT subscription         401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
GET subscription         401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
DELETE subscription      401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
POST streams             401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
DELETE streams           401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
POST claim               401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
POST callback            401    409     409     409     409      409    409   409 409       409       409       409   409    409    409
POST ack                 401    409     409     409     409      409    409   409 409       409       409       409   409    409    409
POST release             401    409     409     409     409      409    409   409 409       409       409       409   409    409    409
`

func TestEveryOperationHasItsLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var operations []string
	for method := range strings.SplitSeq(w.do("PATCH", "notes", "").want(405).header.Get("Allow"), ",") {
		for _, stream := range []string{"a thread's", "a house's"} {
			switch method = strings.TrimSpace(method); method {
			case "OPTIONS": // needs no credential
			case "GET":
				operations = append(operations, "GET sse "+stream, "GET long-poll "+stream)
				fallthrough
			default:
				operations = append(operations, method+" "+stream)
			}
		}
	}
	for _, control := range door.Controls() { // "POST claim", or "PUT " for the subscription itself
		if strings.HasSuffix(control, " ") {
			control += "subscription"
		}
		operations = append(operations, control)
	}
	authtest.Complete(t, authtest.Table(t, access), operations)
}

func TestWhoMayUseAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cast := authtest.New(t, w.Database, w.auth)
	var cells atomic.Int64 // half of them use one prefix, half the other
	for operation, line := range authtest.Table(t, access) {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			var c *cell // renewed once it is used up, which a refused request does not do
			for _, principal := range authtest.Principals {
				want := line[principal]
				w.run(t, principal, func(t *testing.T, w *world) {
					for what, credential := range cast.Credentials(t, principal) {
						n := int(cells.Add(1))
						if c == nil {
							c = newCell(t, w, cast, operation, fmt.Sprint("cell-", n))
						}
						url := strings.Replace(w.url, door.Prefixes[0], door.Prefixes[n%len(door.Prefixes)], 1)
						headers := append(c.headers, "Authorization: Bearer "+credential(t, c.thread))
						if principal == "nobody" {
							headers = append(c.headers, "Authorization: ")
						}
						got := w.begin(url, c.method, c.path, c.body, headers...)
						if want == "ok" && got.status/100 != 2 || want != "ok" && fmt.Sprint(got.status) != want {
							t.Fatalf("with %s it answers %d, want %s: %s", what, got.status, want, got.body)
						}
						if want != "ok" && c.method != "HEAD" {
							got.failure()
						}
						if want == "ok" {
							c = nil
						}
					}
				})
			}
		})
	}
}

// begin is w.at for an answer that may be endless. It does not read such an answer to the end.
func (w *world) begin(url, method, name, body string, headers ...string) response {
	w.t.Helper()
	if !strings.Contains(name, "live=sse") {
		return w.at(url, method, name, body, headers...)
	}
	res, err := http.DefaultClient.Do(w.request(url, method, name, body, headers...))
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return response{w.t, res.StatusCode, res.Header, ""}.harmless()
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response{w.t, res.StatusCode, res.Header, string(text)}.harmless()
}

// cell is one operation on something that it may use up.
type cell struct {
	thread, method, path, body string
	headers                    []string
}

// newCell creates the object of an operation under a name.
func newCell(t *testing.T, w *world, cast *authtest.Cast, operation, name string) *cell {
	t.Helper()
	c := &cell{thread: cast.Thread(t, cast.House), path: name, headers: []string{"Arbe-House: " + cast.House, asJSON}}
	does := func(method, path, body string) {
		for _, member := range cast.Credentials(t, "owner") {
			w.at(w.url, method, path, body, "Authorization: Bearer "+member(t, ""), "Arbe-House: "+cast.House, asJSON)
		}
	}
	does("PUT", name, "1")
	words := strings.Fields(operation)
	c.method = words[0]
	switch {
	case strings.HasSuffix(operation, "a thread's"):
		c.path = "arbe-thread-" + c.thread
		c.body = `{"id":"first","payload":{"type":"chat","text":"hello"}}`
		does("POST", c.path, c.body) // so that a long-poll has something to return
	case strings.HasSuffix(operation, "a house's"):
		c.body = "1"
		if c.method == "PUT" {
			c.path = "new-" + name
		}
	default:
		const spec = `{"type":"pull-wake","streams":["%s"],"wake_stream":"wakes-%[1]s"}`
		does("PUT", "wakes-"+name, "")
		c.path = "__ds/subscriptions/" + name
		does("PUT", c.path, fmt.Sprintf(spec, name))
		does("POST", name, "1") // something to claim
		switch words[1] {
		case "subscription":
			c.body = fmt.Sprintf(spec, name)
		case "streams":
			c.path += "/streams"
			c.body = `{"streams":["more"]}`
			if c.method == "DELETE" {
				c.path += "/" + name
			}
		case "claim":
			c.path += "/claim"
			c.body = `{"worker":"w"}`
		default:
			c.path += "/" + words[1]
			c.body = `{"wake_id":"w_1","generation":1,"done":true}`
		}
	}
	switch words[1] {
	case "sse":
		c.path += "?live=sse&offset=-1"
	case "long-poll":
		c.path += "?live=long-poll&offset=-1"
	}
	if c.method == "GET" || c.method == "HEAD" {
		c.body = ""
	}
	return c
}

func TestAFollowersPermissionIsCheckedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cast := authtest.New(t, w.Database, w.auth)
	for live, ends := range map[string]func(t *testing.T, res *http.Response){
		"sse": func(t *testing.T, res *http.Response) {
			if _, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("it answers %d and ends with %v", res.StatusCode, err)
			}
		},
		"long-poll": func(t *testing.T, res *http.Response) {
			text, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if f := (response{t, res.StatusCode, res.Header, string(text)}).want(401).failure(); !strings.Contains(f.Message, "revoked") {
				t.Errorf("it says %q", f.Message)
			}
		},
	} {
		w.run(t, live, func(t *testing.T, w *world) {
			t.Parallel()
			w.longPoll = 55 * time.Second
			letIn := make(chan struct{}, 1)
			w.authorize = func(r *http.Request, action auth.Action, name string) (door.Pass, error) {
				pass, err := door.Members(w.auth)(r, action, name)
				if err == nil {
					letIn <- struct{}{}
				}
				return pass, err
			}
			url, _ := w.serve()
			thread := cast.Thread(t, cast.House)
			token := "Authorization: Bearer " + cast.Token(t, thread)
			req := w.request(url, "GET", "arbe-thread-"+thread+"?offset=now&live="+live, "", token)
			began := time.Now()
			answer := make(chan *http.Response, 1)
			go func() {
				if res, err := http.DefaultClient.Do(req); err == nil {
					answer <- res
				}
				close(answer)
			}()
			<-letIn
			w.exec("update threads set token_epoch = default where id = $1", thread)
			res := <-answer
			if res == nil {
				t.Fatal("there is no answer")
			}
			defer res.Body.Close()
			ends(t, res)
			if time.Since(began) > 50*time.Second {
				t.Error("it ended by itself")
			}
			w.at(url, "GET", "arbe-thread-"+thread, "", token).want(401) // and is not let in again
		})
	}
}

func TestHowARequestNamesItsHouse(t *testing.T) {
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
		{"a member of two houses who names none", "notes", nil, 400},
		{"a member who names the house in a header", "notes", []string{"Arbe-House: " + w.ours.id}, 200},
		{"a member who names the house in the query", "notes?house=" + w.ours.id, nil, 200},
		{"a member who names another house of theirs", "notes", []string{"Arbe-House: " + w.stranger.id}, 404},
		{"a key of the house", "notes", []string{"Authorization: Bearer " + w.ours.limited}, 200},
		{"a key of the house that names another", "notes", []string{"Authorization: Bearer " + w.ours.limited, "Arbe-House: " + w.stranger.id}, 404},
		{"a stranger", "notes", theirs, 404},
		{"a member, no thread", "arbe-thread-none", nil, 404},
	} {
		w.run(t, c.name, func(t *testing.T, w *world) {
			w.do("GET", c.stream, "", c.headers...).want(c.status)
			w.do("HEAD", c.stream, "", c.headers...).want(c.status)
		})
	}
	w.run(t, "a key of one house creates, fills and deletes its streams without naming the house", func(t *testing.T, w *world) {
		key := []string{"Authorization: Bearer " + w.ours.limited, asText}
		w.do("PUT", "built/log", "one ", key...).want(201)
		w.do("POST", "built/log", "two", key...).want(204)
		w.do("GET", "built/log", "", key...).want(200).holds("one two")
		w.do("DELETE", "built/log", "", key...).want(204)
		w.do("GET", "built/log", "", key...).want(404)
	})
	w.run(t, "two houses have streams of the same name", func(t *testing.T, w *world) {
		w.do("PUT", "notes", "theirs", append(theirs, asText)...).want(201)
		w.do("GET", "notes", "", theirs...).want(200).holds("theirs")
		w.do("GET", "notes?house="+w.ours.id, "").want(200).holds("")
	})
}

func TestWhoMayAcknowledgeAWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const path = "__ds/subscriptions/work"
	w.do("PUT", "wakes", "", asJSON).want(201)
	w.do("PUT", path, `{"type":"pull-wake","streams":["jobs"],"wake_stream":"wakes"}`, asJSON).want(201)
	w.do("PUT", "jobs", "1", asJSON).want(201)
	w.run(t, "a wake is acknowledged with the wake's token, and not with a key", func(t *testing.T, w *world) {
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
	w.run(t, "errors have the headers that stop browsers from guessing", func(t *testing.T, w *world) {
		w.at(w.url, "GET", "notes", "").want(401).says("X-Content-Type-Options", "nosniff").says("Access-Control-Allow-Origin", "*").
			says("Access-Control-Allow-Credentials", "").says("WWW-Authenticate", "Bearer")
	})
	w.run(t, "an unknown method is answered with the known ones", func(t *testing.T, w *world) {
		res := w.do("PATCH", "notes", "").want(http.StatusMethodNotAllowed)
		if !strings.Contains(res.header.Get("Allow"), "POST") {
			t.Errorf("Allow is %q", res.header.Get("Allow"))
		}
	})
}

// A request that follows a stream has no time limit, but its authorization has.
func TestAuthorizingTakesBoundedTime(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"GET /notes?live=sse&offset=-1", "GET /notes?live=long-poll&offset=-1", "GET /notes", "POST /notes"} {
		bound := false
		d := door.New(door.Config{Logger: slog.New(slog.DiscardHandler), Authorize: func(r *http.Request, _ auth.Action, _ string) (door.Pass, error) {
			_, bound = r.Context().Deadline()
			return door.Pass{}, fault.New(fault.Forbidden, "no", "go")
		}})
		method, path, _ := strings.Cut(request, " ")
		d.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "/api/stream"+path, strings.NewReader("{}")))
		if !bound {
			t.Errorf("%s: authorizing has no time limit", request)
		}
	}
}
