package door_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/thread"
)

// record is an entry as a reader of a thread's stream sees it.
type record struct {
	Seq      int64
	ID       string
	Type     string
	AuthorID string
	Payload  struct{ Type, Text string }
	TS       string
}

// lines reads a thread's stream as one message per line.
func (w *world) lines(offset string) (list []record) {
	w.t.Helper()
	res := w.do("GET", w.ours.stream()+"?offset="+offset, "", "Accept: application/x-ndjson").want(200).says("Content-Type", "application/x-ndjson")
	for line := range strings.Lines(res.body) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			w.t.Fatalf("%q: %v", line, err)
		}
		list = append(list, r)
	}
	return list
}

func TestAForkedThreadsStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chat := func(id string) string { return fmt.Sprintf(`{"id":%q,"payload":{"type":"chat","text":%q}}`, id, id) }
	source := w.ours.thread
	w.do("POST", w.ours.stream(), "["+chat("a")+","+chat("b")+","+chat("c")+"]", asJSON).want(204)
	middle := w.do("GET", w.ours.stream()+"?offset=0", "", "Accept: application/x-ndjson").want(200).header.Get("Stream-Next-Offset")
	threads := thread.New(w.DB, w.log)
	scope := db.Scope{House: w.ours.id, Agent: w.ours.member}
	fork, err := threads.Fork(t.Context(), scope, source, thread.Fork{At: 2})
	if err != nil {
		t.Fatal(err)
	}
	w.ours.thread = fork.ID // the requests below are about the fork
	ids := func(list []record) (all string) {
		for _, r := range list {
			if r.Type != "chat" {
				r.ID = "forked"
			}
			all += fmt.Sprint(r.Seq, r.ID, " ")
		}
		return all
	}
	reads := func(t *testing.T, w *world, want string) {
		t.Helper()
		if got := ids(w.lines("0")); got != want {
			t.Errorf("as lines it is %q, want %q", got, want)
		}
		var array []record
		if err := json.Unmarshal([]byte(w.do("GET", fork.StreamID+"?offset=-1", "").want(200).body), &array); err != nil || ids(array) != want {
			t.Errorf("as an array it is %q (%v), want %q", ids(array), err, want)
		}
		res, err := http.DefaultClient.Do(w.request(w.url, "GET", fork.StreamID+"?live=sse&offset=-1", "", "Authorization: Bearer "+w.ours.key))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		if first := awaitLine(t, lines, `"id":"a"`); !strings.Contains(first, `"id":"b"`) || !strings.Contains(first, `"type":"signal.thread.forked"`) {
			t.Errorf("live it begins with %s", first)
		}
		awaitLine(t, lines, `"upToDate":true`)
	}
	w.run(t, "has the source's entries up to the fork, then its own, however it is read", func(t *testing.T, w *world) {
		reads(t, w, "1a 2b 3forked ")
	})
	w.run(t, "accepts entries, and recognises inherited ones", func(t *testing.T, w *world) {
		w.do("POST", fork.StreamID, "["+chat("a")+","+chat("d")+","+chat("b")+"]", asJSON).want(204)
		w.do("POST", fork.StreamID, chat("a"), asJSON).want(204)
		reads(t, w, "1a 2b 3forked 4d ")
	})
	w.run(t, "accepts offsets of its source", func(t *testing.T, w *world) {
		if got := ids(w.lines(middle)); got != "4d " {
			t.Errorf("after %s there is %q", middle, got)
		}
	})
	w.run(t, "is complete after its source was deleted", func(t *testing.T, w *world) {
		err := w.DB.In(t.Context(), scope, func(tx pgx.Tx) error {
			_, err := threads.DeleteTx(t.Context(), tx, source)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		w.do("GET", thread.StreamName(source), "").want(404)
		reads(t, w, "1a 2b 3forked 4d ")
	})
}

func TestAThreadsStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.ours.stream()
	chat := func(id, text string) string {
		return fmt.Sprintf(`{"id":%q,"ts":"2026-01-02T03:04:05Z","payload":{"type":"chat","text":%q}}`, id, text)
	}

	w.run(t, "one entry, and an array of them, are appended and read back as lines", func(t *testing.T, w *world) {
		w.do("POST", name, chat("a", "<hello>"), asJSON).want(204)
		w.do("POST", name, "["+chat("b", "two")+","+chat("c", "three")+"]", asJSON).want(204)
		got := w.lines("0")
		if len(got) != 3 {
			t.Fatalf("there are %d entries, want 3", len(got))
		}
		first := got[0]
		if first.Seq != 1 || first.ID != "a" || first.Type != "chat" || first.AuthorID != w.ours.member ||
			first.Payload.Text != "<hello>" || first.Payload.Type != "chat" || first.TS == "" {
			t.Errorf("the first one is %+v", first)
		}
	})
	w.run(t, "a repeated id returns the existing entry", func(t *testing.T, w *world) {
		before := len(w.lines("0"))
		w.do("POST", name, chat("a", "something else"), asJSON).want(204)
		if got := w.lines("0"); len(got) != before || got[0].Payload.Text != "<hello>" {
			t.Errorf("there are %d entries, had %d; the first says %q", len(got), before, got[0].Payload.Text)
		}
	})
	w.run(t, "an offset continues where a response ended", func(t *testing.T, w *world) {
		next := w.do("GET", name, "").want(200).header.Get("Stream-Next-Offset")
		w.do("POST", name, chat("d", "four"), asJSON).want(204)
		if got := w.lines(next); len(got) != 1 || got[0].ID != "d" {
			t.Errorf("after %s there are %v", next, got)
		}
	})
	w.run(t, "a writer whose clock jumps has its entries in their order, at the server's times", func(t *testing.T, w *world) {
		next := w.do("GET", name, "").want(200).header.Get("Stream-Next-Offset")
		for id, off := range []time.Duration{time.Hour, -time.Hour, 0} {
			at := time.Now().Add(off).UTC().Format(time.RFC3339Nano)
			w.do("POST", name, strings.Replace(chat(fmt.Sprint("clock", id), "tick"), "2026-01-02T03:04:05Z", at, 1), asJSON).want(204)
		}
		got := w.lines(next)
		if len(got) != 3 {
			t.Fatalf("there are %d entries, want 3", len(got))
		}
		for i, e := range got {
			at, err := time.Parse(time.RFC3339Nano, e.TS)
			if e.ID != fmt.Sprint("clock", i) || err != nil || time.Since(at).Abs() > 10*time.Minute {
				t.Errorf("entry %d is %+v: %v", i, e, err)
			}
		}
	})
	w.run(t, "readers get the type inside the payload even if it was written without", func(t *testing.T, w *world) {
		draft := entry.NewDraft("by rpc", "", entry.Chat{Text: "hi"})
		w.append(w.ours, draft)
		got := w.lines("0")
		if last := got[len(got)-1]; last.Payload.Type != "chat" || last.Payload.Text != "hi" || last.AuthorID != "" {
			t.Errorf("the last one is %+v", last)
		}
	})
	for _, c := range []struct {
		name, body string
		status     int
		names      string
	}{
		{"an entry of an unknown kind", `{"payload":{"type":"gossip","text":"x"}}`, 422, "type"},
		{"an entry without a kind", `{"payload":{"text":"x"}}`, 422, "payload.type"},
		{"an entry without a payload", `{"id":"x"}`, 422, "payload.type"},
		{"a chat without a text", `{"payload":{"type":"chat","text":" "}}`, 422, "text"},
		{"a chat whose text is not a string", `{"payload":{"type":"chat","text":5}}`, 422, "text"},
		{"an id that is not a string", `{"id":5,"payload":{"type":"chat","text":"x"}}`, 422, "id"},
		{"a text", `"hello"`, 422, "entry"},
		{"a body that is not JSON", `{"id":`, 400, "JSON"},
		{"nothing", ``, 400, "empty"},
		{"no entries", `[]`, 400, "empty"},
		{"an entry in another's name", `{"authorId":"` + w.stranger.member + `","payload":{"type":"chat","text":"x"}}`, 403, "authorId"},
		{"an entry that only arbe writes", `{"payload":{"type":"signal.thread.status_changed","to":"closed"}}`, 403, "type"},
		{"one good entry beside a bad one", `[` + chat("good", "x") + `,{"payload":{"type":"gossip"}}]`, 422, "type"},
	} {
		w.run(t, c.name+" is refused, and nothing is written", func(t *testing.T, w *world) {
			before := len(w.lines("0"))
			f := w.do("POST", name, c.body, asJSON).want(c.status).failure()
			if !strings.Contains(f.Message, c.names) {
				t.Errorf("%q does not name %s", f.Message, c.names)
			}
			if after := len(w.lines("0")); after != before {
				t.Errorf("%d entries were written", after-before)
			}
		})
	}
	w.run(t, "a client may name itself as the author", func(t *testing.T, w *world) {
		w.do("POST", name, `{"authorId":"`+w.ours.member+`","payload":{"type":"chat","text":"me"}}`, asJSON).want(204)
	})
	w.run(t, "only its thread can create, close, fork and delete it", func(t *testing.T, w *world) {
		w.do("PUT", name, "", asJSON).want(409).failure()
		w.do("DELETE", name, "").want(409).failure()
		w.do("POST", name, "", closing).want(409).failure()
		if f := w.do("PUT", "copy", "", "Stream-Forked-From: /api/stream/"+name).want(409).failure(); f.Next != "fork the thread" {
			t.Errorf("it says to %q", f.Next)
		}
	})
	w.run(t, "it is followed live", func(t *testing.T, w *world) {
		res, err := http.DefaultClient.Do(w.request(w.url, "GET", name+"?live=sse&offset=now", "", "Authorization: Bearer "+w.ours.key))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		awaitLine(t, lines, `"upToDate":true`)
		w.do("POST", name, chat("live", "now"), asJSON).want(204)
		awaitLine(t, lines, `"id":"live"`)
	})
}

