//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/turn"
)

// The operator limits the cost of the installation's models. No house with a key of its own pays for another house's calls.
func TestTheMoneyOfTheInstallationEnds(t *testing.T) {
	t.Parallel()
	// A model without a known price counts as a dollar per million tokens, so a call reserves about 4,100.
	const call = 4_200
	for _, c := range []struct {
		name   string
		budget turn.Budget
		own    bool
		limit  string
		says   string
	}{
		{name: "for all houses", budget: turn.Budget{DayMicros: 2 * call, UnknownMicros: 1_000_000}, limit: "installation_usd_day", says: "all houses together"},
		{name: "for the houses of one person", budget: turn.Budget{DayMicros: 1 << 40, PersonMicros: 2 * call, UnknownMicros: 1_000_000}, limit: "person_usd_day", says: "the houses of one person"},
		{name: "not for a house with its own key", budget: turn.Budget{DayMicros: 1, PersonMicros: 1, UnknownMicros: 1_000_000}, own: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := bots(t, func(*modeltest.Request) modeltest.Reply {
				return modeltest.Reply{Text: "words", Usage: &modeltest.Usage{Input: 1_000, Output: call}}
			})
			if err := r.stop(t.Context()); err != nil {
				t.Fatal(detail(err))
			}
			tune := r.tune
			r.tune = func(config *dispatch.Config) {
				tune(config)
				config.Bots.Budget = c.budget
				config.Bots.Endpoint = func(_ context.Context, _ db.Scope, ref string) (model.Endpoint, string, error) {
					if ref == "" {
						return model.Endpoint{}, "", fault.New(fault.NotFound, "this house has no model", "paste the key of a provider")
					}
					return model.Endpoint{Provider: model.Anthropic, BaseURL: r.models.URL, Key: "sk-test", Trusted: true, Shared: !c.own}, "of-no-known-price", nil
				}
			}
			r.server = r.serve()
			var refused *entry.TurnEnded
			for n := 0; n < 6 && refused == nil; n++ {
				id := fmt.Sprint("q", n)
				r.says(id, "@bot go on")
				r.still()
				for _, e := range of[entry.TurnEnded](r.entries()) {
					refused = &e
				}
			}
			made := len(r.models.Requests())
			switch {
			case c.limit == "" && refused != nil:
				t.Errorf("it ended with %+v", refused)
			case c.limit == "" && made < 6:
				t.Errorf("%d calls were made", made)
			case c.limit != "" && refused == nil:
				t.Errorf("nothing ended in %d calls", made)
			case c.limit != "" && (refused.Reason != c.limit || !strings.Contains(refused.Message, c.says)):
				t.Errorf("it ended with %+v after %d calls", refused, made)
			}
		})
	}
}

// neighbour is another person's house on the same server.
func (r *botBench) neighbour() *botBench {
	n := *r
	n.bench = r.bench.another()
	n.th = n.conversation()
	return &n
}

// within starts servers whose models belong to the installation, cost a dollar per million tokens, and have a budget.
func within(t *testing.T, servers int, budget turn.Budget, script modeltest.Script) *botBench {
	r := policyBench(t, 0, script)
	budget.UnknownMicros = 1_000_000
	tune := r.tune
	r.tune = func(c *dispatch.Config) {
		tune(c)
		c.Bots.Budget = budget
		c.Bots.Endpoint = func(context.Context, db.Scope, string) (model.Endpoint, string, error) {
			return model.Endpoint{Provider: model.Anthropic, BaseURL: r.models.URL, Key: "sk-test", Trusted: true, Shared: true}, "of-no-known-price", nil
		}
	}
	for range servers {
		r.server = r.serve()
	}
	return r
}

// spent returns the cost of the installation's models over all houses.
func (r *botBench) spent() int {
	return r.counted("select coalesce(sum(charged_micros), 0) from spending")
}

func TestAHouseThatSpentNothingCannotExceedTheMoneyOfAll(t *testing.T) {
	t.Parallel()
	const budget = 9_000
	used := modeltest.Usage{Input: 1_000, Output: 4_000}
	r := within(t, 1, turn.Budget{DayMicros: budget}, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "words", Usage: &used} })
	r.invent("ant")
	r.says("q", "@ant go on")
	r.still()
	if n := r.spent(); n != 5_000 {
		t.Fatalf("the first house spent %d", n)
	}
	n := r.neighbour()
	n.invent("bee")
	n.says("q", "@bee go on") // less is left than a call reserves
	n.still()
	e := of[entry.TurnEnded](n.entries())
	if len(e) != 1 || e[0].Reason != "installation_usd_day" {
		t.Errorf("the other house's turn ended with %+v", e)
	}
	if n := r.spent(); n != 5_000 {
		t.Errorf("together they spent %d of %d", n, budget)
	}
}

func TestTurnsAtOnceCannotSpendTheSameMoney(t *testing.T) {
	t.Parallel()
	const turns, budget = 50, 50_000
	for _, c := range []struct {
		name   string
		output int
		// over is what a call may cost beyond its reservation.
		over   int
		budget turn.Budget
		limit  string
	}{
		{"of all houses", 3_900, 0, turn.Budget{DayMicros: budget}, "installation_usd_day"},
		{"of a person", 3_900, 0, turn.Budget{PersonMicros: budget}, "person_usd_day"},
		{"with longer answers than expected", 8_192, 4_096, turn.Budget{DayMicros: budget}, "installation_usd_day"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := within(t, 2, c.budget, func(*modeltest.Request) modeltest.Reply {
				return modeltest.Reply{Text: "words", Usage: &modeltest.Usage{Input: 100, Output: c.output}}
			})
			rooms := []*botBench{r}
			if c.budget.PersonMicros == 0 {
				rooms = append(rooms, r.neighbour())
			}
			for _, r := range rooms {
				r.invent("ant")
			}
			for i := range turns {
				r := rooms[i%len(rooms)]
				r.th = r.conversation()
				r.says("q", "@ant go on")
			}
			r.still()
			calls := r.counted("select count(*) from model_calls")
			most := budget + calls*c.over
			if n := r.spent(); n > most || n < budget/2 {
				t.Errorf("%d calls spent %d, want at most %d", calls, n, most)
			}
			ended := r.counted("select count(*) from entries where type = 'signal.dispatch.turn_ended' and payload->>'reason' = $1", c.limit)
			if ended+calls != turns || calls > budget/4_096 {
				t.Errorf("of %d turns %d called a model and %d were refused", turns, calls, ended)
			}
			if n := r.counted("select count(*) from turns where ended_at is null"); n != 0 {
				t.Errorf("%d turns go on", n)
			}
		})
	}
}
