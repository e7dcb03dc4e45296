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

// What the models of the installation may cost is the operator's to say, and no house pays for another one's calls with
// a key of its own.
func TestTheMoneyOfTheInstallationEnds(t *testing.T) {
	t.Parallel()
	// A model whose price is not known counts a dollar for a million tokens, so that a call reserves some 4100 of them.
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
