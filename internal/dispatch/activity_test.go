//go:build linux

package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestTheRowOfAThreadSaysWhatWasSaidLastAndWhatRuns(t *testing.T) {
	t.Parallel()
	b, shelf := onShelf(t, 1, dispatch.Limits{})
	th := b.thread(sandbox.Recipe{})
	conn := b.Owner(t)
	var stream int64
	if err := conn.QueryRow(t.Context(), "select s.id from streams s join threads t on t.stream_id = s.name where t.id = $1", th).Scan(&stream); err != nil {
		t.Fatal(err)
	}
	row := func() thread.Thread {
		t.Helper()
		for late := time.Now().Add(patience); ; { // a thread that is locked is touched again
			again, err := b.threads.Touch(t.Context(), []int64{stream})
			if err != nil {
				t.Fatal(detail(err))
			}
			if len(again) == 0 {
				break
			}
			if time.Now().After(late) {
				t.Fatal("the thread stays locked")
			}
		}
		got, err := b.threads.Get(t.Context(), b.scope, th)
		if err != nil {
			t.Fatal(detail(err))
		}
		return got
	}
	last := func() string {
		if said := row().LastSaid; said != nil {
			return said.AuthorName + ": " + said.Text
		}
		return ""
	}
	wants := func(t *testing.T, want string) {
		t.Helper()
		if got := last(); got != want {
			t.Errorf("the last thing said is %q, want %q", got, want)
		}
	}
	wants(t, "")
	b.says(b.runner(), th, dispatch.Message{Text: "hello\n\n  there"})
	wants(t, "Ada: hello there")
	command := b.ask(th, "make slow")
	wants(t, "Ada: $ make slow")
	if r := row().Running; r == nil || r.Command != command || r.Since.IsZero() {
		t.Errorf("what runs is %+v", r)
	}
	shelf.hasBegun(t, "make slow")
	shelf.end("make slow")
	b.result(th, command)
	if r := row().Running; r != nil {
		t.Errorf("what runs is %+v", r)
	}
	wants(t, "Ada: $ make slow") // the result is not something said

	t.Run("and a hostile text is no harm", func(t *testing.T) {
		for i, payload := range []string{`{"text":"\u0000"}`, `{"text":"\ud800 half a character"}`} {
			draft := entry.Draft{ID: fmt.Sprint("hostile", i), Author: b.scope.Agent, Type: "chat", Payload: []byte(payload)}
			if _, err := b.log.Append(t.Context(), b.ref(th), draft); err == nil {
				wants(t, "")
			}
		}
		b.says(b.runner(), th, dispatch.Message{Text: "after"})
		wants(t, "Ada: after")
	})
}
