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
	// others are the ids of other records, and those of full texts with a "+".
	others []string
	// reads delays the answers to reads.
	reads time.Duration
	// fails returns the status with which a request fails, -1 for none until the runner gives up, and 0 if it succeeds.
	// whole is the id of the full text that the request has.
	fails func(whole string) int
}

func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{"Stream-Next-Offset": {"1"}, "Stream-Up-To-Date": {"true"}}, Body: http.NoBody}
	if r.Method == http.MethodGet {
		time.Sleep(l.reads)
		answer.StatusCode, answer.Body = http.StatusOK, io.NopCloser(strings.NewReader("[]"))
		return answer, nil
	}
	whole := r.URL.Query().Get("whole")
	if l.fails != nil {
		switch status := l.fails(whole); status {
		case 0:
		case -1:
			<-r.Context().Done()
			return nil, r.Context().Err()
		default:
			answer.StatusCode = status
			return answer, nil
		}
	}
	if whole != "" {
		l.note("+" + whole)
		return answer, nil
	}
	var records []struct {
		ID      string
		Payload struct{ Type string }
	}
	if err := json.NewDecoder(r.Body).Decode(&records); err != nil {
		return nil, err
	}
	for _, record := range records {
		if record.Payload.Type == (entry.Heartbeat{}).Type() {
			l.mu.Lock()
			l.beats, l.ids = append(l.beats, time.Now()), append(l.ids, record.ID)
			l.mu.Unlock()
		} else {
			l.note(record.ID)
		}
	}
	return answer, nil
}

func (l *listener) note(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others = append(l.others, id)
}

// heardBy returns a run that l hears.
func heardBy(t *testing.T, l *listener, dir string) *run {
	t.Helper()
	s, _, err := openSpool(dir, 1, 0)
	check(t, err)
	d := newDoor("http://door.invalid", "the-token-of-this-run")
	d.client = &http.Client{Transport: l}
	return &run{setup: &setup{Spec: Spec{Epoch: 1}, harness: pi.Harness{}}, door: d, spool: s, post: newPoster(d, s, newWholes(filepath.Join(dir, "whole-1")), "me"),
		inbox: make(chan []entry.Entry), queue: entry.NewQueue("me", 0), agent: &process{lines: make(chan line), exited: make(chan harness.Exit)}}
}

// A runner is heard every five seconds: while it reads the thread, while the agent works and says nothing, while a full text is
// uploaded, and while its report is not posted.
func TestARunnerIsHeardEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	for what, does := range map[string]func(r *run, ctx context.Context){
		"while it reads":           func(r *run, ctx context.Context) { _, _, _ = r.readThread(ctx) },
		"while its agent works":    func(r *run, ctx context.Context) { _, _ = r.attend(ctx, nil) },
		"while it uploads a text":  func(r *run, ctx context.Context) { r.add(result(long)); r.drain(ctx) },
		"while its report is open": func(r *run, ctx context.Context) { r.drain(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				l := &listener{reads: time.Hour, fails: func(whole string) int { return -min(len(whole), 1) }}
				ctx, cancel := context.WithTimeout(t.Context(), 32*time.Second)
				defer cancel()
				r := heardBy(t, l, dir)
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

// A store that fails or hangs holds up the log once, for as long as the runner is patient, and the runner is heard meanwhile.
// No text is dropped because the door is away.
func TestAStoreThatFailsHoldsUpTheLogOnce(t *testing.T) {
	t.Parallel()
	const outage = 3 * time.Minute
	entries, texts := []string{"run.1.0", "run.1.1", "run.1.2", "run.1.3"}, []string{"+run.1.0", "+run.1.1", "+run.1.2"}
	for what, c := range map[string]struct {
		// fails answers the nth try to upload the full text with the id whole, or a post. at is when.
		fails func(whole string, n int, at time.Duration) int
		// want are the ids that the door gets, and least and most how long that takes.
		want        []string
		least, most time.Duration
		// mute means that the door does not hear every heartbeat.
		mute bool
		code int
	}{
		"the store fails": {
			fails: func(whole string, _ int, _ time.Duration) int { return 500 * min(len(whole), 1) },
			want:  entries, least: wholeFor, most: wholeFor + 2*maxPause,
		},
		"the store hangs": {
			fails: func(whole string, _ int, _ time.Duration) int { return -min(len(whole), 1) },
			want:  entries, least: wholeFor, most: wholeFor + 2*onceFor + gather,
		},
		"the store works again": {
			fails: func(whole string, n int, _ time.Duration) int {
				if whole == "run.1.0" || whole == "run.1.2" && n == 0 {
					return 500
				}
				return 0
			},
			want: slices.Concat(texts[1:], entries), least: wholeFor, most: wholeFor + 4*maxPause,
		},
		"the door answers that it is away": {
			fails: func(_ string, _ int, at time.Duration) int {
				if at < outage {
					return 503
				}
				return 0
			},
			want: slices.Concat(texts, entries), least: outage, most: outage + 2*maxPause, mute: true,
		},
		"the door hangs": {
			fails: func(_ string, _ int, at time.Duration) int {
				if at < outage {
					return -1
				}
				return 0
			},
			want: slices.Concat(texts, entries), least: outage, most: outage + 3*time.Minute, mute: true,
		},
		"the store hangs and the run is over": {
			fails: func(whole string, _ int, _ time.Duration) int {
				if whole == "" {
					return 403
				}
				return -1
			},
			least: beatEvery, most: beatEvery + gather, mute: true, code: exitOver,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				began, tries := time.Now(), map[string]int{}
				var mu sync.Mutex
				l := &listener{fails: func(whole string) int {
					mu.Lock()
					defer mu.Unlock()
					tries[whole]++
					return c.fails(whole, tries[whole]-1, time.Since(began))
				}}
				r := heardBy(t, l, dir)
				for range texts {
					r.add(result(long))
				}
				r.end()
				ctx, cancel := context.WithTimeout(t.Context(), 2*outage)
				defer cancel()
				var all sync.WaitGroup
				all.Go(func() { r.post.run(ctx) })
				code := r.drain(ctx)
				all.Wait()
				if took := time.Since(began); code != c.code || !slices.Equal(l.others, c.want) || took < c.least || took > c.most {
					t.Errorf("the runner ends with %d after %s, and the door gets %q", code, took, l.others)
				}
				last := began
				for _, at := range append(l.beats, time.Now()) {
					if at.Sub(last) > beatEvery+2*gather && !c.mute {
						t.Errorf("the runner is silent for %s", at.Sub(last))
					}
					last = at
				}
			})
		})
	}
}

// While a store hangs, watchers see what the agent writes.
func TestLiveTextGoesOnDuringAnUpload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := &listener{fails: func(whole string) int { return -min(len(whole), 1) }}
		r := heardBy(t, l, dir)
		r.add(result(long))
		ctx, cancel := context.WithTimeout(t.Context(), wholeFor/2)
		defer cancel()
		time.AfterFunc(time.Second, func() { r.post.chunk("run.1.1~1.0", entry.PiChunk{Kind: "text", Text: "live"}) })
		r.post.run(ctx)
		if want := []string{"run.1.1~1.0"}; !slices.Equal(l.others, want) {
			t.Errorf("the door gets %q, want %q", l.others, want)
		}
	})
}
