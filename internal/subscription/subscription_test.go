package subscription_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/subscription"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a database with one house, and a server that wakes its subscriptions.
type bench struct {
	*dbtest.Database
	t     testing.TB
	house string
	log   *stream.Log
	subs  *subscription.Subscriptions
}

func setup(t testing.TB, local bool) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10), t: t}
	if err := b.Owner(t).QueryRow(t.Context(), "insert into houses (name) values ('Home') returning id").Scan(&b.house); err != nil {
		t.Fatal(err)
	}
	b.log, b.subs = b.open(local)
	return b
}

// open starts another server on the database.
func (b *bench) open(local bool) (*stream.Log, *subscription.Subscriptions) {
	b.t.Helper()
	logger := slog.New(slog.DiscardHandler)
	var private outbound.Hosts
	if local {
		var err error
		if private, err = outbound.ParseHosts("127.0.0.1"); err != nil {
			b.t.Fatal(err)
		}
	}
	log, err := stream.Open(b.t.Context(), b.DB, logger)
	if err != nil {
		b.t.Fatal(fault.From(err).Detail())
	}
	b.t.Cleanup(log.Close)
	subs := subscription.Start(subscription.Config{
		DB: b.DB, Log: log, Key: ed25519.NewKeyFromSeed(make([]byte, 32)), PrivateHosts: private, Logger: logger,
	})
	b.t.Cleanup(subs.Close)
	return log, subs
}

// put creates a stream with one message, or appends one.
func (b *bench) put(name string) {
	b.t.Helper()
	ref := stream.Ref{House: b.house, Name: name}
	drafts, err := stream.Drafts("application/json", "", []byte(`"hello"`))
	if err != nil {
		b.t.Fatal(err)
	}
	_, created, err := b.log.Create(b.t.Context(), ref, stream.CreateOptions{ContentType: "application/json", Content: func(string) ([]entry.Draft, error) { return drafts, nil }})
	if err == nil && !created {
		_, err = b.log.Append(b.t.Context(), ref, drafts...)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) subscribe(name string, spec subscription.Spec) subscription.Subscription {
	b.t.Helper()
	sub, created, err := b.subs.Create(b.t.Context(), b.house, name, "http://arbe/v1/stream/", spec)
	if err != nil || !created {
		b.t.Fatalf("created %t: %v", created, err)
	}
	return sub
}

// patience is how long a test waits for an expected event.
const patience = 3 * time.Minute

// eventually waits until f returns true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: it does not happen", what)
		}
	}
}

func wantCode(t testing.TB, err error, want fault.Code) {
	t.Helper()
	if got := fault.CodeOf(err); got != want {
		t.Fatalf("got %q (%v), want %q", got, err, want)
	}
}

// wakes returns the number of wakes in a wake stream.
func (b *bench) wakes(name string) int64 {
	s, err := b.log.Describe(b.t.Context(), stream.Ref{House: b.house, Name: name})
	if err != nil {
		b.t.Fatal(err)
	}
	return s.Tail
}

func (b *bench) emptyStream(name string) {
	b.t.Helper()
	none := func(string) ([]entry.Draft, error) { return nil, nil }
	if _, _, err := b.log.Create(b.t.Context(), stream.Ref{House: b.house, Name: name}, stream.CreateOptions{ContentType: "application/json", Content: none}); err != nil {
		b.t.Fatal(err)
	}
}

