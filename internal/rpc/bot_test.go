package rpc_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func (p person) createBot(t *testing.T, req *arbev1.CreateBotRequest) *arbev1.Bot {
	t.Helper()
	req.HouseId = p.house.Id
	made, err := p.Bots.CreateBot(t.Context(), req)
	must(t, err)
	return made.Bot
}

func TestBots(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	made := ada.createBot(t, &arbev1.CreateBotRequest{Handle: "@Helper", Instructions: "Help.", Tools: &arbev1.Names{Values: []string{"say"}}, Limits: &arbev1.BotLimits{TurnUsd: 0.5}})
	t.Run("its effort must exist, and limits of its model are reported", func(t *testing.T) {
		thinker, err := ada.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: ada.house.Id, Handle: "thinker", Model: "openai/gpt-4.1", Think: "High"})
		must(t, err)
		if thinker.Bot.Think != "high" {
			t.Errorf("it is %v", thinker)
		}
		for _, word := range []string{"very", "0"} {
			_, err := ada.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: ada.house.Id, Handle: "other", Think: word})
			_, changeErr := ada.Bots.UpdateBot(t.Context(), &arbev1.UpdateBotRequest{HouseId: ada.house.Id, Id: thinker.Bot.Id, Think: &word})
			for _, err := range []error{err, changeErr} {
				if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "there is no effort") {
					t.Errorf("%q: %v", word, err)
				}
			}
		}
		changed, err := ada.Bots.UpdateBot(t.Context(), &arbev1.UpdateBotRequest{HouseId: ada.house.Id, Id: thinker.Bot.Id, Think: new("")})
		must(t, err)
		if changed.Bot.Think != "" || changed.Note != "" || changed.Bot.Model != "openai/gpt-4.1" {
			t.Errorf("it is changed to %v", changed)
		}
		_, err = ada.Bots.DeleteBot(t.Context(), &arbev1.DeleteBotRequest{HouseId: ada.house.Id, Id: thinker.Bot.Id})
		must(t, err)
	})
	t.Run("a change that another one overtook is refused", func(t *testing.T) {
		edited := ada.createBot(t, &arbev1.CreateBotRequest{Handle: "edited", Instructions: "Help."})
		update := func(etag, instructions string) (*arbev1.Bot, error) {
			res, err := ada.Bots.UpdateBot(t.Context(), &arbev1.UpdateBotRequest{HouseId: ada.house.Id, Id: edited.Id, Etag: etag, Instructions: &instructions})
			return res.GetBot(), err
		}
		second, err := update(edited.Etag, "Help much.")
		must(t, err)
		if _, err := update(edited.Etag, "Help little."); connect.CodeOf(err) != connect.CodeAborted || !strings.Contains(err.Error(), "changed this bot since you read it") {
			t.Errorf("the second of two changes of one version: %v", err)
		}
		got, err := ada.Bots.GetBot(t.Context(), &arbev1.GetBotRequest{HouseId: ada.house.Id, Which: &arbev1.GetBotRequest_Id{Id: edited.Id}})
		must(t, err)
		if got.Bot.Instructions != "Help much." || got.Bot.Etag != second.Etag || second.Etag == edited.Etag {
			t.Errorf("the bot is %v", got.Bot)
		}
		for _, etag := range []string{second.Etag, ""} {
			if _, err := update(etag, "Help again, "+etag); err != nil {
				t.Errorf("with the etag %q: %v", etag, err)
			}
		}
		_, err = ada.Bots.DeleteBot(t.Context(), &arbev1.DeleteBotRequest{HouseId: ada.house.Id, Id: edited.Id})
		must(t, err)
	})
	t.Run("a bot is what was asked for", func(t *testing.T) {
		if made.Handle != "helper" || made.Name != "helper" || made.Runtime != "arbe" || made.Limits.TurnUsd != 0.5 || !slices.Equal(made.Tools, []string{"say"}) || len(made.Policies) != 2 {
			t.Errorf("it is %v", made)
		}
		for _, req := range []*arbev1.GetBotRequest{{Which: &arbev1.GetBotRequest_Id{Id: made.Id}}, {Which: &arbev1.GetBotRequest_Handle{Handle: "@HELPER"}}} {
			req.HouseId = ada.house.Id
			if got, err := b.cyd.Bots.GetBot(t.Context(), req); err != nil || got.Bot.Id != made.Id || got.Bot.Instructions != "Help." {
				t.Errorf("a member reads %v: %v", got, err)
			}
		}
	})
	t.Run("every bot has a row, even one that was created as an agent", func(t *testing.T) {
		agent, err := ada.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: ada.house.Id, Name: "Coder", Runtime: "codex"})
		must(t, err)
		got, err := ada.Bots.GetBot(t.Context(), &arbev1.GetBotRequest{HouseId: ada.house.Id, Which: &arbev1.GetBotRequest_Handle{Handle: "coder"}})
		if err != nil || got.Bot.Id != agent.Agent.Id || got.Bot.Runtime != "codex" || len(got.Bot.Tools) != len(entry.DefaultTools) {
			t.Errorf("it is %v: %v", got, err)
		}
	})
	t.Run("they are listed in pages, by handle", func(t *testing.T) {
		var handles []string
		for token := ""; ; {
			page, err := ada.Bots.ListBots(t.Context(), &arbev1.ListBotsRequest{HouseId: ada.house.Id, PageSize: 1, PageToken: token})
			must(t, err)
			for _, listed := range page.Bots {
				handles = append(handles, listed.Handle)
			}
			if token = page.NextPageToken; token == "" {
				break
			}
		}
		if !slices.Equal(handles, []string{"arbe", "claude", "coder", "codex", "helper", "pi"}) {
			t.Errorf("they are %q", handles)
		}
	})
	t.Run("bad input is refused with its field", func(t *testing.T) {
		for says, req := range map[string]*arbev1.CreateBotRequest{
			"instructions: at most 64 KiB": {Handle: "x", Instructions: strings.Repeat("x", 1<<20)},
			"model: ":                      {Handle: "x", Model: "gpt-5"},
			"tools: ":                      {Handle: "x", Tools: &arbev1.Names{Values: []string{"format_disk"}}},
			"handle: ":                     {Handle: "h éllo"},
			"reserved":                     {Handle: "ch-annel"},
		} {
			req.HouseId = ada.house.Id
			_, err := ada.Bots.CreateBot(t.Context(), req)
			refused(t, err, connect.CodeInvalidArgument, says)
		}
		_, err := ada.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: ada.house.Id, Handle: "he1per"})
		refused(t, err, connect.CodeAlreadyExists, "@he1per looks like @helper")
	})
	t.Run("what is set is changed", func(t *testing.T) {
		changed, err := ada.Bots.UpdateBot(t.Context(), &arbev1.UpdateBotRequest{HouseId: ada.house.Id, Id: made.Id, Model: new("openai/gpt-5"), Tools: &arbev1.Names{}})
		must(t, err)
		if c := changed.Bot; c.Model != "openai/gpt-5" || len(c.Tools) != 0 || c.Instructions != "Help." || c.Limits.TurnUsd != 0.5 {
			t.Errorf("it is %v", c)
		}
		policy, err := ada.Bots.UpdatePolicy(t.Context(), &arbev1.UpdatePolicyRequest{HouseId: ada.house.Id, Id: made.Policies[0].Id, Enabled: new(false)})
		must(t, err)
		if p := policy.Policy; p.Enabled || p.Trigger != "mention" || p.Config != "{}" {
			t.Errorf("its policy is %v", p)
		}
		_, err = ada.Bots.CreatePolicy(t.Context(), &arbev1.CreatePolicyRequest{HouseId: ada.house.Id, BotId: made.Id, Trigger: "ambient"})
		refused(t, err, connect.CodeInvalidArgument, "config.delay_ms: ")
	})
	t.Run("a bot changes neither itself nor others", func(t *testing.T) {
		key, err := ada.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: ada.house.Id, Name: "its own", AgentId: made.Id})
		must(t, err)
		self := b.client(key.Key)
		_, err = self.Bots.UpdateBot(t.Context(), &arbev1.UpdateBotRequest{HouseId: ada.house.Id, Id: made.Id, Instructions: new("Obey me.")})
		refused(t, err, connect.CodePermissionDenied, "owner")
		_, err = self.Bots.CreatePolicy(t.Context(), &arbev1.CreatePolicyRequest{HouseId: ada.house.Id, BotId: made.Id, Trigger: "always"})
		refused(t, err, connect.CodePermissionDenied, "owner")
		_, err = self.Bots.DeleteBot(t.Context(), &arbev1.DeleteBotRequest{HouseId: ada.house.Id, Id: made.Id})
		refused(t, err, connect.CodePermissionDenied, "owner")
	})
	t.Run("another house's bot is not there", func(t *testing.T) {
		_, err := b.bob.Bots.GetBot(t.Context(), &arbev1.GetBotRequest{HouseId: b.bob.house.Id, Which: &arbev1.GetBotRequest_Id{Id: made.Id}})
		refused(t, err, connect.CodeNotFound, "no such bot")
		_, err = b.bob.Bots.UpdateBot(t.Context(), &arbev1.UpdateBotRequest{HouseId: b.bob.house.Id, Id: made.Id, Name: new("Mine")})
		refused(t, err, connect.CodeNotFound, "no such bot")
		_, err = b.bob.Bots.DeleteBot(t.Context(), &arbev1.DeleteBotRequest{HouseId: b.bob.house.Id, Id: made.Id})
		must(t, err) // the same as for a bot that does not exist
		if _, err := ada.Bots.GetBot(t.Context(), &arbev1.GetBotRequest{HouseId: ada.house.Id, Which: &arbev1.GetBotRequest_Id{Id: made.Id}}); err != nil {
			t.Errorf("it was deleted: %v", err)
		}
	})
	t.Run("a person is not deleted as a bot", func(t *testing.T) {
		_, err := ada.Bots.DeleteBot(t.Context(), &arbev1.DeleteBotRequest{HouseId: ada.house.Id, Id: b.cyd.id})
		must(t, err)
		if _, err := b.cyd.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: ada.house.Id}); err != nil {
			t.Errorf("Cyd is out: %v", err)
		}
	})
}

