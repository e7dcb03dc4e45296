package door_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/stream"
)

// These tests cover points of the protocol that its official suite does not.

func TestClosingAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t, "changes the entity tag of a page that was read before", func(t *testing.T, w *world) {
		w.make("tag")
		w.post("tag", "all").want(204)
		tag := w.do("GET", "tag", "").want(200).says("Stream-Closed", "").header.Get("ETag")
		w.do("GET", "tag", "", "If-None-Match: "+tag).want(304).holds("")
		w.post("tag", "", closing).want(204)
		w.do("GET", "tag", "", "If-None-Match: "+tag).want(200).says("Stream-Closed", "true").holds("all")
	})
	w.run(t, "is one of the options that a stream was created with", func(t *testing.T, w *world) {
		w.make("open")
		w.do("PUT", "open", "", asText, closing).want(409).failure()
		w.post("open", "", closing).want(204)
		w.do("PUT", "open", "", asText).want(409).failure()
		w.do("PUT", "open", "", asText, closing).want(200)
	})
	w.run(t, "is requested by the value true only", func(t *testing.T, w *world) {
		w.make("words")
		for _, word := range []string{"false", "1", "yes", "true!"} {
			w.post("words", "x", "Stream-Closed: "+word).want(204).says("Stream-Closed", "")
		}
		w.post("words", "x", "Stream-Closed: TRUE").want(204).says("Stream-Closed", "true")
	})
	w.run(t, "wakes waiting readers, on other servers too", func(t *testing.T, w *world) {
		w.make("wait")
		other, _ := w.serve()
		req := w.request(other, "GET", "wait?live=sse&offset=-1", "", "Authorization: Bearer "+w.ours.key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		awaitLine(t, lines, "upToDate")
		w.post("wait", "last", closing).want(204)
		awaitLine(t, lines, "data:last")
		awaitLine(t, lines, `"streamClosed":true`)
		for lines.Scan() {
			if lines.Text() != "" {
				t.Errorf("after the end there is %q", lines.Text())
			}
		}
	})
}

func TestFollowingAStreamThatIsClosedAlready(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("PUT", "done", "one\r\ntwo", asText, closing).want(201)
	const end = "event: control\ndata:{\"streamNextOffset\":\"0000000000000001_0000000000000000\",\"upToDate\":true,\"streamClosed\":true}\n\n"

	w.run(t, "sends all of it, then reports once that it is closed, and ends", func(t *testing.T, w *world) {
		w.do("GET", "done?live=sse&offset=-1", "").want(200).holds("event: data\ndata:one\ndata:two\n\n" + end)
	})
	w.run(t, "reports at once that it is closed to a reader that starts at its end", func(t *testing.T, w *world) {
		w.do("GET", "done?live=sse&offset=now", "").want(200).holds(end)
		w.do("GET", "done?live=long-poll&offset=now", "").want(204).says("Stream-Closed", "true").says("Stream-Cursor", "")
	})
}

func TestProducersOutliveTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("import")
	first, stop := w.serve()
	send := func(url, text string, seq int, more ...string) response {
		return w.at(url, "POST", "import", text, append([]string{"Authorization: Bearer " + w.ours.key, asText,
			"Producer-Id: importer", "Producer-Epoch: 1", fmt.Sprintf("Producer-Seq: %d", seq)}, more...)...)
	}
	send(first, "a", 0).want(200)
	send(first, "b", 1).want(200)
	stop()
	second, _ := w.serve()

	w.run(t, "a retry is recognised", func(t *testing.T, w *world) {
		send(second, "b", 1).want(204).says("Producer-Seq", "1")
	})
	w.run(t, "many concurrent retries are written once", func(t *testing.T, w *world) {
		var all sync.WaitGroup
		statuses := make([]int, 12)
		for i := range statuses {
			all.Go(func() { statuses[i] = send([]string{w.url, second}[i%2], "c", 2).status })
		}
		all.Wait()
		written := 0
		for _, s := range statuses {
			if s == 200 {
				written++
			} else if s != 204 {
				t.Errorf("a retry got status %d", s)
			}
		}
		if written != 1 {
			t.Errorf("%d of them were written", written)
		}
		w.do("GET", "import", "").want(200).holds("abc")
	})
	w.run(t, "a retry of the append that closed the stream is recognised, and nothing else", func(t *testing.T, w *world) {
		send(w.url, "d", 3, closing).want(200).says("Stream-Closed", "true")
		send(second, "d", 3, closing).want(204).says("Stream-Closed", "true")
		send(second, "c", 2).want(409).says("Stream-Closed", "true")
		w.do("GET", "import", "").want(200).holds("abcd")
	})
	w.run(t, "an append that the stream refuses does not change the producer", func(t *testing.T, w *world) {
		w.make("ordered")
		header := []string{"Producer-Id: p", "Producer-Epoch: 0", "Stream-Seq: 5"}
		w.post("ordered", "x", append(header, "Producer-Seq: 0")...).want(200)
		w.post("ordered", "y", append(header, "Producer-Seq: 1")...).want(409)
		w.post("ordered", "y", "Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 1", "Stream-Seq: 6").want(200)
	})
}

func TestAStreamThroughManyServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("PUT", "count", "[]", asJSON).want(201)
	other, _ := w.serve()
	const writers, each = 4, 25

	// A reader whose connection is cut repeatedly continues from the last control event.
	seen := make(chan []int)
	go func() {
		var got []int
		at := "-1"
		for len(got) < writers*each && t.Context().Err() == nil {
			at = readSome(w, []string{w.url, other}[len(got)%2], "count", at, &got)
		}
		seen <- got
	}()
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for i := range each {
				w.at([]string{w.url, other}[i%2], "POST", "count", fmt.Sprint(writer*each+i), "Authorization: Bearer "+w.ours.key, asJSON).want(204)
			}
		})
	}
	all.Wait()
	var want []int
	if err := json.Unmarshal([]byte(w.do("GET", "count", "").want(200).body), &want); err != nil || len(want) != writers*each {
		t.Fatalf("the stream holds %d messages (%v)", len(want), err)
	}
	select {
	case got := <-seen:
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the reader saw %v, the stream holds %v", got, want)
		}
	case <-time.After(patience):
		t.Fatal("the reader did not see all")
	}
}

// readSome follows a stream for a few events, and returns the offset of the last control event.
func readSome(w *world, url, name, at string, got *[]int) string {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	res, err := http.DefaultClient.Do(w.request(url, "GET", name+"?live=sse&offset="+at, "", "Authorization: Bearer "+w.ours.key).WithContext(ctx))
	if err != nil {
		return at
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	var pending []int
	for events := 0; events < 4 && lines.Scan(); {
		text, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		var control struct{ StreamNextOffset string }
		if json.Unmarshal([]byte(text), &pending) == nil {
			continue
		}
		if json.Unmarshal([]byte(text), &control) == nil {
			*got = append(*got, pending...)
			pending, at = nil, control.StreamNextOffset
			events++
			if len(*got) == 100 {
				break
			}
		}
	}
	return at
}

func TestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("small")
	w.make("json", asJSON)
	many := "[" + strings.Repeat("1,", stream.MaxMessages) + "1]"
	for _, c := range []struct {
		name   string
		send   func(w *world) response
		status int
	}{
		{"a body that is too large", func(w *world) response { return w.post("small", strings.Repeat("x", 17<<20)) }, 413},
		{"an append of too many messages", func(w *world) response { return w.do("POST", "json", many, asJSON) }, 413},
		{"too many messages in a thread", func(w *world) response { return w.do("POST", w.ours.stream(), many, asJSON) }, 413},
		{"a stream that begins with too many messages", func(w *world) response { return w.do("PUT", "many", many, asJSON) }, 413},
		{"many messages that are not JSON", func(w *world) response { return w.do("POST", "json", many+"]", asJSON) }, 400},
		{"many messages in a thread that are not JSON", func(w *world) response { return w.do("POST", w.ours.stream(), many+"]", asJSON) }, 400},
		{"a name that is too long", func(w *world) response { return w.do("PUT", strings.Repeat("n", 300), "") }, 400},
		{"a name with spaces", func(w *world) response { return w.do("PUT", "a%20b", "") }, 400},
		{"a name that leads out", func(w *world) response { return w.do("PUT", "a/%2e%2e/b", "") }, 400},
		{"a lifetime that is too long", func(w *world) response { return w.do("PUT", "long", "", "Stream-TTL: 99999999999999999999") }, 400},
		{"an invalid content type", func(w *world) response { return w.do("PUT", "odd", "", "Content-Type: nonsense") }, 400},
		{"JSON that is not UTF-8", func(w *world) response { return w.do("PUT", "odd", "\"\xff\"", asJSON) }, 400},
		{"an unknown way of following", func(w *world) response { return w.do("GET", "small?live=carrier-pigeon&offset=-1", "") }, 400},
		{"an offset past the end", func(w *world) response { return w.do("GET", "small?offset=0000000000000009_0000000000000000", "") }, 400},
		{"a name that is reserved for the protocol", func(w *world) response { return w.do("PUT", "__ds/mine", "{}", asJSON) }, 404},
		{"a method that subscriptions do not support", func(w *world) response { return w.do("POST", "__ds/subscriptions/x", "{}", asJSON) }, 405},
	} {
		w.run(t, c.name+" is refused", func(t *testing.T, w *world) { c.send(w).want(c.status).failure() })
	}
	w.run(t, "JSON keeps its text, whatever its numbers and keys are", func(t *testing.T, w *world) {
		const text = `{"b":1.10,"a":12345678901234567890123,"b":"\u0000<&>"}`
		w.do("PUT", "exact", text, asJSON).want(201)
		w.do("GET", "exact", "").want(200).holds("[" + text + "]")
	})
}
