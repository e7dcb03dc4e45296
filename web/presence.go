package web

import (
	"context"
	"slices"
	"sort"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
	"github.com/arbe-dev/arbe/web/transcript"
)

// watchPresence shows the reader as present in the thread. The channel receives the present agents after each change. Errors are only
// logged, because the thread is useful without presence.
func (l *liveThread) watchPresence(ctx context.Context) <-chan []string {
	here := make(chan []string)
	guard.Background(func() error {
		stream, err := l.app.services.entries.WatchPresence(ctx, &arbev1.WatchPresenceRequest{ThreadId: l.thread.Id})
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }() // nothing to handle: the stream is no longer needed
		for stream.Receive() {
			p := stream.Msg().GetPresent()
			if p == nil {
				continue
			}
			select {
			case here <- p.AgentIds:
			case <-ctx.Done():
				return nil
			}
		}
		if err := stream.Err(); err != nil && ctx.Err() == nil {
			_ = l.withoutPresence(ctx, err) // nil, because the reader is here
		}
		select {
		case here <- nil:
		case <-ctx.Done():
		}
		return nil
	})
	return here
}

// showPresence shows the names of the other people who have the thread open. If it cannot find the names, the page stays as it is.
func (l *liveThread) showPresence(ctx context.Context, agents []string) error {
	if len(agents) < 2 && (l.greeted || agents == nil) && !l.accompanied {
		return nil // the reader is alone, and the page shows nobody
	}
	l.greeted = true // before this, the page may show the people of an earlier connection
	me := ""
	if len(agents) > 1 {
		var err error
		if me, err = l.reader(ctx); err != nil {
			return l.withoutPresence(ctx, err)
		}
	} else {
		agents = nil
	}
	agents = slices.DeleteFunc(slices.Clone(agents), func(id string) bool { return id == me })
	if err := l.people.Meet(ctx, agents...); err != nil {
		return l.withoutPresence(ctx, err)
	}
	var others []transcript.Author
	for _, id := range agents {
		if a := l.people.ByID(id); !a.Bot && !a.System && !a.Left && a.Name != unknownAgent {
			others = append(others, a)
		}
	}
	sort.Slice(others, func(i, j int) bool { return others[i].Name < others[j].Name })
	l.accompanied = len(others) > 0
	p, err := replaced(ctx, "#presence", presenceLine(others))
	if err != nil {
		return err
	}
	return l.conn.send(event{Topic: l.topic.name(), Patches: []patch{p}})
}

// withoutPresence logs that presence could not be shown. The thread goes on unless the reader has left.
func (l *liveThread) withoutPresence(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	l.app.log.InfoContext(ctx, "web: cannot show who has a thread open", "thread", l.thread.Id, "error", err)
	return nil
}
