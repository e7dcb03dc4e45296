package door_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// shownSubscription is the part of a subscription that the tests read.
type shownSubscription struct {
	WakeStream string `json:"wake_stream"`
	Streams    []struct {
		Path  string
		Acked string `json:"acked_offset"`
	}
}

// claimedWake is what a worker gets when it claims a wake.
type claimedWake struct {
	ID         string `json:"wake_id"`
	Generation int64
	Token      string
	Streams    []struct {
		Tail string `json:"tail_offset"`
	}
}

// claim claims a subscription's wake as soon as there is one.
func claim(t *testing.T, w *world, path string) response {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		r := w.do("POST", path+"/claim", `{"worker": "w"}`, asJSON)
		if r.status == 200 {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("no wake began: %s", r.body)
		}
	}
}

func (s shownSubscription) paths() string {
	var paths []string
	for _, link := range s.Streams {
		paths = append(paths, link.Path)
	}
	return strings.Join(paths, " ")
}

func decode[T any](t *testing.T, r response) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), &out); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return out
}

func TestASubscriptionNamesStreamsByNameOrByPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("a")
	w.make("b")
	w.do("PUT", "wakes", "", asJSON).want(201)
	const path = "__ds/subscriptions/work"
	put := `{"type": "pull-wake", "wake_stream": "/v1/stream/wakes", "streams": ["/v1/stream/a"]}`
	made := decode[shownSubscription](t, w.do("PUT", path, put, asJSON).want(201))
	if made.paths() != "a" || made.WakeStream != "wakes" {
		t.Fatalf("it follows %q and writes wakes to %q, want a and wakes", made.paths(), made.WakeStream)
	}
	w.do("POST", path+"/streams", `{"streams": ["/api/stream/b"]}`, asJSON).want(204)
	if got := decode[shownSubscription](t, w.do("GET", path, "").want(200)); got.paths() != "a b" {
		t.Fatalf("it follows %q, want a and b", got.paths())
	}

	// An entry of a stream that was named by its path starts a wake, and is acknowledged by that path.
	w.post("a", "work").want(204)
	wake := decode[claimedWake](t, claim(t, w, path))
	ack := fmt.Sprintf(`{"wake_id": %q, "generation": %d, "acks": [{"stream": "/v1/stream/a", "offset": %q}], "done": true}`,
		wake.ID, wake.Generation, wake.Streams[0].Tail)
	w.do("POST", path+"/ack", ack, asJSON, "Authorization: Bearer "+wake.Token).want(200)
	if got := decode[shownSubscription](t, w.do("GET", path, "").want(200)); got.Streams[0].Acked != wake.Streams[0].Tail {
		t.Fatalf("a is acknowledged up to %s, want %s", got.Streams[0].Acked, wake.Streams[0].Tail)
	}

	w.run(t, "but neither may name a thread as the wake stream", func(t *testing.T, w *world) {
		for _, name := range []string{w.ours.stream(), "/v1/stream/" + w.ours.stream()} {
			w.do("PUT", "__ds/subscriptions/other", fmt.Sprintf(`{"type": "pull-wake", "wake_stream": %q, "streams": ["a"]}`, name), asJSON).want(400)
		}
	})
	w.run(t, "a path that leads elsewhere is refused", func(t *testing.T, w *world) {
		w.do("POST", path+"/streams", `{"streams": ["/etc/a"]}`, asJSON).want(400)
	})
}
