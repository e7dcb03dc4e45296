package inbox_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a house of Ada, Bob and a bot.
type bench struct {
	*dbtest.Database
	log           *stream.Log
	threads       *thread.Threads
	inboxes       *inbox.Inboxes
	owner         *pgx.Conn
	ada, bob, bot db.Scope
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

func setup(t testing.TB) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10)}
	var err error
	b.log, err = stream.Open(t.Context(), b.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(b.log.Close)
	b.threads, b.inboxes, b.owner = thread.New(b.DB, b.log), inbox.New(b.DB), b.Owner(t)
	var house string
	must(t, b.owner.QueryRow(t.Context(), "insert into houses (name) values ('Home') returning id").Scan(&house))
	for scope, agent := range map[*db.Scope]string{&b.ada: "'human', null, 'Ada Lovelace'", &b.bob: "'human', null, 'Bob'", &b.bot: "'bot', 'arbe', 'arbe'"} {
		scope.House = house
		must(t, b.owner.QueryRow(t.Context(), "insert into agents (kind, runtime, name) values ("+agent+") returning id").Scan(&scope.Agent))
		b.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", house, scope.Agent)
	}
	return b
}

func (b *bench) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	_, err := b.owner.Exec(t.Context(), statement, args...)
	must(t, err)
}

func (b *bench) thread(t testing.TB) thread.Thread {
	t.Helper()
	th, err := b.threads.Create(t.Context(), b.ada, thread.Draft{Name: "talk"})
	must(t, err)
	return th
}

// say says some chats as an agent, and returns the position of the last.
func (b *bench) say(t testing.TB, th thread.Thread, as db.Scope, texts ...string) (seq int64) {
	t.Helper()
	for _, text := range texts {
		got, err := b.log.Append(t.Context(), th.Stream(), entry.NewDraft("", as.Agent, entry.Chat{Text: text}))
		must(t, err)
		seq = got[0].Seq
		// As the live view does.
		b.exec(t, "update threads set active_at = clock_timestamp() where id = $1", th.ID)
	}
	return seq
}

// mention tells somebody that an entry mentions them.
func (b *bench) mention(t testing.TB, th thread.Thread, who db.Scope, seq int64) {
	t.Helper()
	must(t, b.DB.In(t.Context(), db.Scope{House: th.House}, func(tx pgx.Tx) error {
		return b.inboxes.MentionTx(t.Context(), tx, th.ID, []string{who.Agent}, seq)
	}))
}

// needs returns why threads need somebody, by thread.
func (b *bench) needs(t testing.TB, who db.Scope) map[string]string {
	t.Helper()
	got, err := b.inboxes.Get(t.Context(), who, nil)
	must(t, err)
	needs := map[string]string{}
	for _, n := range got.Needs {
		var why []string
		for word, holds := range map[string]bool{"approval": n.Approval, "mention": n.Mention, "failed": n.Failed, "finished": n.Finished} {
			if holds {
				why = append(why, word)
			}
		}
		slices.Sort(why)
		needs[n.Thread] = fmt.Sprint(strings.Join(why, " "), " ", n.Seq)
	}
	if got.Total != len(needs) {
		t.Errorf("the total is %d of %v", got.Total, needs)
	}
	return needs
}

func (b *bench) reading(t testing.TB, who db.Scope, th thread.Thread) inbox.Reading {
	t.Helper()
	got, err := b.inboxes.Get(t.Context(), who, []string{th.ID, "0nosuchthread"})
	must(t, err)
	if len(got.Readings) != 1 {
		t.Fatalf("it has the readings %+v", got.Readings)
	}
	return got.Readings[0]
}

func (b *bench) read(t testing.TB, who db.Scope, th thread.Thread, seq int64) {
	t.Helper()
	_, err := b.inboxes.MarkRead(t.Context(), who, th.ID, seq)
	must(t, err)
}

