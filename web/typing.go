package web

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// typingLasts is how long somebody is shown as writing after the last sign of it.
	typingLasts = 6 * time.Second
	// maxTyping is how many people are shown by name.
	maxTyping = 3
)

// typing passes on that the reader is writing something.
func (a *app) typing(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.services.entries.ShowTyping(r.Context(), &arbev1.ShowTypingRequest{ThreadId: r.PathValue("thread")}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// typists are the others who are writing in a thread. It is not safe for concurrent use.
type typists struct {
	// me is the reader, who is not shown; empty until somebody writes.
	me string
	// until is when each is no longer shown.
	until map[string]time.Time
	// over fires when the first of them is over.
	over *time.Timer
}

func newTypists() *typists {
	over := time.NewTimer(time.Hour)
	over.Stop()
	return &typists{until: map[string]time.Time{}, over: over}
}

// next sets the timer.
func (t *typists) next() {
	t.over.Stop()
	if len(t.until) > 0 {
		first := slices.MinFunc(slices.Collect(maps.Values(t.until)), time.Time.Compare)
		t.over.Reset(max(time.Until(first), 0))
	}
}

// typed shows that somebody is writing, if it is a member other than the reader.
func (l *liveThread) typed(ctx context.Context, agent string) error {
	if l.typing.me == "" {
		res, err := l.app.services.agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
		if err != nil {
			return err
		}
		l.typing.me = res.GetAgent().GetId()
	}
	if agent == l.typing.me {
		return nil
	}
	if err := l.people.Meet(ctx, agent); err != nil {
		return err
	}
	if who := l.people.ByID(agent); who.Left || who.System || who.Name == unknownAgent {
		return nil
	}
	_, shown := l.typing.until[agent]
	l.typing.until[agent] = time.Now().Add(typingLasts)
	l.typing.next()
	if shown {
		return nil
	}
	return l.showTyping(ctx)
}

// typedNoMore ends what is shown of those whose time is over, and of an agent who has said something.
func (l *liveThread) typedNoMore(ctx context.Context, said string) error {
	before := len(l.typing.until)
	if before == 0 {
		return nil
	}
	for agent, until := range l.typing.until {
		if agent == said || !until.After(time.Now()) {
			delete(l.typing.until, agent)
		}
	}
	l.typing.next()
	if len(l.typing.until) == before {
		return nil
	}
	return l.showTyping(ctx)
}

func (l *liveThread) showTyping(ctx context.Context) error {
	var names []string
	for agent := range l.typing.until {
		names = append(names, clip(cmp.Or(l.people.ByID(agent).Name, "Somebody"), 40))
	}
	slices.Sort(names)
	p, err := replaced(ctx, "#typing", typingLine(typingText(names)))
	if err != nil {
		return err
	}
	return l.conn.send(event{Topic: l.topic.name(), Patches: []patch{p}})
}

// typingText says who is writing: "Ada and Bob are writing…".
func typingText(names []string) string {
	switch n := len(names); {
	case n == 0:
		return ""
	case n == 1:
		return names[0] + " is writing…"
	case n > maxTyping:
		return "Several people are writing…"
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1] + " are writing…"
	}
}
