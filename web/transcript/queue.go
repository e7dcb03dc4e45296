package transcript

import (
	"cmp"
	"context"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Fate is what happened to a message while it waited for a coding agent.
type Fate struct {
	// Key is the key of the element that shows it.
	Key string
	// Words says who edited or cancelled it, if anybody did.
	Words string
	// Cancelled reports that the agent did not get it.
	Cancelled bool
}

// fateOf returns the fate of a chat.
func (k *known) fateOf(id string) *Fate {
	f := &Fate{Key: blockKey(id) + "-fate"}
	said := k.ledger.Of(entry.ChatWork, id)
	if by := said.Seen(entry.QueueCancelled{}.Type()); by != nil {
		f.Words, f.Cancelled = "cancelled by "+k.nameOf(by.Author)+"; "+k.namedDriver()+" was not told this", true
	} else if by := said.Seen(entry.QueueEdited{}.Type()); by != nil {
		edit, _ := entry.SeenAs[entry.QueueEdited](by)
		f.Words = "edited by " + k.nameOf(by.Author) + " for " + k.namedDriver() + ": " + edit.Text
	}
	return f
}

func queueEdited(_ context.Context, k *known, e entry.Entry, q entry.QueueEdited) Body {
	return note("", "s-waiting", k.who(e)+" changed "+k.quoted(q.EntryID)+" to “"+entry.OneLine(q.Text, MaxNote)+"”")
}

func queueMoved(_ context.Context, k *known, e entry.Entry, q entry.QueueMoved) Body {
	if q.Before == "" {
		return note("", "s-waiting", k.who(e)+" moved "+k.quoted(q.EntryID)+" to the end of what waits")
	}
	return note("", "s-waiting", k.who(e)+" moved "+k.quoted(q.EntryID)+" before "+k.quoted(q.Before))
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

func (k *known) nameOf(agent string) string {
	return entry.Clip(cmp.Or(k.people.ByID(agent).Name, "somebody"), MaxWord)
}

// quoted returns the beginning of a chat, for a sentence.
func (k *known) quoted(id string) string {
	if said, ok := entry.SeenAs[entry.Chat](k.chat(id)); ok && said.Text != "" {
		return "“" + k.present(id, said.Text) + "”"
	}
	return "a message that waited"
}