func TestWhatOthersSaidIsUnread(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(t)
	last := b.say(t, th, b.ada, "one", "two")
	b.say(t, th, b.bot, "three")
	for who, want := range map[db.Scope]int{b.ada: 1, b.bob: 3} {
		if r := b.reading(t, who, th); r.Unread != want || r.Seq != 0 {
			t.Errorf("%+v, and not %d", r, want)
		}
	}
	b.read(t, b.bob, th, last)
	b.read(t, b.bob, th, 1) // another tab, which is behind
	if r := b.reading(t, b.bob, th); r.Unread != 1 || r.Seq != last {
		t.Errorf("after reading: %+v", r)
	}
	b.read(t, b.bob, th, 1_000_000)
	if r := b.reading(t, b.bob, th); r.Unread != 0 || r.Seq != last+1 {
		t.Errorf("after reading all of it: %+v", r)
	}
	for from, want := range map[int64]int{last + 5: 0, 2: 2} { // what they have not read yet is unread already
		if r, err := b.inboxes.MarkUnread(t.Context(), b.bob, th.ID, from); err != nil || r.Unread != want {
			t.Errorf("marked as unread from %d: %+v, %v", from, r, err)
		}
		if got := b.needs(t, b.bob); len(got) != 0 {
			t.Errorf("marked as unread from %d, it needs %v", from, got)
		}
		b.read(t, b.bob, th, 1_000_000)
	}
	if r := b.reading(t, b.ada, th); r.Unread != 1 {
		t.Errorf("what Bob read is read for Ada: %+v", r)
	}
	b.exec(t, "update members set read_from = now() + interval '1 hour' where agent_id = $1", b.ada.Agent)
	if r := b.reading(t, b.ada, th); r.Unread != 0 {
		t.Errorf("what was said before she joined is unread: %+v", r)
	}
}

func TestAMentionNeedsYouUntilYouReadIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(t)
	first := b.say(t, th, b.ada, "@bob look")
	b.mention(t, th, b.bob, first)
	b.mention(t, th, b.bob, first) // decided again
	second := b.say(t, th, b.ada, "@bob again")
	b.mention(t, th, b.bob, second)
	b.mention(t, th, b.bot, second) // a bot has no inbox
	if got := b.needs(t, b.bob); got[th.ID] != "mention 1" {
		t.Errorf("it needs %v", got)
	}
	b.read(t, b.bob, th, first)
	if got := b.needs(t, b.bob); got[th.ID] != "mention 2" {
		t.Errorf("after the first was read, it needs %v", got)
	}
	b.read(t, b.bob, th, second)
	b.mention(t, th, b.bob, second) // decided after it was read
	if got := b.needs(t, b.bob); len(got) != 0 {
		t.Errorf("after both were read, it needs %v", got)
	}
	for _, who := range []db.Scope{b.ada, b.bot} {
		if got := b.needs(t, who); len(got) != 0 {
			t.Errorf("somebody else needs %v", got)
		}
	}
}

func TestTheEndOfWorkNeedsWhoAskedForIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for outcome, want := range map[string]string{"answered": "finished 2", "failed": "failed 2", "limited": "failed 2", "stopped": "", "silent": ""} {
		th := b.thread(t)
		asked := b.say(t, th, b.bob, "why?")
		b.exec(t, "insert into turns (house_id, thread_id, agent_id, entry_id, reason, status, asked, asked_seqs) values ($1, $2, $3, 'q', 'mention', 'running', '{q}', $4)",
			th.House, th.ID, b.bot.Agent, []int64{asked})
		b.say(t, th, b.bot, "because")
		b.exec(t, "update turns set status = $2, ended_at = now() where thread_id = $1", th.ID, outcome)
		if got := b.needs(t, b.bob)[th.ID]; got != want {
			t.Errorf("a turn that %s needs %q", outcome, got)
		}
	}
	if got := b.needs(t, b.ada); len(got) != 0 {
		t.Errorf("Ada asked nothing, and needs %v", got)
	}
	for outcome, want := range map[string]string{"completed": "finished 1", "failed": "failed 1", "cancelled": ""} {
		th, err := b.threads.Create(t.Context(), b.ada, thread.Draft{Agent: b.bot.Agent, AskedBy: b.ada.Agent})
		must(t, err)
		b.say(t, th, b.ada, "fix it")
		b.exec(t, "update threads set status = 'running' where id = $1", th.ID)
		b.exec(t, "update threads set status = $2 where id = $1", th.ID, outcome)
		if got := b.needs(t, b.ada)[th.ID]; got != want {
			t.Errorf("a run that is %s needs %q", outcome, got)
		}
	}
}

