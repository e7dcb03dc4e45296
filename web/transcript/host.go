package transcript

import (
	"context"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Refused is a host that a command was not allowed to reach.
type Refused struct {
	Words  string
	Answer HostAnswer
}

// HostAnswer is the state of a refused host.
type HostAnswer struct {
	Thread, Environment, Host string
	// Open reports that the host can be allowed. Otherwise Words says who allowed it, or is empty if nobody can.
	Open  bool
	Words string
}

func hostRefused(_ context.Context, k *known, _ entry.Entry, p entry.HostRefused) Body {
	who := "A program"
	if p.Program != "" {
		who = p.Program
	}
	words := who + " was kept from " + p.Host + ", which the environment does not allow."
	if p.Private {
		words = who + " was kept from " + p.Host + ", which has no public address."
	}
	v := Refused{Words: entry.Clip(words, MaxNote), Answer: HostAnswer{Thread: k.thread, Environment: p.EnvironmentID, Host: p.Host}}
	if allowed := k.ledger.Of(entry.HostWork, entry.HostID(p.EnvironmentID, p.Host)).Completed(); allowed != nil {
		v.Answer.Words = k.allowedBy(allowed.Author)
	} else {
		v.Answer.Open = p.Allowable()
	}
	return v
}

func hostAllowed(_ context.Context, k *known, e entry.Entry, p entry.HostAllowed) Body {
	return note("", "box", k.people.ByID(e.Author).Name+" allowed "+p.Host+" for sandboxes of this environment.")
}

func (k *known) allowedBy(author string) string { return k.people.ByID(author).Name + " allowed it." }
