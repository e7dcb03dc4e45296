package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/web/guard"
)

// live follows topics until the browser leaves or all of them have ended. If the connection breaks, the browser reconnects.
func (a *app) live(w http.ResponseWriter, r *http.Request) error {
	topics, err := topicsOf(r.URL.Query())
	if err != nil {
		return err
	}
	session := a.sessionOf(r)
	leave, err := a.following.enter(session, len(topics))
	if err != nil {
		return err
	}
	defer leave()
	// The session is not checked here, because each topic reports that error to a reader who is not logged in.
	ctx, cancel := context.WithCancel(withSession(r.Context(), session))
	defer cancel()
	c, err := newLiveConn(w, r, cancel)
	if err != nil {
		a.log.InfoContext(ctx, "web: a browser left while it connected", "error", err)
		return nil
	}
	// Follow the topics of one house together, so that one check of membership is enough.
	houses := map[string][]topic{}
	g, ctx := guard.NewGroup(ctx)
	for _, t := range topics {
		if t.kind != "thread" {
			houses[t.id] = append(houses[t.id], t)
			continue
		}
		g.Go(func() error { return a.followThread(ctx, c, t) })
	}
	for house, topics := range houses {
		g.Go(func() error { return a.followHouse(ctx, c, house, topics) })
	}
	beat := guard.Background(func() error { return c.beat(ctx) })
	err = g.Wait()
	cancel()
	<-beat
	if err != nil && r.Context().Err() == nil && !errors.Is(err, context.Canceled) {
		f := faultOf(err)
		level := slog.LevelInfo
		if f.Code == fault.Internal {
			level = slog.LevelError
		}
		a.log.Log(r.Context(), level, "web: a live connection was interrupted", "error", f.Detail())
	}
	return nil
}
