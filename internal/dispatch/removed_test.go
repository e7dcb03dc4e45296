//go:build linux

package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/turn"
)

// removable restarts a bench's server so that its bot exists only while it is a member.
func (r *botBench) removable() *botBench {
	r.t.Helper()
	tune := r.tune
	r.tune = func(c *dispatch.Config) {
		tune(c)
		d, settings := c.DB, c.Bots.Bot
		c.Bots.Bot = func(ctx context.Context, scope db.Scope, id string) (turn.Bot, error) {
			member := false
			err := d.In(ctx, scope, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, "select exists (select from members where agent_id = $1)", id).Scan(&member)
			})
			if err == nil && !member {
				err = fault.New(fault.NotFound, "there is no such bot in this house", "")
			}
			if err != nil {
				return turn.Bot{}, err
			}
			return settings(ctx, scope, id)
		}
	}
	if err := r.stop(r.t.Context()); err != nil {
		r.t.Fatal(detail(err))
	}
	r.server = r.serve()
	return r
}

// remove removes the bot, and asserts how many turns that stops.
func (r *botBench) remove(want int) {
	r.t.Helper()
	var found []turn.Turn
	var end func(context.Context) error
	err := r.DB.In(r.t.Context(), r.scope, func(tx pgx.Tx) (err error) {
		if found, end, err = r.dispatcher.StopBotTx(r.t.Context(), tx, r.scope, r.bot); err != nil {
			return err
		}
		_, err = tx.Exec(r.t.Context(), "delete from members where agent_id = $1", r.bot)
		return err
	})
	if err != nil || len(found) != want {
		r.t.Fatalf("%d turns were stopped, want %d: %v", len(found), want, err)
	}
	if err := end(r.t.Context()); err != nil {
		r.t.Fatal(detail(err))
	}
}

// saysRemoved waits until a turn ends because its bot was removed.
func (r *botBench) saysRemoved(asked string) {
	r.t.Helper()
	e := r.end(asked)
	if e.Outcome != entry.TurnFailed || e.Reason != "bot_removed" || e.Message != "the bot was removed" || e.Next == "" || e.StoppedBy != r.scope.Agent {
		r.t.Errorf("it ends with %+v", e)
	}
}

func TestTheTurnsOfARemovedBotStop(t *testing.T) {
	t.Parallel()
	t.Run("while its model writes", func(t *testing.T) {
		t.Parallel()
		r := bots(t, nil).removable()
		r.settings.Model = "fake-slow"
		r.says("q", "@bot one two three four")
		r.follow(r.th, func(ev stream.Event) bool { return ev.Delta != nil && strings.Contains(string(ev.Delta.Data), "⟦") })
		r.remove(1)
		r.saysRemoved("q")
		select {
		case <-r.models.Requests()[0].Gone:
		case <-time.After(patience):
			t.Error("the model is still being asked")
		}
		var calls int
		if err := r.Owner(t).QueryRow(t.Context(), "select count(*) from model_calls").Scan(&calls); err != nil || calls != 1 {
			t.Errorf("its cost records have %d calls: %v", calls, err)
		}
	})
	t.Run("while its command runs, which is cancelled", func(t *testing.T) {
		t.Parallel()
		r := botsOn(t, realBoxes(t), toolCaller("run_command", map[string]string{"command": "echo begun; sleep 1000"})).removable()
		env, err := r.boxes.CreateEnvironment(t.Context(), r.scope, "an environment", sandbox.Recipe{Driver: "local"})
		if err != nil {
			t.Fatal(detail(err))
		}
		r.th = r.threadWith(env.ID)
		r.says("q", "@bot go")
		r.follow(r.th, func(ev stream.Event) bool { return ev.Delta != nil && string(ev.Delta.Data) == "begun\n" }) // not what the model writes
		r.remove(1)
		r.saysRemoved("q")
		all := r.until(func(e entry.Entry) bool { return e.Type == entry.CommandResult{}.Type() })
		if res := of[entry.CommandResult](all); !res[0].Cancelled {
			t.Errorf("the command ends with %+v", res[0])
		}
	})
	t.Run("and those that wait, in all threads", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "one two", Hold: true} }).removable()
		first := r.th
		r.says("q", "@bot go")
		r.awaitRequests(1)
		r.th = r.conversation()
		r.says("later", "later")
		r.until(func(e entry.Entry) bool { return e.ID == "later" })
		owner := r.Owner(t)
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			n, err := r.dispatcher.AtWork(t.Context(), r.scope, r.bot)
			var delayed int
			if err == nil {
				err = owner.QueryRow(t.Context(), "select count(*) from turns where status = 'delayed'").Scan(&delayed)
			}
			if err != nil {
				t.Fatal(detail(err))
			}
			if n == 1 && delayed == 1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d turns are at work and %d delayed, want one of each", n, delayed)
			}
		}
		r.remove(2)
		all := r.until(func(e entry.Entry) bool { return e.Type == entry.Skipped{}.Type() })
		if s := of[entry.Skipped](all); s[0].EntryID != "later" {
			t.Errorf("the delayed turn ends with %+v", s[0])
		}
		r.th = first
		r.saysRemoved("q")
	})
}
