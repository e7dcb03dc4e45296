package turn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/turn"
)

func TestATurnAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	asked, outcome := b.asks("q", "when do we meet?")
	if outcome != turn.Began {
		t.Fatalf("the request came to %v", outcome)
	}
	c := b.answered(asked.ID)
	if !strings.Contains(c.Text, "when do we meet?") || c.ReplyTo != "q" || c.Turn.Steps != 1 || !slices.Equal(c.Turn.Answers, []string{"q"}) {
		t.Errorf("it answers %+v with the summary %+v", c, c.Turn)
	}
	if got := b.row(asked.ID); got.Status != turn.Answered || got.Ended.IsZero() {
		t.Errorf("its row says %+v", got)
	}
	if err := b.run(asked.ID); err != nil {
		t.Errorf("to run it again returned %v", err)
	}
	if n := len(b.models.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
}

// A person who speaks while a bot works is heard in the same turn. One who speaks later is answered by the next.
func TestATurnTakesWhatIsSaidMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, uses([]string{"look"}))
	var id string
	b.has(tool("look", func(context.Context, turn.Call) (turn.Result, error) {
		if took, outcome := b.asks("also", "and where?"); outcome != turn.Steered || took.ID != id {
			t.Errorf("the second question came to %v in the turn %s", outcome, took.ID)
		}
		return turn.Result{Text: "it is sunny"}, nil
	}))
	asked, _ := b.asks("q", "when?")
	id = asked.ID
	c := b.answered(id)
	if !slices.Equal(c.Turn.Answers, []string{"q", "also"}) {
		t.Errorf("it answers %q", c.Turn.Answers)
	}
	if last := b.models.Requests()[1]; !strings.Contains(fmt.Sprint(last.Messages), "and where?") {
		t.Errorf("the model reads %+v", last.Messages)
	}
	if next, outcome := b.asks("next", "thanks"); outcome != turn.Began || next.ID == id {
		t.Errorf("the third question came to %v in the turn %s", outcome, next.ID)
	}
}

func TestATurnGoesOnWhereItWasInterrupted(t *testing.T) {
	t.Parallel()
	b := setup(t, uses([]string{"look"}))
	ctx, interrupt := context.WithCancel(t.Context())
	var calls []string
	b.has(tool("look", func(ctx context.Context, c turn.Call) (turn.Result, error) {
		if calls = append(calls, c.ID); len(calls) == 1 {
			interrupt()
			<-ctx.Done()
			return turn.Result{}, ctx.Err()
		}
		return turn.Result{Text: "it is sunny"}, nil
	}))
	asked, _ := b.asks("q", "how is the weather?")
	if err := b.runOn(ctx, asked.ID); !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted run returned %v", err)
	}
	if got := b.row(asked.ID); got.Status != turn.Running || got.Deaths != 0 {
		t.Errorf("meanwhile its row says %+v", got)
	}
	if c := b.answered(asked.ID); !strings.Contains(c.Text, "it is sunny") {
		t.Errorf("it answers %q", c.Text)
	}
	if len(calls) != 2 || calls[0] != calls[1] {
		t.Errorf("the tool was called as %q", calls)
	}
	if n := len(b.models.Requests()); n != 2 {
		t.Errorf("the model was asked %d times: a step that is in the log is not made again", n)
	}
}

// If two servers work on a turn, the one that began later continues.
func TestATurnIsWorkedOnByOneServer(t *testing.T) {
	t.Parallel()
	b := setup(t, uses([]string{"look"}))
	began, proceed := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	b.has(tool("look", func(context.Context, turn.Call) (turn.Result, error) {
		if first.CompareAndSwap(false, true) {
			close(began)
			<-proceed
		}
		return turn.Result{Text: "it is sunny"}, nil
	}))
	asked, _ := b.asks("q", "how is the weather?")
	overtaken := make(chan error)
	go func() { overtaken <- b.run(asked.ID) }()
	<-began
	if c := b.answered(asked.ID); !strings.Contains(c.Text, "it is sunny") {
		t.Errorf("it answers %q", c.Text)
	}
	close(proceed)
	if err := <-overtaken; err != nil && !errors.Is(err, turn.ErrOvertaken) {
		t.Errorf("the first server's run returned %v", err)
	}
	if n := len(of[entry.PiToolResult](b)); n != 1 {
		t.Errorf("the log has %d results", n)
	}
}