func TestAnOpenApprovalNeedsEverybody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(t)
	b.exec(t, `with t as (insert into turns (house_id, thread_id, agent_id, entry_id, reason) values ($1, $2, $3, 'q', 'mention') returning id)
		insert into approvals (house_id, id, thread_id, turn_id, agent_id, call_id, tool, arguments, expires_at) select $1, 'p', $2, id, $3, 'c', 'say', '{}', now() + interval '1 hour' from t`,
		th.House, th.ID, b.bot.Agent)
	b.read(t, b.bob, th, 1)
	for _, who := range []db.Scope{b.ada, b.bob} {
		if got := b.needs(t, who); got[th.ID] != "approval 0" {
			t.Errorf("it needs %v", got)
		}
	}
	b.exec(t, "update approvals set state = 'expired', answered_at = now()")
	if got := b.needs(t, b.ada); len(got) != 0 {
		t.Errorf("after it ended, it needs %v", got)
	}
}

func TestAMutedThreadNeedsYouOnlyForMentions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(t)
	b.say(t, th, b.ada, "much to say")
	r, err := b.inboxes.Mute(t.Context(), b.bob, th.ID, true)
	must(t, err)
	if !r.Muted || r.Unread != 0 {
		t.Errorf("it is %+v", r)
	}
	seq := b.say(t, th, b.ada, "@bob")
	b.exec(t, "insert into notices (house_id, agent_id, thread_id, kind, first_seq, last_seq) values ($1, $2, $3, 'finished', $4, $4)", th.House, b.bob.Agent, th.ID, seq)
	if got := b.needs(t, b.bob); len(got) != 0 {
		t.Errorf("it needs %v", got)
	}
	b.mention(t, th, b.bob, seq)
	if got := b.needs(t, b.bob); got[th.ID] != "mention 2" {
		t.Errorf("it needs %v", got)
	}
	r, err = b.inboxes.Mute(t.Context(), b.bob, th.ID, false)
	must(t, err)
	if r.Muted || r.Unread != 1 {
		t.Errorf("it is %+v", r)
	}
	if _, err := b.inboxes.Mute(t.Context(), b.bob, "0nosuchthread", true); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a thread that does not exist: %v", err)
	}
}

// However often somebody reacts, the messages that others have not read stay unread.
func TestReactionsHideNoUnreadMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(t)
	b.read(t, b.ada, th, b.say(t, th, b.bob, "read"))
	seq := b.say(t, th, b.bob, "not read", "neither")
	b.exec(t, `insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
		select s.id, $1::bigint + n, s.house_id, 'reaction' || n, $2, 'signal.chat.reacted', '{"entry_id":"x","seq":1,"emoji":"👍"}', now()
		from streams s, generate_series(1, 20000) n where s.name = $3`, seq, b.bob.Agent, th.Stream().Name)
	b.exec(t, "analyze entries")
	var partition string
	must(t, b.owner.QueryRow(t.Context(), "select tableoid::regclass::text from entries where id = 'reaction1'").Scan(&partition))
	statements := b.Watch(t)
	b.inboxes = inbox.New(b.DB)
	if got := b.reading(t, b.ada, th); got.Unread != 2 {
		t.Errorf("it is %+v", got)
	}
	for _, s := range statements() {
		if slices.Contains(s.Scanned, partition) {
			t.Errorf("%s scans %v", s.Text, s.Scanned)
		}
	}
}

