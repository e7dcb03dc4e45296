package arbe_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// A scriptedHouse sends the events of its next script at each call of WatchHouse. The last call stays open.
type scriptedHouse struct {
	arbev1connect.UnimplementedHouseServiceHandler
	scripts []func(send func(*arbev1.WatchHouseResponse)) error
	calls   atomic.Int32
}

func (s *scriptedHouse) WatchHouse(ctx context.Context, _ *arbev1.WatchHouseRequest, to *connect.ServerStream[arbev1.WatchHouseResponse]) error {
	call := int(s.calls.Add(1))
	if err := s.scripts[call-1](func(e *arbev1.WatchHouseResponse) { _ = to.Send(e) }); err != nil {
		return err
	}
	if call == len(s.scripts) {
		<-ctx.Done()
	}
	return nil
}

func (s *scriptedHouse) serve(t *testing.T) *arbe.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(arbev1connect.NewHouseServiceHandler(s))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return arbe.New(srv.URL, token)
}

func threadRow(id string) *arbev1.WatchHouseResponse {
	return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Thread{Thread: &arbev1.Thread{Id: id}}}
}

func goneRow(id string) *arbev1.WatchHouseResponse {
	return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Gone{Gone: &arbev1.Gone{Kind: "thread", Id: id}}}
}

var (
	watching = &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_CaughtUp{CaughtUp: &arbev1.Watching{}}}
	alive    = &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Alive{Alive: &arbev1.Alive{}}}
)

func TestAWatchTellsWhatWasLostBetweenTwoConnections(t *testing.T) {
	t.Parallel()
	c := (&scriptedHouse{scripts: []func(func(*arbev1.WatchHouseResponse)) error{
		func(send func(*arbev1.WatchHouseResponse)) error {
			for _, e := range []*arbev1.WatchHouseResponse{threadRow("a"), threadRow("b"), watching, alive, goneRow("b"), threadRow("c")} {
				send(e)
			}
			return nil
		},
		func(send func(*arbev1.WatchHouseResponse)) error {
			for _, e := range []*arbev1.WatchHouseResponse{threadRow("c"), threadRow("d"), watching} {
				send(e)
			}
			return nil
		},
	}}).serve(t)
	var seen []string
	lost := 0
	for event, err := range c.WatchHouse(t.Context(), &arbev1.WatchHouseRequest{HouseId: "home"}, arbe.OnDisconnect(func(error, time.Duration) { lost++ })) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case event.GetThread() != nil:
			seen = append(seen, event.GetThread().GetId())
		case event.GetGone() != nil:
			seen = append(seen, "-"+event.GetGone().GetId())
		case event.GetCaughtUp() != nil:
			seen = append(seen, "=")
		}
		if len(seen) == 9 {
			break
		}
	}
	if want := []string{"a", "b", "=", "-b", "c", "c", "d", "-a", "="}; !slices.Equal(seen, want) || lost != 1 {
		t.Errorf("it told %q over %d lost connections, want %q over one", seen, lost, want)
	}
}

func TestAWatchEndsWithWhatConnectingAgainCannotHeal(t *testing.T) {
	t.Parallel()
	c := (&scriptedHouse{scripts: []func(func(*arbev1.WatchHouseResponse)) error{
		func(func(*arbev1.WatchHouseResponse)) error {
			return connect.NewError(connect.CodeUnauthenticated, nil)
		},
	}}).serve(t)
	for _, err := range c.WatchHouse(t.Context(), &arbev1.WatchHouseRequest{HouseId: "home"}) {
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Fatalf("it ended with %v", err)
		}
	}
}
