package rpc_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// paged reads one page of a list, and returns the ids of its rows.
type paged func(p person, size int32, token string) (ids []string, next string, err error)

// lists holds all paged lists by name.
func lists(t *testing.T) map[string]paged {
	ctx := t.Context()
	return map[string]paged{
		"houses": func(p person, size int32, token string) (ids []string, next string, err error) {
			res, err := p.Houses.ListHouses(ctx, &arbev1.ListHousesRequest{PageSize: size, PageToken: token})
			return idsOf(res.GetHouses()), res.GetNextPageToken(), err
		},
		"members": func(p person, size int32, token string) (ids []string, next string, err error) {
			res, err := p.Houses.ListMembers(ctx, &arbev1.ListMembersRequest{HouseId: p.house.Id, PageSize: size, PageToken: token})
			for _, m := range res.GetMembers() {
				ids = append(ids, m.Agent.Id)
			}
			return ids, res.GetNextPageToken(), err
		},
		"agents": func(p person, size int32, token string) (ids []string, next string, err error) {
			res, err := p.Agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: p.house.Id, PageSize: size, PageToken: token})
			return idsOf(res.GetAgents()), res.GetNextPageToken(), err
		},
		"keys": func(p person, size int32, token string) (ids []string, next string, err error) {
			res, err := p.Credentials.ListAPIKeys(ctx, &arbev1.ListAPIKeysRequest{HouseId: p.house.Id, PageSize: size, PageToken: token})
			return idsOf(res.GetApiKeys()), res.GetNextPageToken(), err
		},
		"threads": func(p person, size int32, token string) (ids []string, next string, err error) {
			res, err := p.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: p.house.Id, PageSize: size, PageToken: token})
			return idsOf(res.GetThreads()), res.GetNextPageToken(), err
		},
		"environments": func(p person, size int32, token string) (ids []string, next string, err error) {
			res, err := p.Environments.ListEnvironments(ctx, &arbev1.ListEnvironmentsRequest{HouseId: p.house.Id, PageSize: size, PageToken: token})
			return idsOf(res.GetEnvironments()), res.GetNextPageToken(), err
		},
		"sandboxes": func(p person, size int32, token string) (ids []string, next string, err error) {
			res, err := p.Sandboxes.ListSandboxes(ctx, &arbev1.ListSandboxesRequest{HouseId: p.house.Id, PageSize: size, PageToken: token})
			return idsOf(res.GetSandboxes()), res.GetNextPageToken(), err
		},
	}
}

func idsOf[Row interface{ GetId() string }](rows []Row) (ids []string) {
	for _, r := range rows {
		ids = append(ids, r.GetId())
	}
	return ids
}

// walk reads all pages of a list, and calls meanwhile between the first and the second.
func (l paged) walk(t *testing.T, p person, size int32, meanwhile func()) (all []string) {
	t.Helper()
	for token := ""; ; meanwhile() {
		ids, next, err := l(p, size, token)
		must(t, err)
		if next != "" && len(ids) != int(size) || next == "" && len(ids) > int(size) {
			t.Fatalf("a page has %d rows, want %d", len(ids), size)
		}
		if all = append(all, ids...); next == "" {
			return all
		}
		token = next
	}
}

func TestListsComeInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// Create seven more rows of each list with the same time, so that their ids decide their order.
	for i := range 7 {
		b.newHouse(t, b.ada, fmt.Sprint("House ", i))
		b.ada.bot(t)
		b.sandboxes(t, b.ada.house.Id)
		b.ada.thread(t, &arbev1.CreateThreadRequest{})
		b.ada.houseKey(t)
	}
	b.exec(t, "update houses set created_at = '2026-01-01'")
	b.exec(t, "update members set joined_at = '2026-01-01'")
	b.exec(t, "update environments set created_at = '2026-01-01'")
	b.exec(t, "update sandboxes set created_at = '2026-01-01'")
	b.exec(t, "update api_keys set created_at = '2026-01-01'")

	tokens := map[string]string{}
	for name, l := range lists(t) {
		t.Run(name+" are the same in pages of any size", func(t *testing.T) {
			whole := l.walk(t, b.ada, 200, func() {})
			if len(whole) < 7 {
				t.Fatalf("there are %d rows, want at least seven", len(whole))
			}
			for _, size := range []int32{1, 3, int32(len(whole))} {
				if got := l.walk(t, b.ada, size, func() {}); !slices.Equal(got, whole) {
					t.Errorf("in pages of %d they are %q, and at once %q", size, got, whole)
				}
			}
			_, tokens[name], _ = l(b.ada, 1, "")
		})
	}
	tokens["agents"] = tokens["members"] // one list with two names

	for name, l := range lists(t) {
		t.Run(name+" refuse a token that is not theirs", func(t *testing.T) {
			bad := map[string]string{
				"no base64": "%%%", "no JSON": base64.RawURLEncoding.EncodeToString([]byte("{")),
				"an empty place":  base64.RawURLEncoding.EncodeToString([]byte("{}")),
				"a forged id":     forged(name, "2026-01-01T00:00:00Z", `x\u0000'y`),
				"a forged moment": forged(name, "0000-01-01T00:00:00Z", "0000000000"),
			}
			for other, token := range tokens {
				if token != tokens[name] {
					bad["one of "+other] = token
				}
			}
			for what, token := range bad {
				_, _, err := l(b.ada, 3, token)
				if err == nil {
					t.Errorf("%s is taken", what)
					continue
				}
				refused(t, err, connect.CodeInvalidArgument, "page_token")
			}
		})
		t.Run(name+" refuse a page of more than 200", func(t *testing.T) {
			for _, size := range []int32{-1, 201} {
				_, _, err := l(b.ada, size, "")
				refused(t, err, connect.CodeInvalidArgument, "page_size")
			}
		})
		t.Run(name+" end where another house begins", func(t *testing.T) {
			bobs := l.walk(t, b.bob, 200, func() {})
			for _, id := range l.walk(t, b.ada, 200, func() {}) {
				if slices.Contains(bobs, id) {
					t.Errorf("%s is in both houses", id)
				}
			}
		})
	}
}