// Payloads are returned as they were posted, whatever they contain.
func TestPayloadsOfAThread(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for id, payload := range map[string]string{
		`of "quotes" \ and é`:   `{"type":"chat","text":"a"}`,
		"a type further on":     `{"text":"the \"type\": of it","type":"chat"}`,
		"a type in disguise":    `{"text":"b","\u0074ype":"chat"}`,
		"a type that is nested": "{\"text\":\"c\",\r\n \"more\": {\"type\": 5}}",
		"no field":              " { } ",
		"no object":             "[1]",
	} {
		w.append(w.ours, entry.Draft{ID: id, Type: "chat", Payload: []byte(payload)})
		lines := strings.Split(strings.TrimSpace(w.do("GET", w.ours.stream()+"?offset=0", "", "Accept: application/x-ndjson").want(200).body), "\n")
		var got, want struct {
			ID      string
			Payload any
		}
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
			t.Fatalf("%s: %v in %q", id, err, lines[len(lines)-1])
		}
		want.ID = id
		json.Unmarshal([]byte(payload), &want.Payload)
		if fields, ok := want.Payload.(map[string]any); ok {
			fields["type"] = "chat"
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// awaitLine reads until a line has this text.
func awaitLine(t testing.TB, lines *bufio.Scanner, text string) string {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return lines.Text()
		}
	}
	t.Fatalf("%q did not arrive: %v", text, lines.Err())
	return ""
}