func TestWhatASubscriptionFollows(t *testing.T) {
	t.Parallel()
	b := setup(t, false)
	b.put("events/old")
	b.emptyStream("wakes")
	for _, c := range []struct {
		pattern string
		follows []string
		not     []string
	}{
		{"events/*", []string{"events/old", "events/new"}, []string{"events", "events/a/b", "xevents/a"}},
		{"events/**", []string{"events", "events/old", "events/a/b"}, []string{"event", "eventsx"}},
		{"**/b", []string{"b", "a/b", "events/a/b"}, []string{"ab", "b/a"}},
		{"a.c", []string{"a.c"}, []string{"abc"}},
	} {
		t.Run(c.pattern, func(t *testing.T) {
			name := strings.NewReplacer("*", "s", "/", "-").Replace(c.pattern)
			b.subscribe(name, subscription.Spec{Type: "pull-wake", WakeStream: "wakes", Pattern: c.pattern})
			for _, stream := range append(c.follows, c.not...) {
				b.put(stream)
			}
			sub, err := b.subs.Get(t.Context(), b.house, name)
			if err != nil {
				t.Fatal(err)
			}
			followed := map[string]bool{}
			for _, l := range sub.Streams {
				followed[l.Stream] = true
			}
			for _, stream := range c.follows {
				if !followed[stream] {
					t.Errorf("it does not follow %s", stream)
				}
			}
			for _, stream := range c.not {
				if followed[stream] {
					t.Errorf("it follows %s", stream)
				}
			}
		})
	}
	t.Run("existing streams are followed from their end, later ones from their start", func(t *testing.T) {
		b.put("before")
		sub := b.subscribe("ends", subscription.Spec{Type: "pull-wake", WakeStream: "wakes", Streams: []string{"before", "after"}})
		if len(sub.Streams) != 2 || sub.Streams[1].Acked != 1 || sub.Streams[0].Acked != 0 {
			t.Errorf("it follows %+v", sub.Streams)
		}
	})
	t.Run("the same specification again returns the subscription, and a different one is refused", func(t *testing.T) {
		spec := subscription.Spec{Type: "pull-wake", WakeStream: "wakes", Streams: []string{"after", "before"}}
		if _, created, err := b.subs.Create(t.Context(), b.house, "ends", "", spec); created || err != nil {
			t.Errorf("created %t, %v", created, err)
		}
		spec.Description = "other"
		_, _, err := b.subs.Create(t.Context(), b.house, "ends", "", spec)
		wantCode(t, err, fault.Exists)
	})
	for name, spec := range map[string]subscription.Spec{
		"one without streams":       {Type: "pull-wake", WakeStream: "wakes"},
		"one of an unknown type":    {Type: "carrier-pigeon", Pattern: "*"},
		"one without a wake":        {Type: "pull-wake", Pattern: "*"},
		"one that wakes itself":     {Type: "pull-wake", Pattern: "*", WakeStream: "wakes"},
		"one with an endless lease": {Type: "pull-wake", Pattern: "a", WakeStream: "wakes", LeaseMS: 1e9},
		"a webhook without a URL":   {Type: "webhook", Pattern: "*"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			_, _, err := b.subs.Create(t.Context(), b.house, "odd", "", spec)
			wantCode(t, err, fault.Invalid)
		})
	}
}

func TestAWebhookMustBeOnThePublicInternet(t *testing.T) {
	t.Parallel()
	b := setup(t, false)
	for _, url := range []string{
		"http://example.com/", "https://localhost/", "https://127.0.0.1/", "http://127.0.0.1:80/", "https://10.0.0.1/", "https://192.168.1.1/",
		"https://169.254.169.254/latest", "https://[::1]/", "https://[fd00::1]/", "https://[::ffff:10.0.0.1]/", "https://100.64.0.1/",
		"https://0.0.0.0/", "https://user:secret@example.com/", "ftp://example.com/", "nonsense", "https:///x",
	} {
		t.Run(url, func(t *testing.T) {
			_, _, err := b.subs.Create(t.Context(), b.house, "x", "", subscription.Spec{Type: "webhook", Pattern: "*", Webhook: &subscription.Webhook{URL: url}})
			if !errors.Is(err, subscription.ErrURL) {
				t.Errorf("it is allowed: %v", err)
			}
		})
	}
	t.Run("a name with a private address is not called", func(t *testing.T) {
		called := make(chan struct{}, 100)
		inside := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
		defer inside.Close()
		b.subscribe("sneaky", subscription.Spec{Type: "webhook", Pattern: "*", Webhook: &subscription.Webhook{URL: "https://example.com/"}})
		if _, err := b.Owner(t).Exec(t.Context(), `update subscriptions set spec = jsonb_set(spec, '{webhook,url}', to_jsonb($1::text))`, inside.URL); err != nil {
			t.Fatal(err)
		}
		b.put("wake")
		eventually(t, "the call fails", func() bool {
			sub, err := b.subs.Get(t.Context(), b.house, "sneaky")
			return err == nil && sub.Failing
		})
		if len(called) > 0 {
			t.Error("it was called")
		}
	})
}

