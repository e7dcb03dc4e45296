package rpc_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestThread(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	bot := ada.bot(t)

	t.Run("without an edge is a root of its house, an open chat with an empty log", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		if th.Parent.Kind != "house" || th.Parent.Id != ada.house.Id || th.ParentThreadId != "" || th.ParentAgentId != "" {
			t.Errorf("its parent is %v", th.Parent)
		}
		if th.Status != arbev1.ThreadStatus_THREAD_STATUS_OPEN || th.Tail != 0 || th.Name != "" || th.StreamId != "arbe-thread-"+th.Id || th.HouseId != ada.house.Id {
			t.Errorf("it is %v", th)
		}
	})
	t.Run("with a parent thread is its child", func(t *testing.T) {
		root := ada.thread(t, &arbev1.CreateThreadRequest{})
		th := ada.thread(t, &arbev1.CreateThreadRequest{ParentThreadId: root.Id})
		if th.Parent.Kind != "thread" || th.Parent.Id != root.Id || th.ParentThreadId != root.Id {
			t.Errorf("its parent is %v", th.Parent)
		}
	})
	t.Run("with a parent agent is a direct message to it, and a chat", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{ParentAgentId: bot})
		if th.Parent.Kind != "agent" || th.Parent.Id != bot || th.ParentAgentId != bot || th.AgentId != "" || th.Status != arbev1.ThreadStatus_THREAD_STATUS_OPEN {
			t.Errorf("it is %v", th)
		}
	})
	t.Run("with a driving agent is idle", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{AgentId: bot})
		if th.AgentId != bot || th.Status != arbev1.ThreadStatus_THREAD_STATUS_IDLE || th.Parent.Kind != "house" {
			t.Errorf("it is %v", th)
		}
	})
	t.Run("has at most one parent", func(t *testing.T) {
		root := ada.thread(t, &arbev1.CreateThreadRequest{})
		_, err := ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: ada.house.Id, ParentThreadId: root.Id, ParentAgentId: bot})
		refused(t, err, connect.CodeInvalidArgument, "at most one parent")
	})
	t.Run("can be renamed, pinned, tagged and given an environment, each by itself", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{Name: "  first  ", Tags: []string{"a", " b ", "a"}, Pinned: true})
		if th.Name != "first" || !slices.Equal(th.Tags, []string{"a", "b"}) || th.PinnedAt == nil {
			t.Fatalf("it is %v", th)
		}
		pinned := th.PinnedAt
		for _, change := range []*arbev1.UpdateThreadRequest{
			{Name: new("second")},
			{Pinned: new(true)}, // it is already pinned, and the pin stays where it was
			{Tags: &arbev1.Tags{Values: []string{"c"}}},
			{EnvironmentId: &ada.house.DefaultEnvironmentId},
		} {
			th = ada.update(t, th.Id, change)
		}
		if th.Name != "second" || !slices.Equal(th.Tags, []string{"c"}) || th.EnvironmentId != ada.house.DefaultEnvironmentId || !th.PinnedAt.AsTime().Equal(pinned.AsTime()) {
			t.Errorf("it is %v", th)
		}
		th = ada.update(t, th.Id, &arbev1.UpdateThreadRequest{Name: new(""), Pinned: new(false), Tags: &arbev1.Tags{}, EnvironmentId: new("")})
		if th.Name != "" || th.PinnedAt != nil || len(th.Tags) != 0 || th.EnvironmentId != "" {
			t.Errorf("emptied it is %v", th)
		}
	})
	t.Run("keeps markup in its name and tags as it was written", func(t *testing.T) {
		const html = `<script>alert("1")</script> & <b>`
		th := ada.thread(t, &arbev1.CreateThreadRequest{Name: html, Tags: []string{html}})
		got, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: th.Id})
		must(t, err)
		if got.Thread.Name != html || got.Thread.Tags[0] != html {
			t.Errorf("the name is %q, the tags are %q", got.Thread.Name, got.Thread.Tags)
		}
	})
	t.Run("refuses a name that is not one line of at most 200 characters, naming the field", func(t *testing.T) {
		for _, name := range []string{"two\nlines", "bell\a", "nul\x00", strings.Repeat("ö", 201)} {
			_, err := ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: ada.house.Id, Name: name})
			refused(t, err, connect.CodeInvalidArgument, "name")
		}
		ada.thread(t, &arbev1.CreateThreadRequest{Name: strings.Repeat("ö", 200)})
	})
	t.Run("refuses an edge to what is not in its house, naming the field", func(t *testing.T) {
		bobs, bobsBot := b.bob.thread(t, &arbev1.CreateThreadRequest{}), b.bob.bot(t)
		for field, requests := range map[string][]*arbev1.CreateThreadRequest{
			"parent_thread_id": {{ParentThreadId: bobs.Id}, {ParentThreadId: "nosuchthread"}},
			"parent_agent_id":  {{ParentAgentId: bobsBot}, {ParentAgentId: b.bob.id}, {ParentAgentId: uuid.NewString()}},
			"agent_id":         {{AgentId: bobsBot}, {AgentId: uuid.NewString()}},
			"environment_id":   {{EnvironmentId: b.bob.house.DefaultEnvironmentId}, {EnvironmentId: "nosuchenv"}},
		} {
			for _, req := range requests {
				req.HouseId = ada.house.Id
				_, err := ada.Threads.CreateThread(t.Context(), req)
				refused(t, err, connect.CodeNotFound, field+": the house has none")
			}
		}
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		_, err := ada.Threads.UpdateThread(t.Context(), &arbev1.UpdateThreadRequest{Id: th.Id, EnvironmentId: &b.bob.house.DefaultEnvironmentId})
		refused(t, err, connect.CodeNotFound, "environment_id: the house has none")
	})
	t.Run("refuses a NUL byte wherever a text may stand", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		_, get := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: "a\x00b"})
		_, list := ada.Threads.ListThreads(t.Context(), &arbev1.ListThreadsRequest{HouseId: ada.house.Id, Tag: "a\x00b"})
		_, edge := ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: ada.house.Id, ParentThreadId: "a\x00b"})
		_, gone := ada.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: "a\x00b"})
		_, cancel := ada.Threads.CancelCommand(t.Context(), &arbev1.CancelCommandRequest{ThreadId: th.Id, CommandId: "a\x00b"})
		for _, err := range []error{get, list, edge, gone, cancel} {
			refused(t, err, connect.CodeInvalidArgument, "NUL byte")
		}
	})
}

