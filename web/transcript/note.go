package transcript

import (
	"context"

	"github.com/arbe-dev/arbe/internal/entry"
)

// StatusNote reports a change of the thread's status.
type StatusNote struct{ To, Words string }

// WhyNote is a line that opens to show its reason.
type WhyNote struct{ Class, Words, Reason string }

// ForkedFrom leads to where the thread was forked from.
type ForkedFrom struct {
	Thread string
	Seq    int64
}

// Generic shows any entry: its type, and its payload.
type Generic struct{ Type, Text string }

// plainly returns a note with its entry's own plain text.
func plainly[P entry.Payload](icon string) func(context.Context, *known, entry.Entry, P) Body {
	return func(_ context.Context, _ *known, _ entry.Entry, p P) Body { return note("", icon, p.Plain()) }
}

// elsewhere shows nothing, because the message that the entry is about shows what became of it.
func elsewhere[P entry.Payload](context.Context, *known, entry.Entry, P) Body { return nil }

// aboutBot returns a note with a sentence about a bot.
func aboutBot[P interface {
	entry.Payload
	About(bot string) string
}](_ context.Context, k *known, e entry.Entry, p P) Body {
	return note("waiting", "s-waiting", p.About(k.named(entry.Agents(e)[0])))
}

func statusChanged(_ context.Context, k *known, e entry.Entry, s entry.StatusChanged) Body {
	if s.Epoch > 0 {
		return runStatus(k, e, s)
	}
	return StatusNote{s.To, entry.Clip(s.Plain(), MaxNote)}
}

// forked links to the source of the fork, if the entry is about this fork. The entry may be about another one, because a fork
// of a fork has the entries of both.
func forked(_ context.Context, k *known, _ entry.Entry, f entry.Forked) Body {
	if k.origin.GetThreadId() != f.ThreadID || f.ThreadID == "" {
		return note("", "fork", f.Plain())
	}
	return ForkedFrom{f.ThreadID, f.Seq}
}

// unknown shows any entry: its type, and its payload as indented JSON.
func unknown(e entry.Entry) Generic {
	pretty, ok := indented(e.Payload)
	if !ok {
		return AsStored(e)
	}
	return Generic{entry.Clip(e.Type, MaxWord), entry.Clip(pretty, maxShown)}
}

// AsStored shows the beginning of an entry's payload as stored in the log.
func AsStored(e entry.Entry) Generic {
	return Generic{entry.Clip(e.Type, MaxWord), entry.Clip(string(e.Payload[:min(len(e.Payload), 2*maxShown)]), maxShown)}
}