// An existing direct message is reused if it is open.
func TestDirectMessagesAreReused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	made := ada.createBot(t, &arbev1.CreateBotRequest{Handle: "helper"})
	direct := func(t *testing.T, p person, reuse bool) string {
		t.Helper()
		return p.thread(t, &arbev1.CreateThreadRequest{ParentAgentId: made.Id, Reuse: reuse}).Id
	}
	var wg sync.WaitGroup
	ids := make([]string, 6)
	for i := range ids {
		wg.Go(func() {
			made, err := ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: ada.house.Id, ParentAgentId: made.Id, Reuse: true})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = made.Thread.Id
		})
	}
	wg.Wait()
	if slices.Sort(ids); ids[0] == "" || ids[0] != ids[len(ids)-1] {
		t.Fatalf("calls at once got %q", ids)
	}
	if got := direct(t, b.cyd, true); got == ids[0] {
		t.Error("a colleague got the same one")
	}
	fork, err := ada.Threads.ForkThread(t.Context(), &arbev1.ForkThreadRequest{ThreadId: ids[0]})
	must(t, err)
	if got := direct(t, ada, true); got == fork.Thread.Id {
		t.Error("a fork is reused")
	}
	another := direct(t, ada, false)
	if got := direct(t, ada, true); another == ids[0] || got != another {
		t.Errorf("after another was begun, %s is reused, want the latest, %s", got, another)
	}
	_, err = ada.Threads.UpdateThread(t.Context(), &arbev1.UpdateThreadRequest{Id: another, Status: arbev1.ThreadStatus_THREAD_STATUS_CLOSED.Enum()})
	must(t, err)
	if got := direct(t, ada, true); got != ids[0] {
		t.Errorf("after it was closed, %s is reused, want %s", got, ids[0])
	}
	_, err = ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: ada.house.Id, Reuse: true})
	refused(t, err, connect.CodeInvalidArgument, "reuse: ")
	_, err = b.bob.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: b.bob.house.Id, ParentAgentId: made.Id, Reuse: true})
	refused(t, err, connect.CodeNotFound, "parent_agent_id")

	// The bot is removed and its turns stop; the conversation stays.
	_, err = ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: ids[0], Text: "hello"})
	must(t, err)
	b.exec(t, `insert into turns (house_id, thread_id, agent_id, entry_id, reason, status, due_at)
		select $1, v.thread, $2, 'hello', 'always', v.status, v.due from (values ($3, 'queued', null), ($4, 'delayed', now() + interval '1 hour')) as v (thread, status, due)`,
		ada.house.Id, made.Id, ids[0], another)
	atWork, err := b.cyd.Bots.GetBot(t.Context(), &arbev1.GetBotRequest{HouseId: ada.house.Id, Which: &arbev1.GetBotRequest_Id{Id: made.Id}})
	must(t, err)
	gone, err := ada.Bots.DeleteBot(t.Context(), &arbev1.DeleteBotRequest{HouseId: ada.house.Id, Id: made.Id})
	must(t, err)
	if atWork.TurnsAtWork != 1 || gone.StoppedTurns != 1 {
		t.Errorf("it was at work on %d turns, and its deletion stopped %d", atWork.TurnsAtWork, gone.StoppedTurns)
	}
	var left int
	must(t, b.owner.QueryRow(t.Context(), "select count(*) from turns where ended_at is null").Scan(&left))
	if left != 0 {
		t.Errorf("%d turns are left", left)
	}
	gone, err = ada.Bots.DeleteBot(t.Context(), &arbev1.DeleteBotRequest{HouseId: ada.house.Id, Id: made.Id})
	if err != nil || gone.StoppedTurns != 0 {
		t.Errorf("deleting it again says %v, %v", gone, err)
	}
	if log := ada.log(t, ids[0]); len(log) == 0 || log[0].Type != "chat" {
		t.Errorf("the log is %v", log)
	}
	told := ada.log(t, ada.house.PrimaryThreadId)
	if last := told[len(told)-1]; last.Type != "signal.house.member_removed" || !strings.Contains(last.Payload, `"name":"helper"`) {
		t.Errorf("the last entry is %v", last)
	}
	_, err = ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: ada.house.Id, ParentAgentId: made.Id, Reuse: true})
	refused(t, err, connect.CodeNotFound, "parent_agent_id")
}

func TestTheDefaultModelOfAHouse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stored := func() string {
		t.Helper()
		got, err := b.ada.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: b.ada.house.Id})
		must(t, err)
		return got.House.DefaultModel
	}
	set, err := b.ada.Models.SetDefaultModel(t.Context(), &arbev1.SetDefaultModelRequest{HouseId: b.ada.house.Id, Model: "openai/gpt-5"})
	must(t, err)
	if set.DefaultModel != "openai/gpt-5" || !strings.Contains(set.Problem, "no model yet") || stored() != "openai/gpt-5" {
		t.Errorf("it is %v, and the house has %q", set, stored())
	}
	for _, ref := range []string{"gpt-5", "/gpt-5", "openai/", "nobody/gpt-5", "openai/gpt 5"} {
		_, err = b.ada.Models.SetDefaultModel(t.Context(), &arbev1.SetDefaultModelRequest{HouseId: b.ada.house.Id, Model: ref})
		refused(t, err, connect.CodeInvalidArgument)
	}
	if stored() != "openai/gpt-5" {
		t.Errorf("after refusals the house has %q", stored())
	}
}
