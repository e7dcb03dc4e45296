package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxWatched is the largest number of threads that WatchHouse accepts.
const maxWatched = 200

// clearScreen clears a terminal's screen, and moves the cursor to its beginning.
const clearScreen = "\x1b[H\x1b[2J"

// watchThreads prints a house's list of threads, and then its changes.
func (a *app) watchThreads(ctx context.Context, c *arbe.Client, of *arbev1.ListThreadsRequest, limit int) error {
	if of.ParentThreadId+of.ForkedFromThreadId+of.Tag != "" || of.Status != 0 {
		return fault.New(fault.Invalid, "--watch shows the whole list", "leave out --parent, --forks-of, --tag and --status")
	}
	if limit < 1 || limit > maxWatched {
		return fault.Newf(fault.Invalid, "give --limit from 1 to 200", "--watch shows at most %d threads", maxWatched)
	}
	w := threadWatch{app: a, threads: map[string]*arbev1.Thread{}}
	lost := false
	onLost := arbe.OnDisconnect(func(error, time.Duration) {
		if !lost {
			a.say("the connection to the server is lost; trying again")
		}
		lost = true
	})
	for event, err := range c.WatchHouse(ctx, &arbev1.WatchHouseRequest{HouseId: of.HouseId, Threads: int32(limit)}, onLost) {
		if err != nil {
			return err
		}
		if lost {
			a.say("connected again")
			lost = false
		}
		if err := w.take(event); err != nil {
			return err
		}
	}
	return nil
}

// threadWatch is a watched list of threads.
type threadWatch struct {
	app     *app
	threads map[string]*arbev1.Thread
	// drawn reports that the whole list has arrived. Before that, only a part of it would be drawn.
	drawn bool
}

// take shows one event. On a terminal it draws the list again; elsewhere it prints a line, because only a screen can be
// cleared.
func (w *threadWatch) take(event *arbev1.WatchHouseResponse) error {
	screen := isTerminal(w.app.out) && !w.app.json
	var err error
	switch t, gone := event.GetThread(), event.GetGone(); {
	case t != nil:
		if had := w.threads[t.GetId()]; had != nil && !screen && sameButBeat(had, t) {
			return nil // a heartbeat, or a repetition after a reconnect
		}
		w.threads[t.GetId()] = t
		if !screen {
			err = w.line(t)
		}
	case gone.GetKind() == "thread":
		delete(w.threads, gone.GetId())
		if !screen {
			err = w.goneLine(gone.GetId())
		}
	case event.GetCaughtUp() != nil:
		w.drawn = true
	default:
		return nil
	}
	if err != nil || !screen || !w.drawn {
		return err
	}
	if _, err := fmt.Fprint(w.app.out, clearScreen); err != nil {
		return err
	}
	return w.app.listOfThreads(slices.SortedFunc(maps.Values(w.threads), arbe.CompareThreads))
}

// sameButBeat reports whether two states of a thread differ at most in the last heartbeat of its run.
func sameButBeat(had, t *arbev1.Thread) bool {
	if had.GetLastRun() == nil || t.GetLastRun() == nil {
		return proto.Equal(had, t)
	}
	had = proto.CloneOf(had)
	had.LastRun.HeartbeatAt = t.GetLastRun().GetHeartbeatAt()
	return proto.Equal(had, t)
}

func (w *threadWatch) line(t *arbev1.Thread) error {
	if w.app.json {
		view := export.ViewThread(t)
		return w.app.printJSON(watchedView{Thread: &view})
	}
	return w.app.listOfThreads([]*arbev1.Thread{t})
}

func (w *threadWatch) goneLine(id string) error {
	switch {
	case w.app.json:
		return w.app.printJSON(watchedView{Gone: id})
	case w.app.quiet:
		return nil
	}
	_, err := fmt.Fprintln(w.app.out, id+"  (gone from the list)")
	return err
}
