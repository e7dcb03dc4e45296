package rpc_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db/dbtest"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// fill gives a database the data of a fairly large installation: other houses with threads, entries, members, keys and turns,
// and one long thread.
const fill = `
	insert into houses (id, name) select 'fill' || n, 'House ' || n from generate_series(1, 3000) n;
	insert into agents (kind, name) select 'human', 'Person ' || n from generate_series(1, 6000) n;
	insert into members (house_id, agent_id, role) select 'fill' || (row_number() over () % 3000 + 1), id, 'member' from agents where name like 'Person %';
	insert into api_keys (agent_id, name, hash) select id, 'key', sha256(id::text::bytea) from agents where name like 'Person %';
	insert into login_sessions (hash, agent_id, expires_at) select sha256(('s' || id)::bytea), id, now() + interval '1 day' from agents where name like 'Person %';
	insert into environments (id, house_id, name) select 'fillenv' || n, 'fill' || n, 'Environment' from generate_series(1, 3000) n;
	insert into streams (house_id, name) select 'fill' || (n % 3000 + 1), 'arbe-thread-fill' || n from generate_series(1, 8000) n;
	insert into threads (id, house_id, stream_id, name, active_at)
	  select 'fill' || n, 'fill' || (n % 3000 + 1), 'arbe-thread-fill' || n, 'Thread ' || n, now() + interval '1 minute' from generate_series(1, 8000) n;
	insert into entries (stream_id, seq, house_id, id, type, payload, ts)
	  select s.id, n, s.house_id, 'e' || n, 'chat', '{"text":"some words of a chat"}', now()
	  from streams s cross join generate_series(1, 12) n where s.name like 'arbe-thread-fill%';
	insert into sandboxes (id, house_id, environment_id, provider, status) select 'fillbox' || n, 'fill' || n, 'fillenv' || n, 'local', 'dead' from generate_series(1, 3000) n;
	insert into turns (house_id, thread_id, agent_id, entry_id, reason, status, ended_at, root)
	  select t.house_id, t.id, (select id from agents limit 1), 'e1', 'mention', 'answered', now(), t.id from threads t where t.id like 'fill%';
	update decisions set decided = 12;
	insert into search_cursors (stream_id, house_id, thread_id, indexed) select stream_id, house_id, thread_id, 12 from decisions on conflict do nothing;
	analyze`

// scansWell lists parts of statements that may read a large table sequentially, with the reasons.
var scansWell = map[string]string{
	"exists (select from public.houses)": "it reads one row",
	"select max(t.id), array_agg(s.id)":  "a sweep over all threads reads a large part of them each time",
	"with stale as":                      "of that sweep, too; for a few threads the index is used",
}

// The test executes every statement of a realistic run on large tables, often enough that Postgres also uses its generic
// plan. No statement may read a whole large table: what takes a millisecond in a small installation would take seconds in a
// large one. The test logs the ten statements that take the most time in total.
func TestNoStatementScansALargeTable(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for statement := range strings.SplitSeq(fill, ";") {
		if _, err := d.Owner(t).Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	large := d.Large(t, 1000)
	if len(large) < 10 {
		t.Fatalf("only these tables are large: %v", large)
	}
	statements := d.Watch(t)
	b := serve(t, d)
	b.ada = b.person(t, "Ada")
	b.ada.house = b.newHouse(t, b.ada, "Ada's")
	ctx, ada, house := t.Context(), b.ada, b.ada.house.Id
	parent := ada.thread(t, &arbev1.CreateThreadRequest{Name: "parent"})
	for round := range 8 {
		th := ada.thread(t, &arbev1.CreateThreadRequest{Name: fmt.Sprint("round ", round)})
		ada.say(t, th.Id, "a word to search for")
		ada.run(t, th.Id, "true")
		ada.log(t, th.Id)
		for what, call := range map[string]func() error{
			"GetThread": func() error {
				return errOf(ada.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: th.Id, Decisions: true}))
			},
			"ListThreads": func() error {
				return errOf(ada.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: house}))
			},
			"ListThreads that match": func() error {
				return errOf(ada.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: house, Match: "parent"}))
			},
			"ListThreads below": func() error {
				return errOf(ada.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: house, ParentThreadId: parent.Id}))
			},
			"ListThreads forked": func() error {
				return errOf(ada.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: house, ForkedFromThreadId: parent.Id}))
			},
			"UpdateThread": func() error {
				return errOf(ada.Threads.UpdateThread(ctx, &arbev1.UpdateThreadRequest{Id: th.Id, Pinned: new(true)}))
			},
			"ForkThread": func() error { return errOf(ada.Threads.ForkThread(ctx, &arbev1.ForkThreadRequest{ThreadId: th.Id})) },
			"List of the last": func() error {
				return errOf(ada.Entries.List(ctx, &arbev1.ListRequest{ThreadId: th.Id, Last: true, Limit: 20}))
			},
			"List by type": func() error {
				return errOf(ada.Entries.List(ctx, &arbev1.ListRequest{ThreadId: th.Id, Last: true, Types: []string{"command"}}))
			},
			"ListHouses":  func() error { return errOf(ada.Houses.ListHouses(ctx, &arbev1.ListHousesRequest{})) },
			"ListMembers": func() error { return errOf(ada.Houses.ListMembers(ctx, &arbev1.ListMembersRequest{HouseId: house})) },
			"ListBots":    func() error { return errOf(ada.Bots.ListBots(ctx, &arbev1.ListBotsRequest{HouseId: house})) },
			"ListEnvironments": func() error {
				return errOf(ada.Environments.ListEnvironments(ctx, &arbev1.ListEnvironmentsRequest{HouseId: house}))
			},
			"ListSandboxes": func() error {
				return errOf(ada.Sandboxes.ListSandboxes(ctx, &arbev1.ListSandboxesRequest{HouseId: house}))
			},
			"ListSecrets": func() error { return errOf(ada.Secrets.ListSecrets(ctx, &arbev1.ListSecretsRequest{HouseId: house})) },
			"ListAPIKeys": func() error {
				return errOf(ada.Credentials.ListAPIKeys(ctx, &arbev1.ListAPIKeysRequest{HouseId: house}))
			},
			"WhoAmI": func() error { return errOf(ada.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})) },
		} {
			if err := call(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if round%2 == 0 {
			_, err := ada.Threads.DeleteThread(ctx, &arbev1.DeleteThreadRequest{Id: th.Id})
			must(t, err)
		}
	}
	all := statements()
	if len(all) < 50 {
		t.Fatalf("only %d statements were seen", len(all))
	}
	for i, s := range all {
		if i < 10 {
			t.Logf("%6.1f ms in %4d executions: %.160s", s.Milliseconds, s.Executions, s.Text)
		}
		if slices.ContainsFunc(slices.Collect(maps.Keys(scansWell)), func(part string) bool { return strings.Contains(s.Text, part) }) {
			continue
		}
		if i := slices.IndexFunc(s.Scanned, func(table string) bool { return large[table] }); i >= 0 {
			t.Errorf("a statement reads all of %s, in %d executions and %.1f ms: %s", s.Scanned[i], s.Executions, s.Milliseconds, s.Text)
		}
	}
}
