package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/turn"
)

func TestTheToolsOfATurn(t *testing.T) {
	t.Parallel()
	t.Run("run beside each other, and their results come in the order of the calls", func(t *testing.T) {
		t.Parallel()
		b := setup(t, uses([]string{"first", "second"}))
		second := make(chan struct{})
		b.has(
			tool("first", func(ctx context.Context, _ turn.Call) (turn.Result, error) {
				select {
				case <-second: // it can only end after the second began
				case <-ctx.Done():
				}
				return turn.Result{Text: "one"}, ctx.Err()
			}),
			tool("second", func(context.Context, turn.Call) (turn.Result, error) {
				close(second)
				return turn.Result{Text: "two"}, nil
			}))
		asked, _ := b.asks("q", "go")
		b.answered(asked.ID)
		var read []string
		for _, m := range b.models.Requests()[1].Messages {
			if m.Role == "tool" {
				read = append(read, m.Text)
			}
		}
		if !slices.Equal(read, []string{"one", "two"}) {
			t.Errorf("the model reads %q", read)
		}
	})
	t.Run("fail in words for the model", func(t *testing.T) {
		t.Parallel()
		for name, run := range map[string]func(context.Context, turn.Call) (turn.Result, error){
			"an error": func(context.Context, turn.Call) (turn.Result, error) {
				return turn.Result{}, fault.New(fault.Precondition, "the door is locked", "find the key")
			},
			"a panic": func(context.Context, turn.Call) (turn.Result, error) { panic("the door is locked") },
		} {
			b := setup(t, uses([]string{"open"}))
			b.has(tool("open", run))
			asked, _ := b.asks("q", "go")
			b.answered(asked.ID)
			if results := of[entry.PiToolResult](b); len(results) != 1 || !results[0].IsError || name == "an error" && !strings.Contains(results[0].Text(), "the door is locked") {
				t.Errorf("%s: the results are %+v", name, results)
			}
		}
	})
	t.Run("are known by their names", func(t *testing.T) {
		t.Parallel()
		b := setup(t, uses([]string{"dance"}))
		b.has(says("sing", "la"))
		asked, _ := b.asks("q", "go")
		b.answered(asked.ID)
		if results := of[entry.PiToolResult](b); len(results) != 1 || !results[0].IsError || !strings.Contains(results[0].Text(), "sing") {
			t.Errorf("the result of a tool that does not exist is %+v", results)
		}
	})
	t.Run("run only with arguments that fit", func(t *testing.T) {
		t.Parallel()
		for _, arguments := range []string{`{"n":"three"}`, `[]`, `null`, `{"n":3`, `{"m":3}`} {
			b := setup(t, func(q *modeltest.Request) modeltest.Reply {
				if q.Seen == 0 {
					return modeltest.Reply{Calls: []modeltest.Call{{Name: "count", Arguments: arguments}}}
				}
				return modeltest.ByName(q)
			})
			count := says("count", "counted")
			count.Schema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)
			b.has(count)
			asked, _ := b.asks("q", "go")
			b.answered(asked.ID)
			if results := of[entry.PiToolResult](b); len(results) != 1 || !results[0].IsError || strings.Contains(results[0].Text(), "counted") {
				t.Errorf("with %s, the results are %+v", arguments, results)
			}
		}
	})
	t.Run("run as often as one turn may call them", func(t *testing.T) {
		t.Parallel()
		b := setup(t, uses([]string{"look"}, []string{"look"}, []string{"look"}))
		look := says("look", "it is sunny")
		look.Most = 2
		b.has(look)
		asked, _ := b.asks("q", "go")
		b.answered(asked.ID)
		var failed []bool
		for _, r := range of[entry.PiToolResult](b) {
			failed = append(failed, r.IsError)
		}
		if !slices.Equal(failed, []bool{false, false, true}) {
			t.Errorf("the results failed: %v", failed)
		}
	})
}

// Which tools a bot has is asked before each step: they may be the house's own, and change at any time.
func TestToolsAreAskedForBeforeEachStep(t *testing.T) {
	t.Parallel()
	t.Run("one that is added can be used", func(t *testing.T) {
		t.Parallel()
		b := setup(t, uses([]string{"look"}, []string{"sing"}))
		b.settings.Tools = []string{"sing"}
		b.has(tool("look", func(context.Context, turn.Call) (turn.Result, error) {
			b.change(func() { b.tools = append(b.tools, says("sing", "la")) })
			return turn.Result{Text: "it is sunny"}, nil
		}))
		asked, _ := b.asks("q", "go")
		if c := b.answered(asked.ID); !strings.Contains(c.Text, "la") {
			t.Errorf("it answers %q", c.Text)
		}
		var offered [][]string
		for _, q := range b.models.Requests() {
			offered = append(offered, q.Tools)
		}
		if len(offered) != 3 || !slices.Equal(offered[0], []string{"look"}) || !slices.Equal(offered[1], []string{"look", "sing"}) {
			t.Errorf("the model was offered %q", offered)
		}
	})
	t.Run("one that is withdrawn does not run, though it was called", func(t *testing.T) {
		t.Parallel()
		b := setup(t, uses([]string{"look"}))
		ctx, interrupt := context.WithCancel(t.Context())
		ran := 0
		b.has(tool("look", func(ctx context.Context, _ turn.Call) (turn.Result, error) {
			ran++
			interrupt()
			<-ctx.Done()
			return turn.Result{}, ctx.Err()
		}))
		asked, _ := b.asks("q", "go")
		if err := b.runOn(ctx, asked.ID); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		b.change(func() { b.tools = nil })
		b.answered(asked.ID)
		if results := of[entry.PiToolResult](b); ran != 1 || len(results) != 1 || !results[0].IsError {
			t.Errorf("it ran %d times, and its results are %+v", ran, results)
		}
	})
	t.Run("and only those that the bot's settings and its policy name", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		b.has(says("look", "sunny"), says("sing", "la"))
		b.change(func() { b.tools = append(b.tools, says("dance", "tap")) })
		asked, _ := b.asks("q", "go", func(q *turn.Request) { q.Tools = []string{"sing", "dance"} })
		b.answered(asked.ID)
		if offered := b.models.Requests()[0].Tools; !slices.Equal(offered, []string{"sing"}) {
			t.Errorf("the model was offered %q", offered)
		}
	})
}