func TestOnlyOneWorkerHasAWake(t *testing.T) {
	t.Parallel()
	b := setup(t, false)
	_, other := b.open(false)
	b.emptyStream("wakes")
	b.subscribe("work", subscription.Spec{Type: "pull-wake", Pattern: "job/*", WakeStream: "wakes", LeaseMS: 1000})
	b.put("job/1")
	eventually(t, "a wake is delivered", func() bool { return b.wakes("wakes") == 1 })

	first, err := b.subs.Claim(t.Context(), b.house, "work", "a")
	if err != nil {
		t.Fatal(err)
	}
	done := func(w subscription.Wake, seq int64) subscription.Ack {
		return subscription.Ack{WakeID: w.ID, Generation: w.Generation, Acked: map[string]int64{"job/1": seq}, Done: true}
	}
	t.Run("no server gives it to another worker", func(t *testing.T) {
		_, err := other.Claim(t.Context(), b.house, "work", "b")
		var held *subscription.HeldError
		if !errors.As(err, &held) || held.Holder != "a" {
			t.Errorf("the claim says %v", err)
		}
	})
	t.Run("a position past the end cannot be acknowledged", func(t *testing.T) {
		_, err := b.subs.Acknowledge(t.Context(), "work", first.Token, done(first, 99))
		wantCode(t, err, fault.Invalid)
	})
	var second subscription.Wake
	t.Run("when its lease ends, the next worker gets it, and the first is fenced off", func(t *testing.T) {
		eventually(t, "another one claims it", func() bool {
			second, err = other.Claim(t.Context(), b.house, "work", "b")
			return err == nil
		})
		if second.Generation <= first.Generation {
			t.Errorf("generation %d follows %d", second.Generation, first.Generation)
		}
		if _, err := b.subs.Acknowledge(t.Context(), "work", first.Token, done(first, 1)); !errors.Is(err, subscription.ErrFenced) {
			t.Errorf("the first one acknowledges: %v", err)
		}
	})
	t.Run("what arrives while it works is delivered when it is done", func(t *testing.T) {
		before := b.wakes("wakes")
		b.put("job/1")
		more, err := other.Acknowledge(t.Context(), "work", second.Token, done(second, 1))
		if err != nil || !more {
			t.Errorf("more %t, %v", more, err)
		}
		eventually(t, "the next wake is delivered", func() bool { return b.wakes("wakes") > before })
	})
	t.Run("a token is valid only for its own subscription", func(t *testing.T) {
		b.subscribe("else", subscription.Spec{Type: "pull-wake", Pattern: "else/*", WakeStream: "wakes"})
		third, err := b.subs.Claim(t.Context(), b.house, "work", "c")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.subs.Release(t.Context(), "else", third.Token, done(third, 2)); !errors.Is(err, subscription.ErrFenced) {
			t.Errorf("the other one is released: %v", err)
		}
		if err := b.subs.Release(t.Context(), "work", third.Token, done(third, 2)); err != nil {
			t.Error(err)
		}
	})
	t.Run("without new entries there is nothing to claim", func(t *testing.T) {
		_, err := b.subs.Claim(t.Context(), b.house, "else", "a")
		wantCode(t, err, fault.Precondition)
	})
}

func TestAWebhookThatFailsIsCalledAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	var calls atomic.Int64
	seen := make(chan string, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		var n struct {
			Generation int64
			Streams    []struct {
				Path    string
				Pending bool `json:"has_pending"`
			}
		}
		json.Unmarshal(body, &n)
		seen <- fmt.Sprint(n.Generation > 1, n.Streams)
		io.WriteString(w, `{"done":true}`)
	}))
	defer hook.Close()
	b.subscribe("hook", subscription.Spec{Type: "webhook", Pattern: "events/*", Webhook: &subscription.Webhook{URL: hook.URL}})
	b.put("events/1")
	select {
	case got := <-seen:
		if got != "true [{events/1 true}]" {
			t.Errorf("the second call says %s", got)
		}
	case <-time.After(patience):
		t.Fatal("it was not called again")
	}
	eventually(t, "everything in the wake is acknowledged", func() bool {
		sub, err := b.subs.Get(t.Context(), b.house, "hook")
		return err == nil && !sub.Failing && sub.Streams[0].Acked == sub.Streams[0].Tail
	})
}

func TestWebhooksThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	b.open(true) // a second server
	const houseLimit = 4
	var now, most atomic.Int64
	stuck := make(chan struct{})
	called := make(chan struct{}, 1000)
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // so that the server notices that the caller has left
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		called <- struct{}{}
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	}))
	defer hung.Close()
	defer close(stuck)
	for i := range 3 * houseLimit {
		name := fmt.Sprintf("hung%d", i)
		b.subscribe(name, subscription.Spec{Type: "webhook", Streams: []string{"slow"}, LeaseMS: 1000, Webhook: &subscription.Webhook{URL: hung.URL}})
	}
	b.put("slow")
	for range houseLimit {
		<-called
	}
	failing := func() (n int) {
		for i := range 3 * houseLimit {
			if sub, err := b.subs.Get(t.Context(), b.house, fmt.Sprintf("hung%d", i)); err == nil && sub.Failing {
				n++
			}
		}
		return n
	}

	t.Run("do not delay another house's webhooks", func(t *testing.T) {
		other := *b
		if err := b.Owner(t).QueryRow(t.Context(), "insert into houses (name) values ('Another') returning id").Scan(&other.house); err != nil {
			t.Fatal(err)
		}
		heard := make(chan struct{}, 100)
		good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			heard <- struct{}{}
			io.WriteString(w, `{"done":true}`)
		}))
		defer good.Close()
		other.subscribe("good", subscription.Spec{Type: "webhook", Streams: []string{"quick"}, Webhook: &subscription.Webhook{URL: good.URL}})
		for range 3 {
			other.put("quick")
			<-heard
		}
		if n := failing(); n > 0 {
			t.Errorf("the others no longer wait: %d have failed", n)
		}
	})
	t.Run("fail after their timeout, however short their lease is", func(t *testing.T) {
		eventually(t, "they have failed", func() bool { return failing() >= houseLimit })
	})
	t.Run("are called a few at a time per house, by all servers together", func(t *testing.T) {
		if n := most.Load(); n > houseLimit {
			t.Errorf("%d were called at once", n)
		}
	})
}

