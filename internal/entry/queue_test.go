package entry_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestQueue(t *testing.T) {
	t.Parallel()
	type step struct {
		id, author string
		what       entry.Payload
	}
	said := func(id string) step { return step{id, "ada", entry.Chat{Text: "text of " + id}} }
	changed := func(p entry.Payload) step { return step{"", "bob", p} }
	taken := func(ids ...string) step { return changed(entry.QueueTaken{Epoch: 1, EntryIDs: ids}) }
	for name, c := range map[string]struct {
		steps   []step
		waiting string
		through int64
	}{
		"nothing":                        {nil, "", 0},
		"what is said waits in order":    {[]step{said("a"), said("b")}, "a b", 0},
		"the agent's own words do not":   {[]step{{"a", "bot", entry.Chat{Text: "I begin."}}}, "", 0},
		"taken":                          {[]step{said("a"), said("b"), taken("a")}, "b", 1},
		"all taken":                      {[]step{said("a"), said("b"), taken("a", "b")}, "", 2},
		"the last one is taken first":    {[]step{said("a"), said("b"), taken("b")}, "a", 0},
		"and then the first":             {[]step{said("a"), said("b"), taken("b"), taken("a")}, "", 2},
		"moved to the front":             {[]step{said("a"), said("b"), said("c"), changed(entry.QueueMoved{EntryID: "c", Before: "a"})}, "c a b", 0},
		"moved to the end":               {[]step{said("a"), said("b"), changed(entry.QueueMoved{EntryID: "a"})}, "b a", 0},
		"said after a move":              {[]step{said("a"), said("b"), changed(entry.QueueMoved{EntryID: "a"}), said("c")}, "b a c", 0},
		"moved before what is gone":      {[]step{said("a"), said("b"), taken("b"), changed(entry.QueueMoved{EntryID: "a", Before: "b"})}, "a", 0},
		"moved before what is cancelled": {[]step{said("a"), said("b"), said("c"), changed(entry.QueueMoved{EntryID: "c", Before: "a"}), changed(entry.QueueCancelled{EntryID: "a"})}, "c b", 0},
		"moved behind what was moved":    {[]step{said("a"), said("b"), said("c"), said("d"), changed(entry.QueueMoved{EntryID: "c", Before: "a"}), changed(entry.QueueMoved{EntryID: "d", Before: "c"}), taken("c", "a")}, "d b", 0},
		"all that was moved is taken":    {[]step{said("a"), said("b"), changed(entry.QueueMoved{EntryID: "b", Before: "a"}), taken("b", "a"), said("c")}, "c", 2},
		"cancelled":                      {[]step{said("a"), said("b"), changed(entry.QueueCancelled{EntryID: "a"})}, "b", 1},
		"what is gone cannot be changed": {[]step{said("a"), taken("a"), changed(entry.QueueEdited{EntryID: "a", Text: "x"}), changed(entry.QueueCancelled{EntryID: "a"})}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := entry.NewQueue("bot", 0)
			for i, s := range c.steps {
				d := entry.NewDraft(s.id, s.author, s.what)
				q.Learn(entry.Entry{Seq: int64(i + 1), ID: d.ID, Author: d.Author, Type: d.Type, Payload: d.Payload})
			}
			var ids []string
			for _, w := range q.Waiting() {
				ids = append(ids, w.ID)
			}
			if got := strings.Join(ids, " "); got != c.waiting || q.Through() != c.through {
				t.Errorf("%q waits behind %d, want %q behind %d", got, q.Through(), c.waiting, c.through)
			}
			later := entry.NewQueue("bot", q.Through())
			for i, s := range c.steps {
				d := entry.NewDraft(s.id, s.author, s.what)
				later.Learn(entry.Entry{Seq: int64(i + 1), ID: d.ID, Author: d.Author, Type: d.Type, Payload: d.Payload})
			}
			ids = nil
			for _, w := range later.Waiting() {
				ids = append(ids, w.ID)
			}
			if got := strings.Join(ids, " "); got != c.waiting {
				t.Errorf("a queue that begins behind %d has %q, want %q", q.Through(), got, c.waiting)
			}
		})
	}
	t.Run("an edited message says who edited it", func(t *testing.T) {
		t.Parallel()
		q := entry.NewQueue("bot", 3)
		for i, p := range []entry.Payload{entry.Chat{Text: "was"}, entry.Chat{Text: "more"}, entry.QueueEdited{EntryID: "e4", Text: "is"}, entry.QueueMoved{EntryID: "e5", Before: "e4"}} {
			d := entry.NewDraft("", "ada", p)
			q.Learn(entry.Entry{Seq: int64(i + 4), ID: "e" + string(rune('4'+i)), Author: d.Author, Type: d.Type, Payload: d.Payload})
		}
		if w, ok := q.Find("e4"); !ok || w.Chat.Text != "is" || w.Version != 6 || w.EditedAt != 6 || w.EditedBy != "ada" || w.Seq != 4 {
			t.Errorf("it is %+v", w)
		}
		for i, later := range []bool{true, false} {
			d := entry.NewDraft("", "bob", entry.QueueTimed{EntryID: "e4", Queue: later})
			q.Learn(entry.Entry{Seq: int64(8 + i), ID: d.ID, Author: d.Author, Type: d.Type, Payload: d.Payload})
			if w, _ := q.Find("e4"); w.Later != later || w.Version != int64(8+i) || w.EditedAt != 6 {
				t.Errorf("after a choice of its time it is %+v", w)
			}
		}
		if w, _ := q.Find("e5"); w.Version != 7 || w.EditedAt != 0 || q.Changes() != 4 {
			t.Errorf("the moved one is %+v after %d changes", w, q.Changes())
		}
	})
}