func TestHandlesOfPeople(t *testing.T) {
	for name, want := range map[string]string{
		"Ada Lovelace": "ada-lovelace ada", "Bob": "bob", "  Jean-Luc  O'Neil ": "jean-luc-o-neil jean", "李": "", "": "",
		strings.Repeat("x", 60): strings.Repeat("x", 39),
	} {
		if got := strings.Join(entry.HandlesOf(name), " "); got != want {
			t.Errorf("%q has %q", name, got)
		}
	}
}

// BenchmarkInbox reads the inbox of a member of a house with ten thousand threads, a million entries, and notices in all threads.
func BenchmarkInbox(b *testing.B) {
	w := setup(b)
	const threads, entries = 10_000, 100
	w.exec(b, "insert into streams (house_id, name) select $1, 'arbe-thread-thread' || lpad(n::text, 6, '0') from generate_series(1, $2::int) n", w.ada.House, threads)
	w.exec(b, `insert into threads (id, house_id, stream_id, name, active_at) select 'thread' || lpad(n::text, 6, '0'), $1, 'arbe-thread-thread' || lpad(n::text, 6, '0'), 'thread ' || n, now() + n * interval '1 second'
		from generate_series(1, $2::int) n`, w.ada.House, threads)
	w.exec(b, `insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
		select s.id, n, s.house_id, 'e' || n, $2, case when n % 4 = 0 then 'chat' else 'pi.tool_result' end, '{"text":"hello"}', now() + interval '1 second'
		from streams s, generate_series(1, $3::int) n where s.name like 'arbe-thread-thread%' and s.house_id = $1`, w.ada.House, w.bot.Agent, entries)
	w.exec(b, "insert into notices (house_id, agent_id, thread_id, kind, first_seq, last_seq) select house_id, $1, id, k, 4, 8 from threads, unnest('{mention,finished}'::text[]) k where id like 'thread%'", w.ada.Agent)
	w.exec(b, "insert into readings (house_id, agent_id, thread_id, seq) select house_id, $1, id, 4 from threads where id like 'thread%'", w.ada.Agent)
	w.exec(b, "analyze")
	var ids []string
	for n := threads; len(ids) < 100; n-- {
		ids = append(ids, fmt.Sprintf("thread%06d", n))
	}
	var slowest time.Duration
	for b.Loop() {
		began := time.Now()
		got, err := w.inboxes.Get(b.Context(), w.ada, ids)
		must(b, err)
		if got.Total != threads || len(got.Readings) != 100 || got.Readings[0].Unread != 24 {
			b.Fatalf("it is %d %d %+v", got.Total, len(got.Readings), got.Readings[:1])
		}
		slowest = max(slowest, time.Since(began))
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
}

// A row of the inbox says who needs the member, and the sentence for the most urgent reason.
func TestANeedSaysWhoAndWhat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	said := map[string]string{} // by thread
	need := func(th thread.Thread, want string) { said[th.ID] = want }

	mentioned := b.thread(t)
	b.mention(t, mentioned, b.bob, b.say(t, mentioned, b.ada, "@bob first"))
	b.mention(t, mentioned, b.bob, b.say(t, mentioned, b.ada, "@bob  is **this**\nright? <b>"))
	need(mentioned, "Ada Lovelace human: @bob is **this** right? <b>")

	edited := b.thread(t)
	seq := b.say(t, edited, b.ada, "@bob wrogn")
	b.mention(t, edited, b.bob, seq)
	b.exec(t, `insert into chat_edits (house_id, thread_id, stream_id, seq, entry_id, text) select e.house_id, $1, e.stream_id, e.seq, e.id, '@bob wrong'
		from entries e join streams s on s.id = e.stream_id where s.name = $2 and e.seq = $3`, edited.ID, edited.Stream().Name, seq)
	need(edited, "Ada Lovelace human: @bob wrong")

	huge := b.thread(t)
	b.mention(t, huge, b.bob, b.say(t, huge, b.ada, "@bob "+strings.Repeat("long ", 1000)))
	need(huge, "Ada Lovelace human: @bob "+strings.Repeat("long ", 1000)[:inbox.MaxText-len("@bob ")]+"…")

	for outcome, want := range map[string]string{"answered": "arbe bot: It was the door.", "failed": "arbe bot: the provider is overloaded"} {
		th := b.thread(t)
		asked := b.say(t, th, b.bob, "why?")
		b.exec(t, "insert into turns (house_id, thread_id, agent_id, entry_id, reason, status, asked, asked_seqs) values ($1, $2, $3, 'q', 'mention', 'running', '{q}', $4)",
			th.House, th.ID, b.bot.Agent, []int64{asked})
		if outcome == "answered" {
			b.say(t, th, b.bot, "It was the door.")
		} else {
			_, err := b.log.Append(t.Context(), th.Stream(), entry.NewDraft("", "", entry.TurnEnded{TurnID: "t", AgentID: b.bot.Agent, EntryID: "q", Outcome: outcome, Message: "the provider is overloaded"}))
			must(t, err)
		}
		b.exec(t, "update turns set status = $2, ended_at = now() where thread_id = $1", th.ID, outcome)
		need(th, want)
	}

	for _, ask := range []struct {
		tool, arguments, want string
		question              bool
	}{
		{"bash", `{"timeout":9,"command":"make deploy"}`, "arbe bot: wants to call bash: make deploy", false},
		{"say", `{}`, "arbe bot: wants to call say", false},
		{"AskUserQuestion", `{"questions":[{"question":"Which port?"}]}`, "arbe bot: Which port?", true},
		{"ask", `{"question":"Now?"}`, "arbe bot: Now?", true},
		{"big", `{"text":"` + strings.Repeat("x", 20_000) + `"}`, "arbe bot: wants to call big", false},
	} {
		th := b.thread(t)
		b.exec(t, `with t as (insert into turns (house_id, thread_id, agent_id, entry_id, reason) values ($1, $2, $3, 'q', 'mention') returning id)
			insert into approvals (house_id, id, thread_id, turn_id, agent_id, call_id, tool, arguments, question, expires_at) select $1, $2, $2, id, $3, 'c', $4, $5, $6, now() + interval '1 hour' from t`,
			th.House, th.ID, b.bot.Agent, ask.tool, ask.arguments, ask.question)
		need(th, ask.want)
	}

	got, err := b.inboxes.Pending(t.Context(), b.bob)
	must(t, err)
	for _, n := range got {
		if n.Thread == mentioned.ID && n.Tail != 2 {
			t.Errorf("its last entry is %d", n.Tail)
		}
		if now := n.By.Name + " " + n.By.Kind + ": " + n.Text; now != said[n.Thread] {
			t.Errorf("it says %q, and not %q", now, said[n.Thread])
		}
		delete(said, n.Thread)
	}
	if len(said) > 0 {
		t.Errorf("nothing says %q", said)
	}
}

