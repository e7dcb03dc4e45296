//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// adds appends entries by Ada to a thread.
func (b *bench) adds(th string, payloads ...entry.Payload) {
	b.t.Helper()
	for _, p := range payloads {
		if _, err := b.log.Append(b.t.Context(), b.ref(th), entry.NewDraft("", b.scope.Agent, p)); err != nil {
			b.t.Fatal(detail(err))
		}
	}
}

// search searches as a person does.
func (b *bench) search(scope db.Scope, text string, limit int) ([]thread.Found, error) {
	find, err := thread.ParseFind(text)
	if err != nil {
		return nil, err
	}
	found, _, err := b.threads.Find(b.t.Context(), scope, find, limit)
	return found, err
}

// finds waits until a search finds this many entries, and returns them as "thread:position".
func (b *bench) finds(text string, want int) (all []string) {
	b.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		found, err := b.search(b.scope, text, 100)
		if err != nil {
			b.t.Fatal(detail(err))
		}
		if len(found) == want || time.Now().After(until) {
			for _, f := range found {
				all = append(all, fmt.Sprintf("%s:%d", f.Thread, f.Entry.Seq))
			}
			if len(found) != want {
				b.t.Fatalf("%q is found in %v, want %d entries", text, all, want)
			}
			return all
		}
	}
}

func TestEntriesAreFoundByTheirWords(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newGated()
	b.server = b.serve()
	first, second := b.conversation(), b.conversation()
	b.adds(first,
		entry.Chat{Text: "The zebra's stripes, in Größe XL; see internal/turn/run.go"},
		entry.Command{Command: "make zebra-test"},
		entry.CommandResult{CommandID: "c", Output: "ok\tgithub.com/arbe-dev/arbe\t0.3s\n\x1b[31mpanic\x1b[0m: striped\n"},
		entry.StatusChanged{From: "open", To: "zebra"},
		entry.Chat{Text: "a zero byte \x00 zebra"},
		entry.Chat{Text: strings.Repeat("filler ", 10_000) + "beyond"})
	b.adds(second, entry.Chat{Text: "ZEBRA again"})

	if got := b.finds("zebra", 3); !strings.HasPrefix(got[0], second) {
		t.Errorf("they are %v, want the latest first", got)
	}
	for text, want := range map[string]int{
		"zeb": 3, "größe": 1, "stripe zebra": 1, "zebra, stripes": 1, "internal/turn/run.go": 1, "make zebra-test": 1, "panic": 1, "filler": 1,
		"beyond": 0, "ebra": 0, "zebra unicorn": 0, "'); drop table": 0, `\ & | ! zebra`: 3,
	} {
		b.finds(text, want)
	}
	found, err := b.search(b.scope, "stripes", 1)
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Snippet, "The zebra's stripes, in Größe XL") {
		t.Errorf("it finds %+v, %v", found, err)
	}
	for _, text := range []string{"", " ", "!?", strings.Repeat("x", thread.MaxSearch+1), strings.Repeat("x ", 30), "a\x00b"} {
		if _, err := b.search(b.scope, text, 10); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("a search for %q ends with %v", text[:min(len(text), 10)], err)
		}
	}
	t.Run("not by another house", func(t *testing.T) {
		other := b.scope
		other.House = "another"
		if found, err := b.search(other, "zebra", 10); err != nil || len(found) > 0 {
			t.Errorf("it finds %+v, %v", found, err)
		}
	})
	t.Run("a fork has only its own", func(t *testing.T) {
		made, err := b.threads.Fork(t.Context(), b.scope, second, thread.Fork{})
		if err != nil {
			t.Fatal(detail(err))
		}
		b.adds(made.ID, entry.Chat{Text: "zebra of the fork"})
		if got := b.finds("zebra", 4); !strings.HasPrefix(got[0], made.ID) {
			t.Errorf("they are %v", got)
		}
	})
}

func TestADeletedThreadIsNotFound(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newGated()
	b.server = b.serve()
	th := b.conversation()
	b.adds(th, entry.Chat{Text: "needle"})
	b.finds("needle", 1)
	if err := b.dispatcher.DeleteThread(t.Context(), b.scope, th); err != nil {
		t.Fatal(detail(err))
	}
	b.finds("needle", 0)
	left := 0
	if err := b.Owner(t).QueryRow(t.Context(), "select count(*) from entry_words").Scan(&left); err != nil || left > 0 {
		t.Errorf("%d words are left (%v)", left, err)
	}
}