// forged returns a page token in the server's format whose content the server would never produce.
func forged(list, moment, id string) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"List":%q,"Time":%q,"ID":"%s"}`, list, moment, id))
}

func TestThreadsAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	list := func(t *testing.T, with *arbev1.ListThreadsRequest) []string {
		t.Helper()
		with.HouseId = ada.house.Id
		res, err := ada.Threads.ListThreads(t.Context(), with)
		must(t, err)
		return idsOf(res.Threads)
	}
	primary := ada.house.PrimaryThreadId // it is pinned from the start
	quiet := ada.thread(t, &arbev1.CreateThreadRequest{Tags: []string{"x", "y"}})
	busy := ada.thread(t, &arbev1.CreateThreadRequest{Tags: []string{"x"}})
	child := ada.thread(t, &arbev1.CreateThreadRequest{ParentThreadId: quiet.Id})
	driven := ada.thread(t, &arbev1.CreateThreadRequest{AgentId: ada.bot(t)})
	pinned := ada.thread(t, &arbev1.CreateThreadRequest{Pinned: true})
	ada.say(t, busy.Id, "the latest")

	t.Run("pinned first, the latest pin leading, then by last activity", func(t *testing.T) {
		// The order catches up with the log after a moment.
		want := []string{pinned.Id, primary, busy.Id, driven.Id, child.Id, quiet.Id}
		waitFor(t, func() bool { return slices.Equal(list(t, &arbev1.ListThreadsRequest{}), want) })
	})
	t.Run("by parent, tag and status", func(t *testing.T) {
		for _, c := range []struct {
			with *arbev1.ListThreadsRequest
			want []string
		}{
			{&arbev1.ListThreadsRequest{ParentThreadId: quiet.Id}, []string{child.Id}},
			{&arbev1.ListThreadsRequest{Tag: "x"}, []string{busy.Id, quiet.Id}},
			{&arbev1.ListThreadsRequest{Tag: "none has it"}, nil},
			{&arbev1.ListThreadsRequest{Status: arbev1.ThreadStatus_THREAD_STATUS_IDLE}, []string{driven.Id}},
			{&arbev1.ListThreadsRequest{Tag: "x", Status: arbev1.ThreadStatus_THREAD_STATUS_CLOSED}, nil},
		} {
			if got := list(t, c.with); !slices.Equal(got, c.want) {
				t.Errorf("with %v they are %q, want %q", c.with, got, c.want)
			}
		}
	})
	t.Run("refuses a status that no thread has", func(t *testing.T) {
		_, err := ada.Threads.ListThreads(t.Context(), &arbev1.ListThreadsRequest{HouseId: ada.house.Id, Status: 99})
		refused(t, err, connect.CodeInvalidArgument, "status: 99 is not one of THREAD_STATUS_OPEN, THREAD_STATUS_CLOSED, THREAD_STATUS_IDLE")
	})
}

func TestThreadsAreListedWhileTheyAreUsed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var still, moving []string
	for i := range 24 {
		th := b.ada.thread(t, &arbev1.CreateThreadRequest{Pinned: i%4 == 1})
		if i%2 == 0 {
			moving = append(moving, th.Id)
		} else {
			still = append(still, th.Id)
		}
	}
	threads := lists(t)["threads"]
	turn := 0
	got := threads.walk(t, b.ada, 4, func() {
		// Between two pages some threads become the latest, and another one is created.
		var work sync.WaitGroup
		for i := range 3 {
			work.Go(func() { b.ada.say(t, moving[(3*turn+i)%len(moving)], "meanwhile") })
		}
		work.Wait()
		turn++
		b.ada.thread(t, &arbev1.CreateThreadRequest{})
	})
	slices.Sort(got)
	if once := slices.Compact(slices.Clone(got)); len(once) != len(got) {
		t.Errorf("%d threads came twice", len(got)-len(once))
	}
	for _, id := range still {
		if !slices.Contains(got, id) {
			t.Errorf("%s, which nobody touched, is missing", id)
		}
	}
}