func TestAWebhookThatAcceptsAndNeverAcknowledges(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	var calls atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer hook.Close()
	b.subscribe("hook", subscription.Spec{Type: "webhook", Streams: []string{"s"}, LeaseMS: 1000, Webhook: &subscription.Webhook{URL: hook.URL}})
	b.put("s")
	eventually(t, "it has failed", func() bool {
		sub, err := b.subs.Get(t.Context(), b.house, "hook")
		return err == nil && sub.Failing
	})
	owner := b.Owner(t)
	var next float64
	eventually(t, "its pause grows", func() bool {
		if calls.Load() < 2 {
			return false
		}
		err := owner.QueryRow(t.Context(), "select attempts from subscriptions").Scan(&next)
		return err == nil && next >= 2
	})
}

func TestAWebhookIsCalledDirectlyAndReadWithinBounds(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	if b.subs.Transport().Proxy != nil {
		t.Error("a proxy is used, which does not check addresses")
	}
	elsewhere := make(chan struct{}, 100)
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere <- struct{}{} }))
	defer to.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, to.URL, http.StatusTemporaryRedirect)
		},
		"has an endless header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) },
	} {
		t.Run("one that "+name+" has failed", func(t *testing.T) {
			hook := httptest.NewServer(answer)
			defer hook.Close()
			name := strings.ReplaceAll(name, " ", "-")
			b.subscribe(name, subscription.Spec{Type: "webhook", Streams: []string{name}, Webhook: &subscription.Webhook{URL: hook.URL}})
			b.put(name)
			eventually(t, "it has failed", func() bool {
				sub, err := b.subs.Get(t.Context(), b.house, name)
				return err == nil && sub.Failing
			})
		})
	}
	if len(elsewhere) > 0 {
		t.Error("the redirect was followed")
	}
	t.Run("one with an endless answer has accepted", func(t *testing.T) {
		left := make(chan struct{})
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(left)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(" ", 64<<10)); err != nil {
					return
				}
			}
		}))
		defer hook.Close()
		b.subscribe("endless", subscription.Spec{Type: "webhook", Streams: []string{"endless"}, Webhook: &subscription.Webhook{URL: hook.URL}})
		b.put("endless")
		<-left // before the timeout
		owner := b.Owner(t)
		eventually(t, "it has the wake", func() bool {
			var n int
			err := owner.QueryRow(t.Context(), "select count(*) from subscriptions where name = 'endless' and calling_until is null and attempts = 0 and holder = 'webhook'").Scan(&n)
			return err == nil && n == 1
		})
	})
}

func TestLimitsOfAHousesSubscriptions(t *testing.T) {
	t.Parallel()
	b := setup(t, false)
	create := func(name string, spec subscription.Spec) error {
		spec.Type, spec.WakeStream = "pull-wake", "wakes"
		_, _, err := b.subs.Create(b.t.Context(), b.house, name, "http://arbe/v1/stream/", spec)
		return err
	}
	names := func(first int) (all []string) {
		for i := range 1_000 {
			all = append(all, fmt.Sprint("s/", first+i))
		}
		return all
	}
	wantCode(t, create("wild", subscription.Spec{Pattern: strings.Repeat("**/", 16) + "*"}), fault.Invalid)
	wantCode(t, create("wild", subscription.Spec{Pattern: strings.Repeat("a*", 17)}), fault.Invalid)
	if err := create("tame", subscription.Spec{Pattern: strings.Repeat("**/", 15) + "*"}); err != nil {
		t.Error(err)
	}
	for i := range 99 {
		if err := create(fmt.Sprint("pattern-", i), subscription.Spec{Pattern: fmt.Sprintf("p%d/*", i)}); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, create("one-more", subscription.Spec{Pattern: "more/*"}), fault.Exhausted)
	for i := range 10 {
		if err := create(fmt.Sprint("named-", i), subscription.Spec{Streams: names(i * 1_000)}); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, create("one-more", subscription.Spec{Streams: []string{"more"}}), fault.Exhausted)
	wantCode(t, b.subs.Link(t.Context(), b.house, "tame", []string{"more"}), fault.Exhausted)
	if err := b.subs.Delete(t.Context(), b.house, "named-0"); err != nil {
		t.Fatal(err)
	}
	if err := b.subs.Link(t.Context(), b.house, "tame", []string{"more"}); err != nil {
		t.Errorf("a deleted subscription still counts: %v", err)
	}
}