// TestDecisionsDoNotWaitForTheIndex holds the table, so that nothing can be indexed meanwhile.
func TestDecisionsDoNotWaitForTheIndex(t *testing.T) {
	t.Parallel()
	b := deciding(t, 1, oneForEach)
	owner, holder := b.Owner(t), b.Owner(t)
	th := b.conversation()
	b.adds(th, entry.Chat{Text: "before"})
	b.finds("before", 1)
	if _, err := holder.Exec(t.Context(), "begin; lock table entry_words in exclusive mode"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // also after the first attempt to index
		id := fmt.Sprint("zebra-", i)
		b.chat(th, id)
		b.decided(owner, th, id)
	}
	if n, err := b.threads.Unsearchable(t.Context(), b.scope); err != nil || n != 3 {
		t.Errorf("%d entries are said to be unsearchable (%v)", n, err)
	}
	// The server ends before it has indexed anything, and the next one continues.
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	b.log.Close()
	b.finds("hello", 0)
	if _, err := holder.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	b.server = b.serve()
	b.finds("hello", 3)
	if n, err := b.threads.Unsearchable(t.Context(), b.scope); err != nil || n != 0 {
		t.Errorf("%d entries are said to be unsearchable at the end (%v)", n, err)
	}
}

// TestALivingServerIndexesWhatADeadOneLeft: a server that stops in a hurry leaves its row, as a killed one does.
func TestALivingServerIndexesWhatADeadOneLeft(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newGated()
	b.tune = func(c *dispatch.Config) {
		c.Select = oneForEach
		c.Jobs.SweepEvery = 200 * time.Millisecond
		c.Jobs.LockGrace = 100 * time.Millisecond
	}
	b.server = b.serve()
	dead := b.server
	th := b.conversation()
	holder := b.Owner(t)
	if _, err := holder.Exec(t.Context(), "begin; lock table entry_words in exclusive mode"); err != nil {
		t.Fatal(err)
	}
	b.chat(th, "a", "b")
	b.decided(b.Owner(t), th, "a", "b")
	b.server = b.serve()
	if err := dead.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	dead.log.Close()
	if _, err := holder.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	b.finds("hello", 2)
}

// TestServersShareTheIndexing: of two servers that index a thread at the same time, the second neither repeats the first
// one's work nor waits for it.
func TestServersShareTheIndexing(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newGated()
	b.server = b.serve()
	th := b.conversation()
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	b.log.Close()
	log, err := stream.Open(t.Context(), b.DB, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(detail(err))
	}
	defer log.Close()
	for range 100 {
		if _, err := log.Append(t.Context(), b.ref(th), entry.NewDraft("", b.scope.Agent, entry.Chat{Text: "hello"})); err != nil {
			t.Fatal(detail(err))
		}
	}
	var id int64
	owner := b.Owner(t)
	decide := func(upto int) {
		t.Helper()
		if err := owner.QueryRow(t.Context(), "update decisions set decided = $2 where thread_id = $1 returning stream_id", th, upto).Scan(&id); err != nil {
			t.Fatal(err)
		}
	}
	next := func(tx pgx.Tx) (more []int64) {
		t.Helper()
		more, err := query.New().IndexNext(t.Context(), tx, []int64{id}, 60_000)
		if err != nil {
			t.Fatal(detail(err))
		}
		return more
	}
	// The first work on a thread creates its cursor.
	decide(10)
	if err := b.DB.In(t.Context(), db.Scope{}, func(tx pgx.Tx) error { next(tx); return nil }); err != nil {
		t.Fatal(detail(err))
	}
	decide(100)
	if err := b.DB.In(t.Context(), db.Scope{}, func(one pgx.Tx) error {
		if more := next(one); len(more) > 0 {
			t.Errorf("the first leaves %v", more)
		}
		return b.DB.In(t.Context(), db.Scope{}, func(other pgx.Tx) error {
			written := func() (words int64) { // of this connection, earlier transactions included
				t.Helper()
				if err := other.QueryRow(t.Context(), "select pg_stat_get_xact_tuples_inserted('entry_words'::regclass)").Scan(&words); err != nil {
					t.Fatal(err)
				}
				return words
			}
			before := written()
			if more := next(other); !slices.Equal(more, []int64{id}) {
				t.Errorf("the second is left with %v", more)
			}
			if words := written() - before; words > 0 {
				t.Errorf("it wrote %d words again", words)
			}
			return nil
		})
	}); err != nil {
		t.Fatal(detail(err))
	}
	b.finds("hello", 100)
}