func TestAServerThatDiesTooOftenEndsTheTurn(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	asked, _ := b.asks("q", "hello")
	// Each server that begins counts as dead until it comes back.
	if _, err := b.Owner(t).Exec(t.Context(), "update turns set status = 'running', started_at = now(), deaths = 3, attempts = 3 where id = $1", asked.ID); err != nil {
		t.Fatal(err)
	}
	if e := b.ended(asked.ID); e.Outcome != entry.TurnFailed || e.Reason != "server_died" {
		t.Errorf("it ended with %+v", e)
	}
	if n := len(b.models.Requests()); n != 0 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestATurnThatIsStopped(t *testing.T) {
	t.Parallel()
	stop := func(b *bench, id string) {
		b.in(func(tx pgx.Tx) error {
			_, ok, err := turn.StopTx(b.t.Context(), tx, id, b.scope.Agent)
			if !ok {
				t.Error("it has ended before")
			}
			return err
		})
	}
	t.Run("before it begins", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		asked, _ := b.asks("q", "hello")
		stop(b, asked.ID)
		if e := b.ended(asked.ID); e.Outcome != entry.TurnStopped || e.StoppedBy != b.scope.Agent {
			t.Errorf("it ended with %+v", e)
		}
		if n := len(b.models.Requests()); n != 0 {
			t.Errorf("the model was asked %d times", n)
		}
	})
	t.Run("while its tool runs, whose result nobody waits for", func(t *testing.T) {
		t.Parallel()
		b := setup(t, uses([]string{"look"}))
		ctx, interrupt := context.WithCancel(t.Context())
		asked, _ := b.asks("q", "hello")
		b.has(tool("look", func(ctx context.Context, _ turn.Call) (turn.Result, error) {
			stop(b, asked.ID)
			interrupt() // as the server does with the job of a turn that is stopped
			<-ctx.Done()
			return turn.Result{}, ctx.Err()
		}))
		if err := b.runOn(ctx, asked.ID); err != nil {
			t.Fatal(err)
		}
		if ends := of[entry.TurnEnded](b); len(ends) != 1 || ends[0].Outcome != entry.TurnStopped {
			t.Errorf("it ended with %+v", ends)
		}
		if err := b.run(asked.ID); err != nil || len(b.models.Requests()) != 1 {
			t.Errorf("the next run returned %v after %d requests", err, len(b.models.Requests()))
		}
	})
}

func TestATurnWhoseBotIsRemovedEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	asked, _ := b.asks("q", "hello")
	b.change(func() { b.removed = true })
	if err := b.run(asked.ID); err != nil {
		t.Fatal(err)
	}
	if got := b.row(asked.ID); got.Status.Active() || got.Status == turn.Answered {
		t.Errorf("its row says %+v", got)
	}
}

// An error that people can fix ends the turn and says how. A temporary error does not end it.
func TestATurnThatCannotBePrepared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench)
		reason string // of the end; empty if the run is to be repeated
	}{
		"its house has no model": {func(b *bench) { b.settings.Model = "" }, "no_model"},
		"its tools cannot be had": {func(b *bench) {
			b.noTools = fault.New(fault.Precondition, "the server of the house's tools is gone", "remove it")
		}, "tools"},
		"its tools cannot be read for now": {func(b *bench) { b.noTools = fault.New(fault.Unavailable, "the database is away", "try again") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.change(func() { c.change(b) })
			asked, _ := b.asks("q", "hello")
			if c.reason == "" {
				if err := b.run(asked.ID); fault.CodeOf(err) != fault.Unavailable {
					t.Errorf("the run returned %v", err)
				}
				b.change(func() { b.noTools = nil })
				b.answered(asked.ID)
				return
			}
			if e := b.ended(asked.ID); e.Outcome != entry.TurnFailed || e.Reason != c.reason || e.Next == "" {
				t.Errorf("it ended with %+v", e)
			}
		})
	}
}

func TestDelayedTurns(t *testing.T) {
	t.Parallel()
	later := func(d time.Duration, reason string) func(*turn.Request) {
		return func(q *turn.Request) { q.Delay, q.Reason = d, reason }
	}
	t.Run("wait until they are due", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		asked, outcome := b.asks("q", "hello", later(time.Hour, turn.Ambient))
		var early *turn.NotDueError
		if err := b.run(asked.ID); outcome != turn.Began || !errors.As(err, &early) || time.Until(early.Due) < 59*time.Minute {
			t.Errorf("the request came to %v, and the run returned %v", outcome, err)
		}
		if n := len(of[entry.TurnStarted](b)); n != 0 {
			t.Errorf("the log says %d times that it began", n)
		}
	})
	t.Run("wait again when somebody else speaks", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		first, _ := b.asks("q", "hello", later(time.Minute, turn.Ambient))
		second, outcome := b.asks("more", "and you?", later(time.Hour, turn.Ambient))
		if outcome != turn.Postponed || second.ID != first.ID || time.Until(second.Due) < 59*time.Minute {
			t.Errorf("the second request came to %v: %+v", outcome, second)
		}
	})
	t.Run("begin at once when the bot is asked", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		first, _ := b.asks("q", "hello", later(time.Hour, turn.Ambient))
		if second, outcome := b.asks("more", "bot, and you?"); outcome != turn.Hurried || second.ID != first.ID {
			t.Fatalf("the second request came to %v: %+v", outcome, second)
		}
		if c := b.answered(first.ID); !slices.Equal(c.Turn.Answers, []string{"more", "q"}) && !slices.Equal(c.Turn.Answers, []string{"q", "more"}) {
			t.Errorf("it answers %q", c.Turn.Answers)
		}
	})
	for name, c := range map[string]struct {
		says   string
		begins bool
	}{"begin if the model has something to say": {"yes", true}, "are skipped if it has not": {"no", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(q *modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: c.says} })
			asked, _ := b.asks("q", "hello", later(time.Millisecond, turn.Ambient))
			for {
				var early *turn.NotDueError
				if err := b.run(asked.ID); err == nil {
					break
				} else if !errors.As(err, &early) {
					t.Fatal(err)
				}
			}
			if got := b.row(asked.ID).Status; (got == turn.Answered) != c.begins || (got == turn.Skipped) == c.begins {
				t.Errorf("it is %s", got)
			}
			if n := len(of[entry.Skipped](b)); (n == 1) == c.begins {
				t.Errorf("the log says %d times that it was skipped", n)
			}
		})
	}
}

