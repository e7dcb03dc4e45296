package rpc_test

import (
	"math"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestHouse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada

	t.Run("is made with its owner, a pinned primary thread that tells of it, and a default environment", func(t *testing.T) {
		h := b.newHouse(t, ada, " <i>Workshop</i> ")
		if h.Name != "<i>Workshop</i>" || h.Role != "owner" {
			t.Errorf("it is %v", h)
		}
		primary, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: h.PrimaryThreadId})
		must(t, err)
		if primary.Thread.PinnedAt == nil || primary.Thread.HouseId != h.Id {
			t.Errorf("its primary thread is %v", primary.Thread)
		}
		if log := ada.log(t, h.PrimaryThreadId); len(log) != 1 || log[0].Type != "signal.house.created" || log[0].AuthorAgentId != "" {
			t.Errorf("the log is %v", log)
		}
		env, err := ada.Environments.GetEnvironment(t.Context(), &arbev1.GetEnvironmentRequest{Id: h.DefaultEnvironmentId})
		must(t, err)
		if env.Environment.Config.Driver != "local" {
			t.Errorf("its environment is %v", env.Environment)
		}
		members, err := ada.Houses.ListMembers(t.Context(), &arbev1.ListMembersRequest{HouseId: h.Id})
		must(t, err)
		if len(members.Members) != 2+len(bot.Coding) || members.Members[0].Agent.Id != ada.id || members.Members[0].Role != "owner" || members.Members[1].Agent.Name != "arbe" {
			t.Errorf("its members are %v", members.Members)
		}
	})
	t.Run("shows each member their role", func(t *testing.T) {
		got, err := b.cyd.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: ada.house.Id})
		must(t, err)
		if got.House.Role != "member" {
			t.Errorf("Cyd is its %s", got.House.Role)
		}
	})
	t.Run("takes another default environment, or none, but no other house's", func(t *testing.T) {
		h := b.newHouse(t, ada, "Lab")
		set := func(id string) (*arbev1.UpdateHouseResponse, error) {
			return ada.Houses.UpdateHouse(t.Context(), &arbev1.UpdateHouseRequest{Id: h.Id, DefaultEnvironmentId: &id})
		}
		for _, id := range []string{b.bob.house.DefaultEnvironmentId, ada.house.DefaultEnvironmentId, "nosuchenv"} {
			_, err := set(id)
			refused(t, err, connect.CodeNotFound, "default_environment_id")
		}
		if res, err := set(""); err != nil || res.House.DefaultEnvironmentId != "" || res.House.Name != "Lab" {
			t.Errorf("without one it is %v, %v", res, err)
		}
		if res, err := set(h.DefaultEnvironmentId); err != nil || res.House.DefaultEnvironmentId != h.DefaultEnvironmentId {
			t.Errorf("with one it is %v, %v", res, err)
		}
	})
	t.Run("limits what its bots cost in a day", func(t *testing.T) {
		h := b.newHouse(t, ada, "Thrift")
		set := func(by *arbe.Client, usd float64) error {
			res, err := by.Houses.UpdateHouse(t.Context(), &arbev1.UpdateHouseRequest{Id: h.Id, Limits: &arbev1.HouseLimits{HouseUsdDay: usd}})
			if err == nil && (res.House.Limits.GetHouseUsdDay() != usd || res.House.Name != "Thrift") {
				t.Errorf("after %g it is %v", usd, res.House)
			}
			return err
		}
		limit := func() (set, used, limit float64) {
			t.Helper()
			got, err := ada.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: h.Id, Usage: true})
			must(t, err)
			return got.House.Limits.GetHouseUsdDay(), got.UsedToday.GetUsd(), got.UsedToday.GetUsdLimit()
		}
		if set, used, limit := limit(); set != 0 || used != 0 || limit != 50 {
			t.Errorf("at first %g is set, and %g of %g used", set, used, limit)
		}
		must(t, set(ada.Client, 0.25))
		// Calls of another house, and those before midnight UTC, do not count.
		b.exec(t, `insert into model_calls (house_id, thread_id, turn_id, id, agent_id, model, input, output, cache_read, cache_write, cost_micros, cost_known, estimated, made_at)
			select v.house, 'deleted', 'turn', v.id, $2, 'fake/one', 1, 1, 0, 0, v.cost, v.known, false, v.at
			from (values ($1, 'a', 100000, true, now()), ($1, 'b', 20000, true, now()), ($1, 'c', 0, false, now()), ($3, 'd', 7000000, true, now()),
				($1, 'e', 5000000, true, date_trunc('day', now() at time zone 'utc') at time zone 'utc' - interval '1 second')) as v (house, id, cost, known, at)`,
			h.Id, ada.id, ada.house.Id)
		b.exec(t, `insert into spending (house_id, day, thread_id, own_micros, cost_unknown, calls)
			select house_id, (made_at at time zone 'utc')::date, thread_id, sum(cost_micros), bool_or(not cost_known), count(*) from model_calls group by 1, 2, 3`)
		if set, used, limit := limit(); set != 0.25 || used != 0.12 || limit != 0.25 {
			t.Errorf("then %g is set, and %g of %g used", set, used, limit)
		}
		got, err := ada.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: h.Id, Usage: true})
		must(t, err)
		if u := got.UsedToday; !u.UsdUnknown || u.Calls != 3 {
			t.Errorf("what was used is %v", u)
		}
		if got, err = ada.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: h.Id}); err != nil || got.UsedToday != nil {
			t.Errorf("unasked, it says %v (%v)", got, err)
		}
		for _, usd := range []float64{-1, 100_001, math.Inf(1), math.NaN()} {
			refused(t, set(ada.Client, usd), connect.CodeInvalidArgument, "house_usd_day")
		}
		b.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", h.Id, b.cyd.id)
		refused(t, set(b.cyd.Client, 99), connect.CodePermissionDenied)
		refused(t, set(b.bob.Client, 99), connect.CodeNotFound)
		if set, _, _ := limit(); set != 0.25 {
			t.Errorf("after refusals %g is set", set)
		}
		must(t, set(ada.Client, 0))
		if set, _, limit := limit(); set != 0 || limit != 50 {
			t.Errorf("after a reset %g is set, of %g", set, limit)
		}
	})
	t.Run("and an agent have a name of one line", func(t *testing.T) {
		for _, name := range []string{"", "   ", "two\nlines", strings.Repeat("x", 101)} {
			_, create := ada.Houses.CreateHouse(t.Context(), &arbev1.CreateHouseRequest{Name: name})
			_, update := ada.Houses.UpdateHouse(t.Context(), &arbev1.UpdateHouseRequest{Id: ada.house.Id, Name: &name})
			_, agent := ada.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: ada.house.Id, Name: name, Runtime: "pi"})
			for _, err := range []error{create, update, agent} {
				refused(t, err, connect.CodeInvalidArgument, "name")
			}
		}
	})
}

func TestAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("a bot is a member of the house it is made in", func(t *testing.T) {
		made, err := b.ada.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: b.ada.house.Id, Name: "Coder", Runtime: "codex"})
		must(t, err)
		if a := made.Agent; a.Kind != "bot" || a.Runtime != "codex" || a.Name != "Coder" {
			t.Errorf("it is %v", a)
		}
		got, err := b.cyd.Agents.GetAgent(t.Context(), &arbev1.GetAgentRequest{HouseId: b.cyd.house.Id, Id: made.Agent.Id})
		must(t, err)
		members, err := b.cyd.Houses.ListMembers(t.Context(), &arbev1.ListMembersRequest{HouseId: b.cyd.house.Id})
		must(t, err)
		if last := members.Members[len(members.Members)-1]; last.Agent.Id != got.Agent.Id || last.Role != "member" {
			t.Errorf("the last member is %v", last)
		}
	})
	t.Run("runs a coding agent that is known", func(t *testing.T) {
		for _, runtime := range []string{"", "emacs"} {
			_, err := b.ada.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: b.ada.house.Id, Name: "Bot", Runtime: runtime})
			refused(t, err, connect.CodeInvalidArgument, "runtime")
		}
	})
	t.Run("of another house is not there", func(t *testing.T) {
		for _, id := range []string{b.bob.id, uuid.NewString()} {
			_, err := b.ada.Agents.GetAgent(t.Context(), &arbev1.GetAgentRequest{HouseId: b.ada.house.Id, Id: id})
			refused(t, err, connect.CodeNotFound, "there is no such agent in this house")
		}
	})
}

func TestAHouseIsWatchedWhileOneIsInIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stream, err := b.cyd.Houses.WatchHouse(t.Context(), &arbev1.WatchHouseRequest{HouseId: b.ada.house.Id, Threads: 1, Members: true})
	must(t, err)
	defer stream.Close()
	until := func(is func(*arbev1.WatchHouseResponse) bool) {
		t.Helper()
		for stream.Receive() {
			if is(stream.Msg()) {
				return
			}
		}
		t.Fatal(stream.Err())
	}
	until(func(e *arbev1.WatchHouseResponse) bool { return e.GetCaughtUp() != nil })
	made := b.ada.thread(t, &arbev1.CreateThreadRequest{Name: "second"})
	t.Run("the rest of its threads is a page of the list", func(t *testing.T) {
		var rest string
		until(func(e *arbev1.WatchHouseResponse) bool { rest = e.GetRest().GetPageToken(); return rest != "" })
		res, err := b.cyd.Threads.ListThreads(t.Context(), &arbev1.ListThreadsRequest{HouseId: b.ada.house.Id, PageToken: rest})
		must(t, err)
		if ids := idsOf(res.Threads); len(ids) != 1 || ids[0] != made.Id {
			t.Errorf("it has %v", ids)
		}
	})
	t.Run("it ends with the membership", func(t *testing.T) {
		b.exec(t, "delete from members where agent_id = $1", b.cyd.id)
		for stream.Receive() {
		}
		refused(t, stream.Err(), connect.CodeNotFound)
	})
}