func TestForkingAThread(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, cyd := b.ada, b.cyd
	source := ada.thread(t, &arbev1.CreateThreadRequest{Name: "fix login", Tags: []string{"web"}})
	for _, text := range []string{"one", "two", "three"} {
		ada.say(t, source.Id, text)
	}
	fork := func(t *testing.T, p person, req *arbev1.ForkThreadRequest) *arbev1.Thread {
		t.Helper()
		req.ThreadId = source.Id
		res, err := p.Threads.ForkThread(t.Context(), req)
		must(t, err)
		return res.Thread
	}
	texts := func(log []*arbev1.Entry) (all []string) {
		for _, e := range log {
			all = append(all, fmt.Sprint(e.Seq, " ", e.Type, " ", e.Payload))
		}
		return all
	}

	t.Run("by any member makes one that begins as it is, and says where it comes from", func(t *testing.T) {
		th := fork(t, cyd, &arbev1.ForkThreadRequest{At: 2, Name: "another way"})
		if th.Name != "another way" || th.ForkedFrom.GetThreadId() != source.Id || th.ForkedFrom.GetSeq() != 2 || th.Tail != 3 || th.HouseId != ada.house.Id || th.Status != arbev1.ThreadStatus_THREAD_STATUS_OPEN {
			t.Errorf("it is %v", th)
		}
		cyd.say(t, th.Id, "mine")
		want := []string{"1 chat " + chat("one"), "2 chat " + chat("two"), fmt.Sprintf(`3 signal.thread.forked {"thread_id":%q,"seq":2}`, source.Id), "4 chat " + chat("mine")}
		if got := texts(ada.log(t, th.Id)); !slices.Equal(got, want) {
			t.Errorf("it says %q", got)
		}
		if got := ada.log(t, source.Id); len(got) != 3 {
			t.Errorf("its source says %q", texts(got))
		}
	})
	t.Run("again with the same id is the same fork", func(t *testing.T) {
		first := fork(t, ada, &arbev1.ForkThreadRequest{Id: "forkfork1"})
		if again := fork(t, ada, &arbev1.ForkThreadRequest{Id: "forkfork1"}); again.Id != first.Id || again.Tail != first.Tail {
			t.Errorf("it is %v", again)
		}
		_, err := ada.Threads.ForkThread(t.Context(), &arbev1.ForkThreadRequest{ThreadId: source.Id, Id: "forkfork1", At: 1})
		refused(t, err, connect.CodeAlreadyExists, "already used")
	})
	t.Run("where there is no entry is refused", func(t *testing.T) {
		_, err := ada.Threads.ForkThread(t.Context(), &arbev1.ForkThreadRequest{ThreadId: source.Id, At: 4})
		refused(t, err, connect.CodeOutOfRange, "position 4 is past the end: the last entry is at 3")
		_, err = ada.Threads.ForkThread(t.Context(), &arbev1.ForkThreadRequest{ThreadId: source.Id, At: -1})
		refused(t, err, connect.CodeInvalidArgument, "at")
		_, err = ada.Threads.ForkThread(t.Context(), &arbev1.ForkThreadRequest{ThreadId: source.Id, Id: "No"})
		refused(t, err, connect.CodeInvalidArgument, "id")
	})
	t.Run("is found by its source while that is there, and is whole when it is not", func(t *testing.T) {
		other := ada.thread(t, &arbev1.CreateThreadRequest{})
		ada.say(t, other.Id, "kept")
		res, err := ada.Threads.ForkThread(t.Context(), &arbev1.ForkThreadRequest{ThreadId: other.Id})
		must(t, err)
		list, err := ada.Threads.ListThreads(t.Context(), &arbev1.ListThreadsRequest{HouseId: ada.house.Id, ForkedFromThreadId: other.Id})
		must(t, err)
		if len(list.Threads) != 1 || list.Threads[0].Id != res.Thread.Id {
			t.Errorf("its forks are %v", list.Threads)
		}
		_, err = ada.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: other.Id})
		must(t, err)
		got, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: res.Thread.Id})
		must(t, err)
		if from := got.Thread.ForkedFrom; from == nil || from.ThreadId != "" || from.Seq != 1 {
			t.Errorf("it comes from %v", from)
		}
		if log := ada.log(t, res.Thread.Id); len(log) != 2 || log[0].Payload != chat("kept") {
			t.Errorf("it says %q", texts(log))
		}
	})
}

func TestCreatingAThreadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada

	t.Run("with its id returns the thread that is there", func(t *testing.T) {
		first := ada.thread(t, &arbev1.CreateThreadRequest{Id: "again000", Name: "first"})
		ada.say(t, first.Id, "hello")
		again := ada.thread(t, &arbev1.CreateThreadRequest{Id: "again000", Name: "second"})
		if again.Id != first.Id || again.Name != "first" || again.Tail != 1 {
			t.Errorf("it is %v", again)
		}
	})
	t.Run("at the same time makes one", func(t *testing.T) {
		var work sync.WaitGroup
		ids := make([]string, 8)
		for i := range ids {
			work.Go(func() {
				res, err := ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: ada.house.Id, Id: "together0"})
				if ids[i] = res.GetThread().GetId(); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if len(slices.Compact(ids)) != 1 {
			t.Errorf("they are %v", ids)
		}
	})
	t.Run("while the first is not committed waits for it, and returns it", func(t *testing.T) {
		made := ada.thread(t, &arbev1.CreateThreadRequest{Id: "underway"})
		_, err := ada.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: made.Id})
		must(t, err)
		first, err := b.owner.Begin(t.Context())
		must(t, err)
		defer first.Rollback(t.Context())
		_, err = first.Exec(t.Context(), `
			with s as (insert into streams (house_id, name) values ($1, 'arbe-thread-' || $2))
			insert into threads (id, house_id, stream_id, name) values ($2, $1, 'arbe-thread-' || $2, 'first')`, ada.house.Id, made.Id)
		must(t, err)
		second := make(chan error)
		go func() {
			res, err := ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: ada.house.Id, Id: "underway"})
			if err == nil && res.Thread.Name != "first" {
				err = fmt.Errorf("it is %v", res.Thread)
			}
			second <- err
		}()
		for !ask[bool](t, b, "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')") {
			select {
			case err := <-second:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
		}
		must(t, first.Commit(t.Context()))
		must(t, <-second)
	})
	t.Run("with a word or an id of another house's makes one, as if there were none", func(t *testing.T) {
		bobs := b.bob.thread(t, &arbev1.CreateThreadRequest{Id: "bobs0000", Name: "Bob's secret"})
		for _, id := range []string{"bobs0000", bobs.Id} {
			own := ada.thread(t, &arbev1.CreateThreadRequest{Id: id})
			if own.Id == bobs.Id || own.HouseId != ada.house.Id || own.Name != "" {
				t.Errorf("it is %v", own)
			}
			if again := ada.thread(t, &arbev1.CreateThreadRequest{Id: id}); again.Id != own.Id {
				t.Errorf("again it is %v", again)
			}
		}
	})
	t.Run("takes ids of lower case letters and digits", func(t *testing.T) {
		for _, id := range []string{"short", "UPPER000", "with-dash", "../../etc", strings.Repeat("x", 33)} {
			_, err := ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: ada.house.Id, Id: id})
			refused(t, err, connect.CodeInvalidArgument, "id")
		}
	})
}

func TestThreadStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada

	t.Run("changes together with the entry that tells it, written by who did it", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		th = ada.update(t, th.Id, &arbev1.UpdateThreadRequest{Status: arbev1.ThreadStatus_THREAD_STATUS_CLOSED.Enum()})
		th = ada.update(t, th.Id, &arbev1.UpdateThreadRequest{Status: arbev1.ThreadStatus_THREAD_STATUS_CLOSED.Enum()}) // no change, no entry
		th = ada.update(t, th.Id, &arbev1.UpdateThreadRequest{Status: arbev1.ThreadStatus_THREAD_STATUS_OPEN.Enum()})
		var logged []string
		for _, e := range ada.log(t, th.Id) {
			if e.Type != "signal.thread.status_changed" || e.AuthorAgentId != ada.id {
				t.Errorf("the log has %v", e)
			}
			logged = append(logged, e.Payload)
		}
		if want := []string{`{"from":"open","to":"closed"}`, `{"from":"closed","to":"open"}`}; !slices.Equal(logged, want) || th.Status != arbev1.ThreadStatus_THREAD_STATUS_OPEN {
			t.Errorf("it is %s, and the log has %q", th.Status, logged)
		}
	})
	t.Run("closed by many at once changes once", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				if _, err := ada.Threads.UpdateThread(t.Context(), &arbev1.UpdateThreadRequest{Id: th.Id, Status: arbev1.ThreadStatus_THREAD_STATUS_CLOSED.Enum()}); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if log := ada.log(t, th.Id); len(log) != 1 {
			t.Errorf("the log has %d changes", len(log))
		}
	})
	t.Run("stays, with everything else of the change, when the entry cannot be written", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{Name: "before"})
		b.exec(t, "update streams set closed_at = now() where name = $1", th.StreamId)
		_, err := ada.Threads.UpdateThread(t.Context(), &arbev1.UpdateThreadRequest{Id: th.Id, Name: new("after"), Status: arbev1.ThreadStatus_THREAD_STATUS_CLOSED.Enum()})
		refused(t, err, connect.CodeFailedPrecondition, "is closed")
		got, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: th.Id})
		must(t, err)
		if got.Thread.Status != arbev1.ThreadStatus_THREAD_STATUS_OPEN || got.Thread.Name != "before" || got.Thread.Tail != 0 {
			t.Errorf("it is %v", got.Thread)
		}
	})
	t.Run("of a driven thread is none that people set", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{AgentId: ada.bot(t)})
		_, err := ada.Threads.UpdateThread(t.Context(), &arbev1.UpdateThreadRequest{Id: th.Id, Status: arbev1.ThreadStatus_THREAD_STATUS_CLOSED.Enum()})
		refused(t, err, connect.CodeFailedPrecondition, "idle cannot become closed")
		for _, status := range []arbev1.ThreadStatus{arbev1.ThreadStatus_THREAD_STATUS_RUNNING, arbev1.ThreadStatus_THREAD_STATUS_COMPLETED, 0, 99} {
			_, err := ada.Threads.UpdateThread(t.Context(), &arbev1.UpdateThreadRequest{Id: th.Id, Status: &status})
			refused(t, err, connect.CodeInvalidArgument, "status: "+status.String()+" is not one of THREAD_STATUS_OPEN, THREAD_STATUS_CLOSED")
		}
		if log := ada.log(t, th.Id); len(log) != 0 {
			t.Errorf("the log reports %v", log)
		}
	})
}

