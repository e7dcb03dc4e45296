package rpc_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// direct returns a person's direct message to an agent.
func (p person) direct(t *testing.T, agent string) *arbev1.Thread {
	t.Helper()
	res, err := p.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: p.house.Id, ParentAgentId: agent, Reuse: true})
	must(t, err)
	return res.Thread
}

func TestADirectMessageIsItsPeoples(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bots, err := b.ada.Bots.ListBots(t.Context(), &arbev1.ListBotsRequest{HouseId: b.ada.house.Id})
	must(t, err)
	helper := bots.Bots[0].Id
	t.Run("with a bot it is one for each person", func(t *testing.T) {
		adas, cyds := b.ada.direct(t, helper), b.cyd.direct(t, helper)
		if adas.Id == cyds.Id || b.ada.direct(t, helper).Id != adas.Id || b.cyd.direct(t, helper).Id != cyds.Id {
			t.Errorf("Ada has %s, and Cyd %s", adas.Id, cyds.Id)
		}
		if len(adas.PeopleAgentIds) != 1 || adas.PeopleAgentIds[0] != b.ada.id {
			t.Errorf("Ada's is listed for %v", adas.PeopleAgentIds)
		}
	})
	t.Run("between people it is one for both, whoever begins", func(t *testing.T) {
		both := b.ada.direct(t, b.cyd.id)
		if other := b.cyd.direct(t, b.ada.id); other.Id != both.Id || len(both.PeopleAgentIds) != 2 {
			t.Errorf("Ada has %v, and Cyd %v", both, other)
		}
		_, err := b.ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: both.Id, Text: "have you a minute?"})
		must(t, err)
		eventually(t, "that Cyd has it", func() bool {
			i, err := b.cyd.Inboxes.GetInbox(t.Context(), &arbev1.GetInboxRequest{HouseId: b.ada.house.Id})
			must(t, err)
			d := i.Inbox.Direct
			return len(d) == 2 && d[0].ThreadId == both.Id && d[0].AgentName == "Ada" && d[0].ThreadName == "have you a minute?"
		})
	})
}

// Lists, searches and watches never show other people's direct messages. They are not secret: whoever has the id can read the
// message.
func TestNothingListsTheDirectMessagesOfOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bots, err := b.ada.Bots.ListBots(t.Context(), &arbev1.ListBotsRequest{HouseId: b.ada.house.Id})
	must(t, err)
	th, house := b.ada.direct(t, bots.Bots[0].Id), b.ada.house.Id
	watch, err := b.cyd.Houses.WatchHouse(t.Context(), &arbev1.WatchHouseRequest{HouseId: house, Threads: 50, Inbox: true})
	must(t, err)
	defer watch.Close()
	seen := make(chan string, 100)
	go func() {
		for watch.Receive() {
			text, _ := protojson.Marshal(watch.Msg())
			seen <- string(text)
		}
	}()
	_, err = b.ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "zebras, and what does @cyd say?"})
	must(t, err)
	_, err = b.ada.Artifacts.CreateArtifact(t.Context(), &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: th.Id}, Kind: "url", Label: "stripes", ExternalId: "https://example.com"})
	must(t, err)
	fork, err := b.ada.Threads.ForkThread(t.Context(), &arbev1.ForkThreadRequest{ThreadId: th.Id})
	must(t, err)
	child, err := b.ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house, ParentThreadId: th.Id, Name: "the child", Tags: []string{"zoo"}})
	must(t, err)
	b.exec(t, `insert into approvals (house_id, id, thread_id, epoch, agent_id, call_id, tool, arguments, expires_at)
		select $1, 'yes', $2, 1, agent_id, 'call', 'say', '{}', now() + interval '1 hour' from bots where house_id = $1 limit 1`, house, th.Id)
	ids := []string{th.Id, fork.Thread.Id, child.Thread.Id}
	asks := func(p person) map[string]func() (proto.Message, error) {
		ctx := t.Context()
		list := func(req *arbev1.ListThreadsRequest) func() (proto.Message, error) {
			req.HouseId = house
			return func() (proto.Message, error) { return p.Threads.ListThreads(ctx, req) }
		}
		return map[string]func() (proto.Message, error){
			"ListThreads":           list(&arbev1.ListThreadsRequest{}),
			"ListThreads, a status": list(&arbev1.ListThreadsRequest{Status: arbev1.ThreadStatus_THREAD_STATUS_OPEN}),
			"ListThreads, a tag":    list(&arbev1.ListThreadsRequest{Tag: "zoo"}),
			"ListThreads, forks":    list(&arbev1.ListThreadsRequest{ForkedFromThreadId: th.Id}),
			"ListThreads, children": list(&arbev1.ListThreadsRequest{ParentThreadId: th.Id}),
			"ListThreads, an id":    list(&arbev1.ListThreadsRequest{Match: th.Id[:8]}),
			"ListThreads, a name":   list(&arbev1.ListThreadsRequest{Match: "the child"}),
			"Search": func() (proto.Message, error) {
				return p.Entries.Search(ctx, &arbev1.SearchRequest{HouseId: house, Query: "zebras"})
			},
			"Search, a name": func() (proto.Message, error) {
				return p.Entries.Search(ctx, &arbev1.SearchRequest{HouseId: house, Query: "child"})
			},
			"ListArtifacts": func() (proto.Message, error) {
				return p.Artifacts.ListArtifacts(ctx, &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_HouseId{HouseId: house}})
			},
			"ListArtifacts, a label": func() (proto.Message, error) {
				return p.Artifacts.ListArtifacts(ctx, &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_HouseId{HouseId: house}, Match: "stripes"})
			},
			"ListApprovals": func() (proto.Message, error) {
				return p.Approvals.ListApprovals(ctx, &arbev1.ListApprovalsRequest{HouseId: house})
			},
			"GetInbox": func() (proto.Message, error) { return p.Inboxes.GetInbox(ctx, &arbev1.GetInboxRequest{HouseId: house}) },
		}
	}
	tells := func(m proto.Message) bool {
		text, err := protojson.Marshal(m)
		must(t, err)
		for _, id := range ids {
			if strings.Contains(string(text), id) {
				return true
			}
		}
		return false
	}
	for name, ask := range asks(b.ada) {
		eventually(t, name+" tells Ada", func() bool {
			m, err := ask()
			must(t, err)
			return tells(m)
		})
	}
	for name, ask := range asks(b.cyd) {
		if m, err := ask(); err != nil || tells(m) {
			t.Errorf("%s tells Cyd %v, %v", name, m, err)
		}
	}
	// A change that everybody sees follows the changes that nobody else sees.
	open, err := b.ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house, Name: "for all"})
	must(t, err)
	for told := ""; !strings.Contains(told, open.Thread.Id); {
		select {
		case told = <-seen:
		case <-time.After(2 * time.Minute):
			t.Fatal("Cyd is not told of a thread for all")
		}
		for _, id := range ids {
			if strings.Contains(told, id) {
				t.Errorf("WatchHouse tells Cyd %s", told)
			}
		}
	}
	got, err := b.cyd.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: th.Id})
	if err != nil || len(got.Thread.PeopleAgentIds) != 1 {
		t.Errorf("who has the id gets %v, %v", got, err)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}
