//go:build linux

package dispatch_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// setStatus closes a thread, or opens it again.
func (b *bench) setStatus(th string, s thread.Status) {
	b.t.Helper()
	if _, err := b.threads.Update(b.t.Context(), b.scope, th, thread.Change{Status: &s}); err != nil {
		b.t.Fatal(detail(err))
	}
}

func TestAClosedThreadTakesNoPostsAndNoCommands(t *testing.T) {
	t.Parallel()
	b, gated := onGated(t, 1, dispatch.Limits{})
	th := b.thread(sandbox.Recipe{})
	ctx := t.Context()
	chat := func(id string) entry.Draft { return entry.NewDraft(id, b.scope.Agent, entry.Chat{Text: "hello"}) }
	b.says(b.runner(), th, dispatch.Message{ID: "before", Text: "hello"})
	running := b.ask(th, "make slow")
	gated.HasBegun(t, "make slow")
	doors := map[string]func(id string) error{
		"a chat": func(id string) error {
			_, err := b.dispatcher.Say(ctx, b.runner(), th, dispatch.Message{ID: id, Text: "hello"})
			return err
		},
		"a chat that is a command": func(id string) error {
			_, err := b.dispatcher.Say(ctx, b.runner(), th, dispatch.Message{ID: id, Text: "!ls"})
			return err
		},
		"a command": func(id string) error {
			_, err := b.dispatcher.Commands.Run(ctx, b.scope, th, id, entry.Command{Command: "ls"})
			return err
		},
		"an append": func(id string) error {
			_, err := b.log.Append(ctx, b.ref(th), chat(id))
			return err
		},
		"an append of several": func(id string) error {
			_, err := b.log.Append(ctx, b.ref(th), chat(id), chat(id+"2"))
			return err
		},
		"an append in a transaction": func(id string) error {
			return b.DB.In(ctx, b.scope, func(tx pgx.Tx) error {
				_, err := b.log.AppendTx(ctx, tx, b.ref(th), chat(id))
				return err
			})
		},
		"a write of a stream": func(id string) error {
			w := stream.Write{ContentType: "application/json", Content: []entry.Draft{chat(id)}}
			_, err := b.dispatcher.SayAll(ctx, b.runner(), th, w, []bool{true})
			return err
		},
	}
	b.setStatus(th, thread.Closed)
	t.Run("through no door", func(t *testing.T) {
		before := len(b.entries(th))
		for name, say := range doors {
			err := say("refused " + name)
			if wantCode(t, err, fault.Precondition); err != nil && fault.From(err).Next == "" {
				t.Errorf("%s: %v does not say what to do", name, err)
			}
		}
		if now := b.entries(th); len(now) != before {
			t.Errorf("the log has grown from %d entries to %d", before, len(now))
		}
	})
	t.Run("but a retry of what was said before gets its entry", func(t *testing.T) {
		if e := b.says(b.runner(), th, dispatch.Message{ID: "before", Text: "hello"}); e.Seq != 1 {
			t.Errorf("it is %v", e)
		}
	})
	t.Run("and a running command still gets its result", func(t *testing.T) {
		gated.End("make slow")
		b.result(th, running)
	})
	t.Run("and it takes them again when it is opened", func(t *testing.T) {
		b.setStatus(th, thread.Open)
		for name, say := range doors {
			if err := say("taken " + name); err != nil {
				t.Errorf("%s: %s", name, detail(err))
			}
		}
	})
}