func TestDeletingAThread(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada

	t.Run("takes its log and its children with it, and can be repeated", func(t *testing.T) {
		root := ada.thread(t, &arbev1.CreateThreadRequest{})
		child := ada.thread(t, &arbev1.CreateThreadRequest{ParentThreadId: root.Id})
		grandchild := ada.thread(t, &arbev1.CreateThreadRequest{ParentThreadId: child.Id})
		sibling := ada.thread(t, &arbev1.CreateThreadRequest{})
		family := []string{root.Id, child.Id, grandchild.Id}
		for _, id := range append(family, sibling.Id) {
			ada.say(t, id, "hello")
		}
		for range 2 {
			_, err := ada.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: root.Id})
			must(t, err)
		}
		for _, id := range family {
			_, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: id})
			refused(t, err, connect.CodeNotFound, "there is no thread")
		}
		if n := ask[int](t, b, `select (select count(*) from streams where name = any ($1)) +
			(select count(*) from entries e where not exists (select from streams s where s.id = e.stream_id))`,
			[]string{root.StreamId, child.StreamId, grandchild.StreamId}); n != 0 {
			t.Errorf("%d rows of their logs are left", n)
		}
		if log := ada.log(t, sibling.Id); len(log) != 1 {
			t.Errorf("the sibling's log is %v", log)
		}
	})
	t.Run("is refused for the house's own", func(t *testing.T) {
		_, err := ada.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: ada.house.PrimaryThreadId})
		refused(t, err, connect.CodeFailedPrecondition, "primary thread of the house")
		if log := ada.log(t, ada.house.PrimaryThreadId); len(log) == 0 {
			t.Error("its log is gone")
		}
	})
	t.Run("leaves its id to a new one, with an empty log", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{Id: "reborn00"})
		ada.say(t, th.Id, "in the first life")
		_, err := ada.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: th.Id})
		must(t, err)
		if th = ada.thread(t, &arbev1.CreateThreadRequest{Id: "reborn00"}); th.Tail != 0 || len(ada.log(t, th.Id)) != 0 {
			t.Errorf("it is %v", th)
		}
	})
}

// update changes a thread.
func (p person) update(t *testing.T, thread string, change *arbev1.UpdateThreadRequest) *arbev1.Thread {
	t.Helper()
	change.Id = thread
	res, err := p.Threads.UpdateThread(t.Context(), change)
	must(t, err)
	return res.Thread
}

// bot adds a bot to p's house and returns its id.
func (p person) bot(t *testing.T) string {
	t.Helper()
	res, err := p.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: p.house.Id, Name: "Pi", Runtime: "pi"})
	must(t, err)
	return res.Agent.Id
}

func TestThreadsAreFoundByTheBeginningOfTheirIDsAndByTheirNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	one := ada.thread(t, &arbev1.CreateThreadRequest{Name: "Fix the build"})
	two := ada.thread(t, &arbev1.CreateThreadRequest{Name: "Fix the build"})
	theirs := b.bob.thread(t, &arbev1.CreateThreadRequest{Name: "Fix the build"})
	find := func(t *testing.T, match string) (ids []string) {
		t.Helper()
		res, err := ada.Threads.ListThreads(t.Context(), &arbev1.ListThreadsRequest{HouseId: ada.house.Id, Match: match})
		must(t, err)
		for _, th := range res.Threads {
			ids = append(ids, th.Id)
		}
		return ids
	}
	for match, want := range map[string][]string{
		one.Id:              {one.Id},
		one.Id[:6]:          {one.Id},
		one.Id[:3]:          nil,
		one.Id + "x":        nil,
		"Fix the build":     {two.Id, one.Id},
		"fix the build":     nil,
		"Fix":               nil,
		theirs.Id:           nil,
		"%":                 nil,
		one.Id[:4] + "%":    nil,
		"____":              nil,
		"nosuchthing\u00e9": nil,
	} {
		got := find(t, match)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q finds %q, want %q", match, got, want)
		}
	}
	_, err := ada.Threads.ListThreads(t.Context(), &arbev1.ListThreadsRequest{HouseId: ada.house.Id, Match: one.Id, Tag: "x"})
	refused(t, err, connect.CodeInvalidArgument, "match")
	_, err = b.bob.Threads.ListThreads(t.Context(), &arbev1.ListThreadsRequest{HouseId: ada.house.Id, Match: one.Id})
	refused(t, err, connect.CodeNotFound)
}
