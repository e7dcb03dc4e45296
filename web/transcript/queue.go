package transcript

import (
	"cmp"
	"context"

	"github.com/arbe-dev/arbe/internal/entry"
)

func queueEdited(_ context.Context, k *known, e entry.Entry, q entry.QueueEdited) Body {
	return note("", "s-waiting", k.who(e)+" changed "+k.quoted(q.EntryID)+" to “"+entry.OneLine(q.Text, MaxNote)+"”")
}

func queueMoved(_ context.Context, k *known, e entry.Entry, q entry.QueueMoved) Body {
	if q.Before == "" {
		return note("", "s-waiting", k.who(e)+" moved "+k.quoted(q.EntryID)+" to the end of what waits")
	}
	return note("", "s-waiting", k.who(e)+" moved "+k.quoted(q.EntryID)+" before "+k.quoted(q.Before))
}

func queueTimed(_ context.Context, k *known, e entry.Entry, q entry.QueueTimed) Body {
	if q.Queue {
		return note("", "s-waiting", k.who(e)+" lets "+k.quoted(q.EntryID)+" wait until the current work is done")
	}
	return note("", "s-waiting", k.who(e)+" sends "+k.quoted(q.EntryID)+" to "+k.namedDriver()+" now")
}

func queueCancelled(_ context.Context, k *known, e entry.Entry, q entry.QueueCancelled) Body {
	return note("", "s-cancelled", k.who(e)+" cancelled "+k.quoted(q.EntryID)+"; "+k.namedDriver()+" is not told it")
}

// queueTaken shows nothing, because people expect that the agent gets their messages.
func queueTaken(context.Context, *known, entry.Entry, entry.QueueTaken) Body { return nil }

// who returns the name of an entry's author, and nameOf the name of an agent, for the beginning of a sentence.
func (k *known) who(e entry.Entry) string {
	return entry.Clip(cmp.Or(k.people.ByID(e.Author).Name, "Somebody"), MaxWord)
}

// quoted returns the beginning of a chat, for a sentence.
func (k *known) quoted(id string) string {
	if said, ok := entry.SeenAs[entry.Chat](k.chat(id)); ok && said.Text != "" {
		return "“" + k.present(id, said.Text) + "”"
	}
	return "a message that waited"
}
