package entrystate_test

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a house with Ada, Bob and a thread.
type bench struct {
	*dbtest.Database
	t        testing.TB
	log      *stream.Log
	threads  *thread.Threads
	owner    *pgx.Conn
	ada, bob db.Scope
	th       thread.Thread
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

func setup(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	b := &bench{Database: dbtest.Reuse(t, 4), t: t}
	var err error
	b.log, err = stream.Open(t.Context(), b.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(b.log.Close)
	b.threads, b.owner = thread.New(b.DB, b.log), b.Owner(t)
	b.ada = b.person("Ada")
	b.bob = b.person("Bob")
	b.th, err = b.threads.Create(t.Context(), b.ada, thread.Draft{Name: "talk"})
	must(t, err)
	return b
}

// person adds a member to the bench's house.
func (b *bench) person(name string) db.Scope {
	b.t.Helper()
	scope := db.Scope{House: b.ada.House}
	if scope.House == "" {
		must(b.t, b.owner.QueryRow(b.t.Context(), "insert into houses (name) values ('Home') returning id").Scan(&scope.House))
	}
	must(b.t, b.owner.QueryRow(b.t.Context(), `
		with a as (insert into agents (kind, name) values ('human', $2) returning id)
		insert into members (house_id, agent_id, role) select $1, id, 'member' from a returning agent_id::text`, scope.House, name).Scan(&scope.Agent))
	return scope
}

func (b *bench) say(as db.Scope, text string) entry.Entry {
	b.t.Helper()
	return b.append(entry.NewDraft("", as.Agent, entry.Chat{Text: text}))
}

func (b *bench) append(d entry.Draft) entry.Entry {
	b.t.Helper()
	got, err := b.log.Append(b.t.Context(), b.th.Stream(), d)
	must(b.t, err)
	return got[0]
}

// changes edits a message, or deletes it if the text is nil, as dispatch does.
func (b *bench) changes(message entry.Entry, text *string) {
	b.t.Helper()
	var e entry.Entry
	if text != nil {
		e = b.append(entry.NewDraft("", message.Author, entry.ChatEdited{EntryID: message.ID, Text: *text}))
	} else {
		e = b.append(entry.NewDraft("", message.Author, entry.ChatDeleted{EntryID: message.ID}))
	}
	must(b.t, b.DB.In(b.t.Context(), b.ada, func(tx pgx.Tx) error {
		return entrystate.ChangeTx(b.t.Context(), tx, b.th.Stream(), b.th.ID, message, text, e.Seq)
	}))
}

func (b *bench) edits(message entry.Entry, text string) { b.t.Helper(); b.changes(message, &text) }

func (b *bench) deletes(message entry.Entry) { b.t.Helper(); b.changes(message, nil) }

// reads returns the messages of a log in their present form, as its readers see them.
func (b *bench) reads(log stream.Ref) (texts []string) {
	b.t.Helper()
	entries, _, err := b.log.Read(b.t.Context(), log, stream.Range{Limit: 1000})
	must(b.t, err)
	states, err := entrystate.Of(b.t.Context(), b.DB, log, entries)
	must(b.t, err)
	for _, e := range entries {
		now, gone := states.Now(e)
		if c, is := entry.As[entry.Chat](now); is && gone {
			texts = append(texts, "deleted")
		} else if is {
			texts = append(texts, c.Text)
		}
	}
	return texts
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestReadersHaveThePresentForm(t *testing.T) {
	b := setup(t)
	first, second, third := b.say(b.ada, "first"), b.say(b.bob, "second"), b.say(b.ada, "third")
	b.edits(first, "first, edited")
	b.edits(first, "first, edited twice")
	b.edits(second, "second, edited")
	b.deletes(second)
	want(t, "the thread reads", b.reads(b.th.Stream()), []string{"first, edited twice", "deleted", "third"})

	b.say(b.ada, "fourth")
	fork, err := b.threads.Fork(t.Context(), b.ada, b.th.ID, thread.Fork{})
	must(t, err)
	b.edits(third, "edited after the fork")
	want(t, "the fork reads", b.reads(fork.Stream()), []string{"first, edited twice", "deleted", "third", "fourth"})

	stranger := stream.Ref{House: "anotherhouse", Name: b.th.Stream().Name}
	must(t, b.DB.In(t.Context(), db.Scope{House: stranger.House}, func(tx pgx.Tx) error {
		states, err := entrystate.AtTx(t.Context(), tx, b.th.Stream(), first.Seq, second.Seq)
		want(t, "another house has states", len(states), 0)
		return err
	}))
	must(t, b.DB.In(t.Context(), b.ada, func(tx pgx.Tx) error {
		n, err := entrystate.DeletedTx(t.Context(), tx, b.th.House, b.th.ID)
		want(t, "deleted messages", n, int64(1))
		return err
	}))
}

func TestAMessageHasHadWordings(t *testing.T) {
	b := setup(t)
	edited, deleted, as := b.say(b.ada, "one"), b.say(b.ada, "secret"), b.say(b.bob, "as it was")
	b.edits(edited, "two")
	b.edits(deleted, "less secret")
	b.edits(edited, "three")
	b.deletes(deleted)
	for message, texts := range map[string]string{edited.ID: "one two three", deleted.ID: "", as.ID: "as it was"} {
		list, err := entrystate.Wordings(t.Context(), b.DB, b.log, b.th.Stream(), b.th.ID, message)
		must(t, err)
		var had []string
		for _, w := range list {
			had = append(had, w.Text)
		}
		want(t, "the wordings are", strings.Join(had, " "), texts)
	}
	if _, err := entrystate.Wordings(t.Context(), b.DB, b.log, b.th.Stream(), b.th.ID, "nothing"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an entry that does not exist: %v", err)
	}
}

func TestTheLastMessageOfAnAgent(t *testing.T) {
	b := setup(t)
	last := func(of db.Scope, tail int64) (id string) {
		t.Helper()
		must(t, b.DB.In(t.Context(), b.ada, func(tx pgx.Tx) error {
			e, _, err := entrystate.LastTx(t.Context(), tx, b.th.Stream(), tail, of.Agent)
			id = e.ID
			return err
		}))
		return id
	}
	want(t, "before any", last(b.ada, 0), "")
	b.say(b.ada, "one")
	two, bobs := b.say(b.ada, "two"), b.say(b.bob, "three")
	want(t, "Ada's", last(b.ada, bobs.Seq), two.ID)
	want(t, "Bob's", last(b.bob, bobs.Seq), bobs.ID)
	want(t, "one that lies too far back", last(b.ada, two.Seq+10_001), "")
}

// react appends many reactions to a message, as many members may.
func (b *bench) react(message entry.Entry, times int) {
	b.t.Helper()
	drafts := make([]entry.Draft, times)
	for i := range drafts {
		drafts[i] = entry.NewDraft("", b.bob.Agent, entry.ChatReacted{EntryID: message.ID, Seq: message.Seq, Emoji: "👍", Removed: i%2 == 1})
	}
	_, err := b.log.Append(b.t.Context(), b.th.Stream(), drafts...)
	must(b.t, err)
}

// However many reactions follow a message, lists show it as the last one.
func TestReactionsHideNoLastMessage(t *testing.T) {
	b := setup(t)
	said := func() (text string) {
		must(t, b.owner.QueryRow(t.Context(), "select coalesce(last_said, '') from threads where id = $1", b.th.ID).Scan(&text))
		return text
	}
	touch := func() {
		_, err := b.owner.Exec(t.Context(), "select touch_threads(array(select id from streams where name = $1))", b.th.Stream().Name)
		must(t, err)
	}
	first := b.say(b.ada, "first")
	b.react(first, 600)
	touch()
	want(t, "behind reactions it is", said(), "first")
	last := b.say(b.ada, "last")
	touch()
	want(t, "then it is", said(), "last")
	b.react(first, 300)
	b.deletes(last)
	want(t, "after the deletion it is", said(), "first")

	// A turn that has ended works no more, whatever follows it.
	_, err := b.owner.Exec(t.Context(), "update threads set running_id = 'turn', running_agent = $2, running_since = now() where id = $1", b.th.ID, b.bob.Agent)
	must(t, err)
	touch()
	var works bool
	must(t, b.owner.QueryRow(t.Context(), "select running_id is not null from threads where id = $1", b.th.ID).Scan(&works))
	want(t, "somebody works", works, false)
}

func TestReactions(t *testing.T) {
	b := setup(t)
	message := b.say(b.ada, "shipped")
	reacts := func(as db.Scope, emoji string, remove bool) (changed bool, err error) {
		err = b.DB.In(t.Context(), as, func(tx pgx.Tx) error {
			changed, err = entrystate.ReactTx(t.Context(), tx, b.th.Stream(), b.th.ID, message.Seq, as.Agent, emoji, remove)
			return err
		})
		return changed, err
	}
	change := func(as db.Scope, emoji string, remove, changes bool) {
		t.Helper()
		changed, err := reacts(as, emoji, remove)
		must(t, err)
		want(t, "a reaction changes something", changed, changes)
	}
	shown := func() (list string) {
		must(t, b.DB.In(t.Context(), b.ada, func(tx pgx.Tx) error {
			states, err := entrystate.AtTx(t.Context(), tx, b.th.Stream(), message.Seq)
			for _, r := range states[message.Seq].Reactions {
				list += fmt.Sprintf("%s%d ", r.Emoji, len(r.Agents))
			}
			return err
		}))
		return list
	}
	change(b.ada, "🎉", false, true)
	change(b.bob, "👍", false, true)
	change(b.bob, "🎉", false, true)
	change(b.bob, "🎉", false, false) // as when a request is repeated
	change(b.ada, "👍", true, false)
	want(t, "shown are", shown(), "🎉2 👍1 ")
	change(b.bob, "👍", true, true)
	want(t, "shown are", shown(), "🎉2 ")

	limited := func(what string, as db.Scope, emoji string, remove bool) {
		t.Helper()
		if changed, err := reacts(as, emoji, remove); changed || fault.CodeOf(err) != fault.Exhausted {
			t.Errorf("%s: %v, %v", what, changed, err)
		}
	}
	for i := range 7 {
		change(b.bob, string(rune('😀'+i)), false, true)
	}
	limited("a ninth emoji of one agent", b.bob, "🚀", false)
	for n := 3 + 7; n < 20; n++ { // Bob has changed his reactions ten times
		change(b.bob, "😀", n%2 == 0, true)
	}
	limited("a twenty-first change", b.bob, "😀", true)
	for person := range 2 {
		cyd := b.person(fmt.Sprint("Cyd ", person))
		for i := range 8 {
			if emoji := string(rune('🐀' + 8*person + i)); len(strings.Fields(shown())) < 20 {
				change(cyd, emoji, false, true)
			} else {
				limited("a twenty-first emoji", cyd, emoji, false)
				change(cyd, "🎉", false, true)
				return
			}
		}
	}
	t.Error("an entry has any number of emoji")
}