// TestASelectorSeesOnlyChatsThatMayMentionABot: one round passes a long log in a single step.
func TestASelectorSeesOnlyChatsThatMayMentionABot(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen, calls := map[bool][]string{}, 0
	b := deciding(t, 1, func(ctx context.Context, n *dispatch.News) (dispatch.Work, error) {
		var handles []string
		if n.Direct == "" {
			handles = []string{"other", "bot"}
		}
		chats, err := n.Chats(ctx, handles)
		mu.Lock()
		defer mu.Unlock()
		calls++
		for _, e := range chats {
			seen[n.Direct == ""] = append(seen[n.Direct == ""], e.ID)
		}
		return nil, err
	})
	owner := b.Owner(t)
	wait := func(th string, tail int64) {
		t.Helper()
		for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			var decided int64
			if err := owner.QueryRow(t.Context(), "select decided from decisions where thread_id = $1", th).Scan(&decided); err != nil {
				t.Fatal(err)
			}
			if decided == tail {
				return
			} else if time.Now().After(until) {
				t.Fatalf("%d are decided, want %d", decided, tail)
			}
		}
	}
	var drafts []entry.Draft
	for i := range 3000 {
		drafts = append(drafts, entry.NewDraft(fmt.Sprint("talk-", i), b.scope.Agent, entry.Chat{Text: "nothing"}))
	}
	drafts = append(drafts,
		entry.NewDraft("arbe", "", entry.Chat{Text: "@bot"}),
		entry.NewDraft("command", b.scope.Agent, entry.Command{Command: "echo @bot"}),
		entry.NewDraft("plain", b.scope.Agent, entry.Chat{Text: "@bot"}),
		entry.NewDraft("people", b.scope.Agent, entry.Chat{Text: "@ada and bot"}),
		entry.NewDraft("loud", b.scope.Agent, entry.Chat{Text: "HEY @BOT"}),
		entry.Draft{ID: "escaped", Author: b.scope.Agent, Type: "chat", Payload: []byte(`{"text": "\u0040bot"}`)},
		entry.Draft{ID: "half", Author: b.scope.Agent, Type: "chat", Payload: []byte(`{"text": "@b\u006ft"}`)})
	th := b.conversation()
	if _, err := b.log.Append(t.Context(), b.ref(th), drafts...); err != nil {
		t.Fatal(detail(err))
	}
	wait(th, int64(len(drafts)))
	direct, err := b.threads.Create(t.Context(), b.scope, thread.Draft{ParentAgent: b.scope.Agent})
	if err != nil {
		t.Fatal(detail(err))
	}
	if _, err := b.log.Append(t.Context(), b.ref(direct.ID), drafts...); err != nil {
		t.Fatal(detail(err))
	}
	wait(direct.ID, int64(len(drafts)))
	mu.Lock()
	defer mu.Unlock()
	if got := seen[true]; !slices.Equal(got, []string{"plain", "loud", "escaped", "half"}) {
		t.Errorf("of those that may mention somebody it sees %v", got)
	}
	if got := seen[false]; len(got) != 3005 || got[0] != "talk-0" || got[3004] != "half" {
		t.Errorf("of all chats it sees %d", len(got))
	}
	if calls != 1+4 {
		t.Errorf("it is called %d times, want once for the few, and for each thousand of all", calls)
	}
}

func TestBotsSearch(t *testing.T) {
	t.Parallel()
	r := bots(t, toolCaller("search_entries", map[string]any{"query": "zebr from:ada", "limit": 5}, map[string]any{"query": "unicorn"}))
	other := r.conversation()
	r.adds(other, entry.Chat{Text: "the zebra is striped"})
	r.finds("zebra", 1)
	r.says("q", "@bot look it up")
	r.answer("q")
	var results []string
	for _, e := range r.entries() {
		if p, ok := entry.As[entry.PiToolResult](e); ok {
			results = append(results, p.Text())
		}
	}
	slices.Sort(results) // the two calls run at once
	if len(results) != 2 || results[0] != "nothing was found" || !strings.Contains(results[1], "thread "+other) || !strings.Contains(results[1], "chat by Ada\n  the zebra is striped") {
		t.Errorf("the tool returned %q", results)
	}
}