func TestATurnAsksPeople(t *testing.T) {
	t.Parallel()
	// asking is a bench whose bot waits for a person's approval to its tool.
	asking := func(t *testing.T) (b *bench, id string, q approval.Approval) {
		t.Helper()
		b = setup(t, uses([]string{"deploy"}))
		b.has(says("deploy", "it is live"))
		b.settings.Ask = []string{"deploy"}
		asked, _ := b.asks("q", "deploy it")
		if err := b.run(asked.ID); !errors.Is(err, turn.ErrAsking) {
			t.Fatalf("the run returned %v", err)
		}
		if got := b.row(asked.ID); got.Status != turn.Asking || len(b.parked) != 1 || len(of[entry.PermissionAsked](b)) != 1 {
			t.Fatalf("its row says %+v, and %d turns were parked", got, len(b.parked))
		}
		b.in(func(tx pgx.Tx) error {
			open, err := approval.OpenTx(b.t.Context(), tx, b.scope.House, b.thread, db.Cursor{}, 10)
			if err == nil && len(open) != 1 {
				t.Fatalf("the open requests are %+v", open)
			}
			q = open[0]
			return err
		})
		return b, asked.ID, q
	}
	answer := func(b *bench, q approval.Approval, yes bool, reason string) (resume string, err error) {
		err = b.DB.In(b.t.Context(), b.scope, func(tx pgx.Tx) (err error) {
			_, resume, err = turn.AnswerTx(b.t.Context(), tx, b.log, b.ref(), b.scope.Agent, approval.Answer{House: b.scope.House, Thread: b.thread, Approval: q.ID, Approve: yes, Reason: reason})
			return err
		})
		return resume, err
	}
	t.Run("and goes on with a yes", func(t *testing.T) {
		t.Parallel()
		b, id, q := asking(t)
		for range 2 { // to repeat it is harmless
			if _, err := answer(b, q, true, ""); err != nil {
				t.Fatal(err)
			}
		}
		if c := b.answered(id); !strings.Contains(c.Text, "it is live") {
			t.Errorf("it answers %q", c.Text)
		}
		if _, err := answer(b, q, false, ""); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("a no after the yes returned %v", err)
		}
	})
	t.Run("and does not run what got a no", func(t *testing.T) {
		t.Parallel()
		b, id, q := asking(t)
		if resume, err := answer(b, q, false, "not on a Friday"); err != nil || resume != id {
			t.Fatalf("the turn %q goes on (%v)", resume, err)
		}
		if c := b.answered(id); strings.Contains(c.Text, "it is live") || !strings.Contains(c.Text, "not on a Friday") {
			t.Errorf("it answers %q", c.Text)
		}
	})
	t.Run("and does not run what nobody answered in time", func(t *testing.T) {
		t.Parallel()
		b, id, _ := asking(t)
		if _, err := b.Owner(t).Exec(t.Context(), "update approvals set expires_at = now() - interval '1 second'"); err != nil {
			t.Fatal(err)
		}
		if c := b.answered(id); strings.Contains(c.Text, "it is live") || !strings.Contains(c.Text, "nobody said in time") {
			t.Errorf("it answers %q", c.Text)
		}
	})
	t.Run("and does not ask twice", func(t *testing.T) {
		t.Parallel()
		b, id, _ := asking(t)
		if err := b.run(id); !errors.Is(err, turn.ErrAsking) || len(of[entry.PermissionAsked](b)) != 1 {
			t.Errorf("the next run returned %v, and people were asked %d times", err, len(of[entry.PermissionAsked](b)))
		}
	})
	t.Run("unless the tool was withdrawn meanwhile", func(t *testing.T) {
		t.Parallel()
		b, id, q := asking(t)
		b.change(func() { b.tools = nil })
		if _, err := answer(b, q, true, ""); err != nil {
			t.Fatal(err)
		}
		if c := b.answered(id); strings.Contains(c.Text, "it is live") {
			t.Errorf("it answers %q", c.Text)
		}
	})
}
