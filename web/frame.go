package web

import (
	"context"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// frame is what every page of a house has around it.
type frame struct {
	Theme, Path string
	Me          *arbev1.Agent
	Houses      []*arbev1.House
	House       *arbev1.House
	Threads     []*arbev1.Thread
	// Page is the token of this page of threads, Next of the one behind it; empty are the first and none.
	Page, Next string
	// Current is the thread that is open; empty on the house's own page.
	Current string
}

// frameOf reads the frame of a house's page.
func (a *app) frameOf(r *http.Request, house, current string) (frame, error) {
	f := frame{Theme: themeOf(r), Path: r.URL.RequestURI(), Current: current}
	if current == "" {
		f.Page = r.URL.Query().Get("page")
	}
	g, ctx := errgroup.WithContext(r.Context())
	g.Go(func() error {
		res, err := a.services.agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
		f.Me = res.GetAgent()
		return err
	})
	g.Go(func() error {
		res, err := a.services.houses.ListHouses(ctx, &arbev1.ListHousesRequest{PageSize: 200})
		f.Houses = res.GetHouses()
		return err
	})
	g.Go(func() error {
		res, err := a.services.houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: house})
		f.House = res.GetHouse()
		return err
	})
	g.Go(func() (err error) {
		f.Threads, f.Next, err = a.threadsOf(ctx, house, f.Page)
		return err
	})
	return f, g.Wait()
}

// threadsOf reads a page of a house's threads: pinned ones first, then by last activity.
func (a *app) threadsOf(ctx context.Context, house, page string) (threads []*arbev1.Thread, next string, err error) {
	res, err := a.services.threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: house, PageSize: 100, PageToken: page})
	return res.GetThreads(), res.GetNextPageToken(), err
}

// pinned are the threads of the house that are pinned, recent the others; a child whose parent is there
// comes right behind it.
func (f frame) pinned() []*arbev1.Thread { return nested(f.Threads, true) }
func (f frame) recent() []*arbev1.Thread { return nested(f.Threads, false) }

func nested(all []*arbev1.Thread, pinned bool) []*arbev1.Thread {
	var top []*arbev1.Thread
	here, children := map[string]bool{}, map[string][]*arbev1.Thread{}
	for _, t := range all {
		if (t.PinnedAt != nil) == pinned {
			here[t.Id] = true
		}
	}
	for _, t := range all {
		switch {
		case !here[t.Id]:
		case here[t.ParentThreadId]:
			children[t.ParentThreadId] = append(children[t.ParentThreadId], t)
		default:
			top = append(top, t)
		}
	}
	var ordered []*arbev1.Thread
	var add func(t *arbev1.Thread)
	add = func(t *arbev1.Thread) {
		ordered = append(ordered, t)
		for _, child := range children[t.Id] {
			add(child)
		}
	}
	for _, t := range top {
		add(t)
	}
	return ordered
}

// status is a thread's status as a page shows it: a shape and a colour by its class, and a word.
type status struct{ Class, Word string }

// statusOf gives a status nobody knows the neutral shape and its own word.
func statusOf(s string) status {
	switch s {
	case "idle", "running", "waiting", "completed", "failed", "cancelled", "open", "closed":
		return status{Class: s, Word: s}
	}
	return status{Class: "idle", Word: s}
}

// title is what a thread is called.
func title(t *arbev1.Thread) string {
	if name := strings.TrimSpace(t.Name); name != "" {
		return name
	}
	return "Untitled"
}

// windowTitle is the title of a thread's window: the status comes first, for it is what one looks for in a
// row of tabs. That a chat is open goes without saying.
func windowTitle(t *arbev1.Thread, house string) string {
	s := title(t) + " · " + house
	switch t.Status {
	case "open", "":
		return s
	case "running":
		return "● running · " + s
	}
	return t.Status + " · " + s
}
