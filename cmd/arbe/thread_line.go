package main

import (
	"context"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func (a *app) listOfThreads(threads []*arbev1.Thread) error {
	rows := make([]row, len(threads))
	for i, t := range threads {
		rows[i] = row{t.GetId(), export.ViewThread(t), []string{t.GetId(), title(t), doing(t), a.when(t.GetLastActivityAt().AsTime())}}
	}
	return a.list([]string{"ID", "NAME", "STATUS", "LAST ACTIVE"}, rows)
}

// doing returns a thread's activity: a wait for approval, what is running in it, or else its status.
func doing(t *arbev1.Thread) string {
	switch r := t.GetRunning(); {
	case t.GetOpenApprovals() > 0:
		return "waits for approval"
	case r.GetTurnId() != "":
		return entry.PrintableLine(first(r.GetAgentName(), "a bot") + " at work")
	case r != nil:
		return "running"
	}
	return arbev1.Word(t.GetStatus())
}

// listThreads returns at most limit threads (0 is all), and whether there are more.
func listThreads(ctx context.Context, c *arbe.Client, req *arbev1.ListThreadsRequest, limit int) (threads []*arbev1.Thread, more bool, err error) {
	const most = 200
	for {
		req.PageSize = most
		if limit > 0 {
			req.PageSize = int32(min(most, limit-len(threads)))
		}
		page, err := c.Threads.ListThreads(ctx, req)
		if err != nil {
			return nil, false, err
		}
		threads = append(threads, page.GetThreads()...)
		req.PageToken = page.GetNextPageToken()
		if req.PageToken == "" || limit > 0 && len(threads) >= limit {
			return threads, req.PageToken != "", nil
		}
	}
}
