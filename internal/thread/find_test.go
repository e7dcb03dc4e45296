package thread_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestASearchIsWordsAndFilters(t *testing.T) {
	t.Parallel()
	f, err := thread.ParseFind(`Deploy "two words" from:@ann in:"the plans" type:output type:command is:failed after:2026-01-02 before:2026-02-03 http://x`)
	must(t, err)
	if strings.Join(f.Words, "|") != "Deploy|two|words|http://x" || f.From != "ann" || f.In != "the plans" || strings.Join(f.Types, " ") != "output command" || !f.Failed ||
		!f.After.Equal(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)) || !f.Before.Equal(time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("it is %+v", f)
	}
	for _, wrong := range []string{"x type:song", "x is:new", "x after:yesterday", "x from:", "x in: y", strings.Repeat("x", 1001)} {
		if _, err := thread.ParseFind(wrong); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%.20q: %v", wrong, err)
		}
	}
}

func TestFiltersOfASearch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner := b.Owner(t)
	agent := func(kind, name string) (id string) {
		t.Helper()
		must(t, owner.QueryRow(t.Context(), `with a as (insert into agents (kind, runtime, name) values ($2, case $2 when 'bot' then 'arbe' end, $3) returning id)
			insert into members (house_id, agent_id, role) select $1, id, 'member' from a returning agent_id`, b.scope.House, kind, name).Scan(&id))
		return id
	}
	ann, robot := agent("human", "Ann Lee"), agent("bot", "Robot")
	th := b.thread(t, thread.Draft{Name: "Zebra plans"})
	_, err := b.log.Append(t.Context(), th.Stream(),
		entry.NewDraft("", ann, entry.Chat{Text: "zebra, said Ann"}), entry.NewDraft("", robot, entry.Chat{Text: "zebra, said a bot"}),
		entry.NewDraft("c1", ann, entry.Command{Command: "find zebra"}),
		entry.NewDraft("", ann, entry.CommandResult{CommandID: "c1", Output: "zebra found", ExitCode: 0}),
		entry.NewDraft("", ann, entry.CommandResult{CommandID: "c1", Output: "zebra lost", ExitCode: 1}))
	must(t, err)
	other, _ := b.says(t, "zebra elsewhere")
	for _, id := range []string{th.ID, other.ID} {
		var stream int64
		must(t, owner.QueryRow(t.Context(), "select stream_id from decisions where thread_id = $1", id).Scan(&stream))
		b.index(t, stream)
	}
	for query, want := range map[string]string{
		"zebra from:ann type:message": "zebra, said Ann", "zebra type:answer": "zebra, said a bot", "zebra from:robot": "zebra, said a bot",
		"zebra type:command": "$ find zebra", "zebra is:failed": "zebra lost [exit 1 · 0s]", `zebra in:"zebra plans" found`: "zebra found [exit 0 · 0s]", "ZEB elsewhere": "zebra elsewhere",
		"zebra elsewhere from:me": "zebra elsewhere", "zebra from:nobody": "", "zebra before:2000-01-01": "", "zebra in:nowhere": "",
		"zebra type:message after:2000-01-01 from:ann": "zebra, said Ann", "') or true --": "",
	} {
		f, err := thread.ParseFind(query)
		must(t, err)
		found, _, err := b.threads.Find(t.Context(), b.scope, f, 10)
		if fault.CodeOf(err) == fault.Invalid && want == "" {
			continue
		}
		must(t, err)
		var got []string
		for _, one := range found {
			got = append(got, one.Snippet)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s finds %q", query, got)
		}
	}
	f, err := thread.ParseFind("zebra pl")
	must(t, err)
	if _, named, err := b.threads.Find(t.Context(), b.scope, f, 10); err != nil || len(named) != 1 || named[0].Thread != th.ID {
		t.Errorf("by its name it finds %v: %v", named, err)
	}
	stranger := db.Scope{House: "0000000other0", Agent: b.scope.Agent}
	must(t, owner.QueryRow(t.Context(), "insert into houses (name) values ('Other') returning id").Scan(&stranger.House))
	if found, named, err := b.threads.Find(t.Context(), stranger, f, 10); err != nil || len(found) != 0 || len(named) != 0 {
		t.Errorf("another house finds %v %v: %v", found, named, err)
	}
	if err := b.DB.In(t.Context(), db.Scope{}, func(tx pgx.Tx) error {
		var n int
		return tx.QueryRow(t.Context(), "select count(*) from find_entries('zebra', '', '', null, false, null, null, 10)").Scan(&n)
	}); err != nil {
		t.Errorf("without a house: %v", err)
	}
}
