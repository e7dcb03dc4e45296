package runner

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/pi"
)

// listener is a door that notes when heartbeats come.
type listener struct {
	mu    sync.Mutex
	beats []time.Time
	// ids are those of the heartbeats.
	ids []string
	// reads delays the answers to reads.
	reads time.Duration
}

func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{"Stream-Next-Offset": {"1"}, "Stream-Up-To-Date": {"true"}}, Body: http.NoBody}
	if r.Method == http.MethodGet {
		time.Sleep(l.reads)
		answer.StatusCode, answer.Body = http.StatusOK, io.NopCloser(strings.NewReader("[]"))
		return answer, nil
	}
	var records []struct {
		ID      string
		Payload struct{ Type string }
	}
	if err := json.NewDecoder(r.Body).Decode(&records); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, record := range records {
		if record.Payload.Type == (entry.Heartbeat{}).Type() {
			l.beats, l.ids = append(l.beats, time.Now()), append(l.ids, record.ID)
		}
	}
	return answer, nil
}

// A runner is heard every five seconds: while it reads the thread, while the agent works and says nothing, and while its
// report is not posted.
func TestARunnerIsHeardEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	for what, does := range map[string]func(r *run, ctx context.Context){
		"while it reads":           func(r *run, ctx context.Context) { _, _, _ = r.readThread(ctx) },
		"while its agent works":    func(r *run, ctx context.Context) { _, _ = r.attend(ctx, nil) },
		"while its report is open": func(r *run, ctx context.Context) { r.drain(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				l := &listener{reads: time.Hour}
				s, _, err := openSpool(dir, 1, 0)
				if err != nil {
					t.Fatal(err)
				}
				d := newDoor("http://door.invalid", "the-token-of-this-run")
				d.client = &http.Client{Transport: l}
				ctx, cancel := context.WithTimeout(t.Context(), 32*time.Second)
				defer cancel()
				r := &run{setup: &setup{Spec: Spec{Epoch: 1}, harness: pi.Harness{}}, door: d, spool: s, post: newPoster(d, s, newWholes(filepath.Join(dir, "whole-1")), "me"),
					inbox: make(chan []entry.Entry), queue: entry.NewQueue("me", 0), agent: &process{lines: make(chan line), exited: make(chan harness.Exit)}}
				var all sync.WaitGroup
				all.Go(func() { r.post.run(ctx) })
				does(r, ctx)
				all.Wait()
				var apart, want []string
				for i := 1; i < len(l.beats); i++ {
					apart = append(apart, l.beats[i].Sub(l.beats[i-1]).String())
				}
				for range 5 {
					want = append(want, "5s")
				}
				if ids := []string{"run.1.beat.0", "run.1.beat.1", "run.1.beat.2", "run.1.beat.3", "run.1.beat.4", "run.1.beat.5"}; !slices.Equal(apart, want) || !slices.Equal(l.ids, ids) {
					t.Errorf("the heartbeats %q are %q apart", l.ids, apart)
				}
			})
		})
	}
}