// A run says why it failed, and with what it finished, as its bot reported.
func TestTheNeedOfARunHasItsOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for outcome, want := range map[string]string{"completed": "All tests pass.", "failed": "the key was refused"} {
		th, err := b.threads.Create(t.Context(), b.ada, thread.Draft{Agent: b.bot.Agent, AskedBy: b.ada.Agent})
		must(t, err)
		b.say(t, th, b.ada, "fix it")
		b.exec(t, "update threads set status = 'running' where id = $1", th.ID)
		end := entry.RunFinished{Epoch: 1, Outcome: outcome}
		if outcome == "failed" {
			end.Error = want
		} else {
			end.Result = want
		}
		_, err = b.log.Append(t.Context(), th.Stream(), entry.NewDraft("", b.bot.Agent, end), entry.NewDraft("", "", entry.StatusChanged{From: "running", To: outcome, Epoch: 1}))
		must(t, err)
		b.exec(t, "update threads set status = $2 where id = $1", th.ID, outcome)
		got, err := b.inboxes.Pending(t.Context(), b.ada)
		must(t, err)
		if len(got) == 0 || got[0].Thread != th.ID || got[0].Text != want || got[0].By.Name != "arbe" {
			t.Errorf("a run that is %s needs her with %+v", outcome, got)
		}
	}
}
