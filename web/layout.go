package web

import (
	"context"
	"net/http"
	"slices"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
)

func (a *app) layoutOf(r *http.Request, house, current string) (layout, error) {
	f := layout{Theme: a.themeOf(r), Path: r.URL.RequestURI(), Current: current}
	if current == "" {
		q := r.URL.Query()
		f.Page, f.Newer, f.Only = q.Get("page"), q["newer"], filterOf(q.Get("is"))
		f.Newer = f.Newer[:min(len(f.Newer), maxNewer)]
	}
	part := f.isPart()
	g, ctx := guard.NewGroup(r.Context())
	g.Go(func() error {
		res, err := a.services.agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
		f.Me, f.Unnamed = res.GetAgent(), res.GetUnnamed()
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
		f.Threads, f.Next, err = a.threadsOf(ctx, house, f.Page, f.Only.status())
		return err
	})
	if part {
		g.Go(func() (err error) {
			f.First, _, err = a.threadsOf(ctx, house, "", 0)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return f, err
	}
	read := idsOf(f.placesOf().Threads)
	if f.Current != "" && !slices.Contains(read, f.Current) {
		read = append(read, f.Current)
	}
	res, err := a.services.inboxes.GetInbox(r.Context(), &arbev1.GetInboxRequest{HouseId: house, ThreadIds: read})
	f.Inbox = res.GetInbox()
	return f, err
}

func idsOf(threads []*arbev1.Thread) (ids []string) {
	for _, t := range threads {
		ids = append(ids, t.Id)
	}
	return ids
}

// threadsOf reads a page of the threads in everyone's list, or of those with a status: pinned ones first, then those with the
// latest activity.
func (a *app) threadsOf(ctx context.Context, house, page string, status arbev1.ThreadStatus) (threads []*arbev1.Thread, next string, err error) {
	res, err := a.services.threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: house, PageSize: pageOfThreads, PageToken: page, Status: status, Shared: true})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(res.Threads, arbe.CompareThreads) // the server's order may be a second behind
	return res.Threads, res.NextPageToken, a.nameSpeakers(ctx, house, res.Threads)
}
