package dispatch_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestPeopleAreToldThatTheyAreMentioned(t *testing.T) {
	t.Parallel()
	// The bot is mentioned too, and by default it would repeat the mentions.
	r := policyBench(t, 0, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "yes"} })
	tune := r.tune
	r.tune = func(c *dispatch.Config) {
		tune(c)
		c.Mentions = inbox.New(c.DB)
	}
	r.server = r.serve()
	r.invent("grace") // the bot with that handle
	owner, house := r.Owner(t), r.scope.House
	person := func(name string) (id string) {
		t.Helper()
		if err := owner.QueryRow(t.Context(), `with a as (insert into agents (kind, name) values ('human', $2) returning id)
			insert into members (house_id, agent_id, role) select $1, id, 'member' from a returning agent_id`, house, name).Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	both := []string{person("Grace Hopper"), person("Bob")}
	r.says("one", "@bob and @grace, `@grace-hopper`")
	r.settled("one")
	r.says("two", "@grace-hopper and @bob")
	r.settled("two")
	// A direct message notifies its recipient and nobody else.
	th, err := r.threads.Direct(t.Context(), r.scope, thread.Draft{ParentAgent: both[0]})
	if err != nil {
		t.Fatal(detail(err))
	}
	r.th = th.ID
	r.says("three", "have you a minute? @bob knows nothing of it")
	r.settled("three")
	var told []string
	if err := owner.QueryRow(t.Context(), "select array_agg(agent_id::text) from notices where thread_id = $1", th.ID).Scan(&told); err != nil || len(told) != 1 || told[0] != both[0] {
		t.Errorf("told of it are %v, %v", told, err)
	}
	for i, want := range []int{1, 2} {
		var first, last int
		if err := owner.QueryRow(t.Context(), "select count(*), max(last_seq - first_seq) from notices where agent_id = $1 and kind = 'mention' and thread_id <> $2", both[i], th.ID).Scan(&first, &last); err != nil {
			t.Fatal(err)
		}
		if first != 1 || want == 1 && last != 0 || want == 2 && last == 0 {
			t.Errorf("person %d has %d notices over %d entries", i, first, last)
		}
	}
}