func TestATurnWaitsForItsModelsProvider(t *testing.T) {
	t.Parallel()
	t.Run("on its worker, for a short time", func(t *testing.T) {
		t.Parallel()
		b := setup(t, modeltest.Flaky(nil, modeltest.Overloaded, modeltest.CutWithin, modeltest.Broken))
		asked, _ := b.asks("q", "hello")
		if c := b.answered(asked.ID); strings.Contains(c.Text, modeltest.HalfAnswer) || len(b.models.Requests()) != 4 {
			t.Errorf("it answers %q after %d requests", c.Text, len(b.models.Requests()))
		}
	})
	t.Run("and leaves it for a longer one", func(t *testing.T) {
		t.Parallel()
		b := setup(t, modeltest.Flaky(nil, modeltest.Overloaded), func(c *turn.Config) {
			c.Waits = turn.Waits{First: 100 * time.Millisecond, Max: 100 * time.Millisecond, Hold: time.Nanosecond}
		})
		asked, _ := b.asks("q", "hello")
		var waits *turn.WaitError
		if err := b.run(asked.ID); !errors.As(err, &waits) {
			t.Fatalf("the run returned %v", err)
		}
		if got := b.row(asked.ID); got.Tries != 1 || got.FailureKind == "" || waits.Until.Sub(got.Due).Abs() > time.Millisecond {
			t.Errorf("its row says %+v, and the error %s", got, waits.Until)
		}
		for errors.As(b.run(asked.ID), &waits) {
		}
		b.answered(asked.ID)
	})
	t.Run("but not for what waiting does not mend", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"fake-401", "fake-404", "fake-nomoney", "fake-refusal"} {
			b := setup(t, nil)
			b.settings.Model = name
			asked, _ := b.asks("q", "hello")
			if e := b.ended(asked.ID); e.Outcome != entry.TurnFailed || e.Reason == "" || len(b.models.Requests()) != 1 {
				t.Errorf("%s: it ended with %+v after %d requests", name, e, len(b.models.Requests()))
			}
		}
	})
	t.Run("or asks a fallback", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil, func(c *turn.Config) {
			c.Waits.Fallback = time.Nanosecond
			c.Fallbacks = func(context.Context, db.Scope) ([]string, error) { return []string{"fake-answer"}, nil }
		})
		b.settings.Model = "fake-529"
		asked, _ := b.asks("q", "hello")
		if c := b.answered(asked.ID); c.Turn.Model != "anthropic/fake-answer" {
			t.Errorf("%s answers", c.Turn.Model)
		}
	})
}

func TestTheLimitsOfATurn(t *testing.T) {
	t.Parallel()
	endless := func(*modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Calls: []modeltest.Call{{Name: "count", Arguments: "{}"}}}
	}
	for name, limits := range map[string]turn.Limits{
		"turn_steps":   {Steps: 3},
		"turn_tokens":  {Tokens: 300},
		"turn_minutes": {Time: time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, endless)
			count := 0
			b.has(tool("count", func(context.Context, turn.Call) (turn.Result, error) {
				count++
				return turn.Result{Text: fmt.Sprint(count)}, nil
			}))
			b.settings.Limits = limits
			asked, _ := b.asks("q", "count")
			if e := b.ended(asked.ID); e.Outcome != entry.TurnLimited || e.Reason != name || e.Next == "" {
				t.Errorf("it ended with %+v", e)
			}
			if count > 3 {
				t.Errorf("the tool ran %d times", count)
			}
		})
	}
	t.Run("a loop", func(t *testing.T) {
		t.Parallel()
		b := setup(t, endless)
		b.has(says("count", "one"))
		asked, _ := b.asks("q", "count")
		if e := b.ended(asked.ID); e.Outcome != entry.TurnFailed || e.Reason != "loop" {
			t.Errorf("it ended with %+v", e)
		}
	})
}
