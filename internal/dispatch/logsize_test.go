//go:build linux

package dispatch_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

func TestLogsHaveAQuota(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.tune = func(c *dispatch.Config) { c.LogQuota = 20 << 10 }
	b.server = b.serve()
	other := b.another()
	th, full := b.thread(sandbox.Recipe{}), b.thread(sandbox.Recipe{})
	used := func(b *bench) dispatch.LogsUsed {
		t.Helper()
		got, err := b.dispatcher.MeasuredLogs(t.Context(), b.scope)
		if err != nil {
			t.Fatal(detail(err))
		}
		return got
	}
	before := used(b)
	b.says(b.runner(), th, dispatch.Message{Text: "hello"})
	t.Run("count each entry once, however often they are measured", func(t *testing.T) {
		first := used(b)
		if first.Entries != before.Entries+1 || first.Bytes <= before.Bytes+100 {
			t.Errorf("the logs have %v after %v", first, before)
		}
		b.says(b.runner(), th, dispatch.Message{Text: "hello"})
		used(b)
		if again := used(b); again.Entries != before.Entries+2 || again.Bytes-first.Bytes != first.Bytes-before.Bytes {
			t.Errorf("after the same message again they have %v after %v", again, first)
		}
	})
	t.Run("refuse whatever is new when the quota is reached", func(t *testing.T) {
		noise := strings.Repeat("0123456789abcdef", 64)
		for used(b).Bytes < 20<<10 {
			b.says(b.runner(), full, dispatch.Message{Text: noise})
		}
		for _, w := range []dispatch.Message{{Text: "one more"}, {Text: "!ls"}} {
			_, err := b.dispatcher.Say(t.Context(), b.runner(), th, w)
			wantCode(t, err, fault.Exhausted)
			if f := fault.From(err); f.Reason() != fault.LimitReached || !strings.Contains(f.Next, "log_quota") {
				t.Errorf("the error is %v", f.Detail())
			}
		}
	})
	t.Run("do not refuse what the server writes about work that has begun", func(t *testing.T) {
		if _, err := b.log.Append(t.Context(), b.ref(th), entry.NewDraft("", "", entry.CommandResult{ExitCode: 0})); err != nil {
			t.Error(detail(err))
		}
	})
	t.Run("of other houses are counted apart", func(t *testing.T) {
		if got := used(other); got.Bytes >= 20<<10 {
			t.Errorf("they have %v", got)
		}
		if err := other.dispatcher.MayGrow(t.Context(), other.scope); err != nil {
			t.Error(detail(err))
		}
	})
	t.Run("grow again after a thread was deleted", func(t *testing.T) {
		if err := b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) error { return b.dispatcher.DeleteThreadTx(t.Context(), tx, b.scope, full) }); err != nil {
			t.Fatal(detail(err))
		}
		used(b)
		b.says(b.runner(), th, dispatch.Message{Text: "one more"})
	})
}

// A member who is no owner cannot fill the quota of the house. Others go on, and so does an owner who wrote more.
func TestMembersHaveAQuotaOfTheLogs(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.tune = func(c *dispatch.Config) { c.MemberLogQuota = 20 << 10 }
	b.server = b.serve()
	th := b.thread(sandbox.Recipe{})
	member := func(name string) dispatch.Speaker {
		t.Helper()
		by := b.runner()
		err := b.Owner(t).QueryRow(t.Context(), `with a as (insert into agents (kind, name) values ('human', $1) returning id)
			insert into members (house_id, agent_id, role) select $2, id, 'member' from a returning agent_id::text`, name, b.scope.House).Scan(&by.Agent)
		if err != nil {
			t.Fatal(err)
		}
		return by
	}
	wrote := func(by dispatch.Speaker) dispatch.MemberLogs {
		t.Helper()
		if _, err := b.dispatcher.MeasuredLogs(t.Context(), by.Scope); err != nil {
			t.Fatal(detail(err))
		}
		got, err := b.dispatcher.MemberLogs(t.Context(), by.Scope)
		if err != nil {
			t.Fatal(detail(err))
		}
		return got
	}
	mallory, bob, noise := member("Mallory"), member("Bob"), strings.Repeat("0123456789abcdef", 64)

	b.says(mallory, th, dispatch.Message{Text: "hello"})
	one := wrote(mallory)
	command := entry.NewDraft("c1", mallory.Agent, entry.Command{Command: "yes"})
	if _, err := b.log.Append(t.Context(), b.ref(th), command, entry.NewDraft(entry.ResultID("c1"), "", entry.CommandResult{CommandID: "c1", Output: noise})); err != nil {
		t.Fatal(detail(err))
	}
	if got := wrote(mallory); one.Bytes < 100 || got.Bytes < one.Bytes+200 || got != wrote(mallory) {
		t.Errorf("after a message of %d bytes and a command, a member wrote %d", one.Bytes, got.Bytes)
	}
	for wrote(mallory).Bytes < 20<<10 {
		b.says(mallory, th, dispatch.Message{Text: noise})
	}
	_, err := b.dispatcher.Say(t.Context(), mallory, th, dispatch.Message{Text: "one more"})
	wantCode(t, err, fault.Exhausted)
	if f := fault.From(err); f.Reason() != fault.LimitReached || !strings.Contains(f.Next, "member_log_quota") {
		t.Errorf("the error is %v", f.Detail())
	}
	b.says(bob, th, dispatch.Message{Text: "I go on."})
	for wrote(b.runner()).Bytes < 20<<10 {
		b.says(b.runner(), th, dispatch.Message{Text: noise})
	}
	b.says(b.runner(), th, dispatch.Message{Text: "And so does an owner."})
	if got := wrote(b.runner()); got.Most != 0 {
		t.Errorf("an owner may write %d bytes", got.Most)
	}
}
