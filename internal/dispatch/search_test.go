//go:build linux

package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

// adds appends entries of Ada's to a thread.
func (b *bench) adds(th string, payloads ...entry.Payload) {
	b.t.Helper()
	for _, p := range payloads {
		if _, err := b.log.Append(b.t.Context(), b.ref(th), entry.NewDraft("", b.scope.Agent, p)); err != nil {
			b.t.Fatal(detail(err))
		}
	}
}

// finds waits until a search finds as many entries, and returns them as "thread:position".
func (b *bench) finds(text string, want int) (all []string) {
	b.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		found, err := b.threads.Search(b.t.Context(), b.scope, text, 100)
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
	b.driver = newShelf()
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
	found, err := b.threads.Search(t.Context(), b.scope, "stripes", 1)
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Snippet, "The zebra's stripes, in Größe XL") {
		t.Errorf("it finds %+v, %v", found, err)
	}
	for _, text := range []string{"", " ", "!?", strings.Repeat("x", thread.MaxSearch+1), strings.Repeat("x ", 30), "a\x00b"} {
		if _, err := b.threads.Search(t.Context(), b.scope, text, 10); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("a search for %q ends with %v", text[:min(len(text), 10)], err)
		}
	}
	t.Run("not by another house", func(t *testing.T) {
		other := b.scope
		other.House = "another"
		if found, err := b.threads.Search(t.Context(), other, "zebra", 10); err != nil || len(found) > 0 {
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
	b.driver = newShelf()
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

func TestBotsSearch(t *testing.T) {
	t.Parallel()
	r := bots(t, toolCaller("search_entries", map[string]any{"query": "zebr", "limit": 5}, map[string]any{"query": "unicorn"}))
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
	if len(results) != 2 || results[0] != "nothing was found" || !strings.Contains(results[1], "thread "+other) || !strings.Contains(results[1], "Ada (chat): the zebra is striped") {
		t.Errorf("the tool returned %q", results)
	}
}
