package arbe

import (
	"cmp"
	"context"
	"iter"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// WatchHouse yields the rows of a house that req names and their changes, however often connections are cut and servers
// restart in between: first every row, then caught_up, then a row whenever it changes, and a gone when it is no longer one
// of these rows. After a reconnect it may repeat rows that have not changed, because it does not know what it missed. It
// then yields a gone for each row that has disappeared, and caught_up again. Its options are those of [Client.Tail].
//
// It ends when the loop is left, or with an error as its last element: the context's error, or an error that reconnecting
// cannot fix (the credential is not accepted, the house or one of the threads does not exist).
func (c *Client) WatchHouse(ctx context.Context, req *arbev1.WatchHouseRequest, opts ...TailOption) iter.Seq2[*arbev1.WatchHouseResponse, error] {
	return func(yield func(*arbev1.WatchHouseResponse, error) bool) {
		t := tail{silence: defaultSilence, lost: func(error, time.Duration) {}}
		for _, o := range opts {
			o.applyTail(&t)
		}
		w := watch{known: map[rowKey]bool{}, yield: yield}
		r := reconnects{silence: t.silence, lost: t.lost, hopeless: hopeless}
		err := r.run(ctx, func(ctx context.Context, heard func() (done func())) (further bool, err error) {
			w.caughtUp = false
			for key := range w.known {
				w.known[key] = false
			}
			stream, err := c.Houses.WatchHouse(ctx, req)
			err = receive(stream, err, heard, w.deliver)
			return w.caughtUp, err
		})
		if err != errLeft {
			yield(nil, err)
		}
	}
}

// CompareThreads compares two threads in the order of ThreadService.ListThreads: pinned threads first, the last pinned
// leading, then by last activity. It is negative when a comes before b.
func CompareThreads(a, b *arbev1.Thread) int {
	return cmp.Or(b.GetPinnedAt().AsTime().Compare(a.GetPinnedAt().AsTime()),
		b.GetLastActivityAt().AsTime().Compare(a.GetLastActivityAt().AsTime()), cmp.Compare(b.GetId(), a.GetId()))
}

type rowKey struct{ kind, id string }

// watch is one range over a house's rows, across its connections.
type watch struct {
	// known holds the rows that were yielded, and whether this connection has delivered them. A row that it has not delivered
	// before its caught_up has gone.
	known    map[rowKey]bool
	caughtUp bool
	yield    func(*arbev1.WatchHouseResponse, error) bool
}

// deliver yields one event.
func (w *watch) deliver(event *arbev1.WatchHouseResponse) error {
	switch e := event.GetEvent().(type) {
	case *arbev1.WatchHouseResponse_Alive:
		return nil
	case *arbev1.WatchHouseResponse_Gone:
		delete(w.known, rowKey{e.Gone.GetKind(), e.Gone.GetId()})
	case *arbev1.WatchHouseResponse_Thread:
		w.known[rowKey{"thread", e.Thread.GetId()}] = true
	case *arbev1.WatchHouseResponse_Sandbox:
		w.known[rowKey{"sandbox", e.Sandbox.GetId()}] = true
	case *arbev1.WatchHouseResponse_Environment:
		w.known[rowKey{"environment", e.Environment.GetId()}] = true
	case *arbev1.WatchHouseResponse_Member:
		w.known[rowKey{"member", e.Member.GetAgent().GetId()}] = true
	case *arbev1.WatchHouseResponse_Bot:
		w.known[rowKey{"bot", e.Bot.GetId()}] = true
	case *arbev1.WatchHouseResponse_CaughtUp:
		w.caughtUp = true
		for key, sent := range w.known {
			if sent {
				continue
			}
			delete(w.known, key)
			gone := &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Gone{Gone: &arbev1.Gone{Kind: key.kind, Id: key.id}}}
			if !w.yield(gone, nil) {
				return errLeft
			}
		}
	}
	if !w.yield(event, nil) {
		return errLeft
	}
	return nil
}
