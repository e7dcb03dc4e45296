package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// houses is a server whose caller is in this many houses. It lists one house per page, so that a client must read all pages.
// It records the house whose threads were listed.
type houses struct {
	arbev1connect.UnimplementedHouseServiceHandler
	arbev1connect.UnimplementedThreadServiceHandler
	count int
	asked string
}

func (h *houses) ListHouses(_ context.Context, req *arbev1.ListHousesRequest) (*arbev1.ListHousesResponse, error) {
	n, _ := strconv.Atoi(req.GetPageToken()) // an empty token is the first page
	if n >= h.count {
		return &arbev1.ListHousesResponse{}, nil
	}
	page := &arbev1.ListHousesResponse{Houses: []*arbev1.House{{Id: "house" + strconv.Itoa(n), Name: "Name"}}}
	if n+1 < h.count {
		page.NextPageToken = strconv.Itoa(n + 1)
	}
	return page, nil
}

func (h *houses) ListThreads(_ context.Context, req *arbev1.ListThreadsRequest) (*arbev1.ListThreadsResponse, error) {
	h.asked = req.GetHouseId()
	return &arbev1.ListThreadsResponse{}, nil
}

func TestWhichHouseAVerbWorksIn(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name        string
		houses      int
		flag, env   string
		want        string
		code        int
		wantMessage string
	}{
		{name: "the only one there is", houses: 1, want: "house0"},
		{name: "the one in ARBE_HOUSE, when there are several", houses: 3, env: "house1", want: "house1"},
		{name: "the one of the flag, whatever ARBE_HOUSE says", houses: 3, env: "house1", flag: "house2", want: "house2"},
		{
			name: "none is chosen among several", houses: 3, code: fault.Invalid.ExitCode(),
			wantMessage: "you are in several houses: house0 (Name), house1 (Name), house2 (Name); say which one with --house, or set ARBE_HOUSE",
		},
		{name: "none without a house", code: fault.Precondition.ExitCode(), wantMessage: "you are not in any house yet; make one with: arbe house create NAME, or ask an owner of one to invite you"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := &houses{count: c.houses}
			mux := http.NewServeMux()
			mux.Handle(arbev1connect.NewHouseServiceHandler(h))
			mux.Handle(arbev1connect.NewThreadServiceHandler(h))
			server := httptest.NewServer(mux)
			defer server.Close()

			env := map[string]string{"ARBE_HOST": server.URL, "ARBE_HOUSE": c.env, "ARBE_DATA_DIR": t.TempDir(), "HOME": t.TempDir()}
			var said strings.Builder
			a := &app{out: &strings.Builder{}, err: &said, getenv: func(name string) string { return env[name] }}
			code := a.run(t.Context(), []string{"thread", "list", "--house", c.flag})
			if code != c.code || h.asked != c.want || !strings.Contains(said.String(), c.wantMessage) {
				t.Fatalf("it exited with %d, asked for house %q and said %q; want %d, %q and %q",
					code, h.asked, said.String(), c.code, c.want, c.wantMessage)
			}
		})
	}
}