// A chat posted to a thread's stream is handled like any message said in the thread.
func TestSayingThroughTheDoor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatches = true
	url, _ := w.serve()
	post := func(w *world, key, body string, headers ...string) response {
		return w.at(url, "POST", w.ours.stream(), body, append([]string{asJSON, "Authorization: Bearer " + key}, headers...)...)
	}
	said := func(id, text string) string {
		return fmt.Sprintf(`{"id":%q,"payload":{"type":"chat","text":%q}}`, id, text)
	}
	kinds := func(w *world) (all string) {
		for _, r := range w.lines("0") {
			if r.Type != "command_result" { // it may come at any time
				all += r.ID + ":" + r.Type + " "
			}
		}
		return all
	}
	w.run(t, "runs a member's commands", func(t *testing.T, w *world) {
		post(w, w.ours.key, "["+said("a", "hello")+","+said("b", "!ls")+","+said("c", "bye!")+"]").want(204)
		post(w, w.ours.limited, said("d", "/run make test")).want(204)
		if got := kinds(w); got != "a:chat b:command c:chat d:command " {
			t.Errorf("the log is %s", got)
		}
		res, err := http.DefaultClient.Do(w.request(w.url, "GET", w.ours.stream()+"?live=sse&offset=-1", "", "Authorization: Bearer "+w.ours.key))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		awaitLine(t, bufio.NewScanner(res.Body), `"id":"d.result"`)
	})
	w.run(t, "writes a literal chat unchanged", func(t *testing.T, w *world) {
		post(w, w.ours.key, `{"id":"e","literal":true,"payload":{"type":"chat","text":"!ls"}}`).want(204)
		if got := kinds(w); !strings.HasSuffix(got, "e:chat ") {
			t.Errorf("the log is %s", got)
		}
	})
	w.run(t, "writes a chat of the thread token's holder unchanged", func(t *testing.T, w *world) {
		token, err := w.auth.CreateThreadToken(t.Context(), db.Scope{House: w.ours.id, Agent: w.ours.member}, w.ours.thread, w.ours.member, []string{auth.StreamWrite})
		if err != nil {
			t.Fatal(err)
		}
		post(w, token.Token, said("f", "/run ls")).want(204)
		if got := kinds(w); !strings.HasSuffix(got, "f:chat ") {
			t.Errorf("the log is %s", got)
		}
		post(w, token.Token, "["+said("f2", "@arbe hello")+"]").want(204)
		for id, want := range map[string]bool{"e": false, "f": true, "f2": true} {
			var payload string
			if err := w.Owner(t).QueryRow(t.Context(), "select payload::text from entries where id = $1", id).Scan(&payload); err != nil || strings.Contains(payload, `"confined":true`) != want {
				t.Errorf("%s is %s (%v)", id, payload, err)
			}
		}
	})
	w.run(t, "writes a producer's repeated chat once, and refuses one that is out of order", func(t *testing.T, w *world) {
		producer := func(seq int) []string {
			return []string{"Producer-Id: p", "Producer-Epoch: 0", fmt.Sprint("Producer-Seq: ", seq)}
		}
		before := kinds(w)
		post(w, w.ours.key, said("g", "!ls"), producer(0)...).want(200)
		post(w, w.ours.key, said("g", "!ls"), producer(0)...).want(204)
		post(w, w.ours.key, "["+said("h", "hello")+","+said("i", "!ls")+"]", producer(5)...).want(409)
		if got := kinds(w); got != before+"g:command " {
			t.Errorf("the log was %s and is %s", before, got)
		}
	})
	w.run(t, "writes nothing if one of the commands is empty", func(t *testing.T, w *world) {
		before := kinds(w)
		post(w, w.ours.key, "["+said("j", "hello")+","+said("k", "! ")+"]").want(400).failure()
		if got := kinds(w); got != before {
			t.Errorf("the log was %s and is %s", before, got)
		}
	})
}

// A program that gets an error cannot use verbs of the command line.
func TestErrorsForProgramsNameNoVerbs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for agent, want := range map[string]string{"curl/8": "list the threads", "arbe-cli/v1.2.3": "list the threads with: arbe thread list"} {
		if got := w.do("GET", "arbe-thread-nothing1", "", "User-Agent: "+agent).want(http.StatusNotFound).failure().Next; got != want {
			t.Errorf("the hint for %s is %q, want %q", agent, got, want)
		}
	}
}
