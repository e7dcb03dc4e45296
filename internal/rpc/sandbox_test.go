package rpc_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	th := ada.thread(t, &arbev1.CreateThreadRequest{})
	ada.run(t, th.Id, "first")
	boxOf := func(t *testing.T) *arbev1.Sandbox {
		t.Helper()
		th, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: th.Id})
		must(t, err)
		box, err := ada.Sandboxes.GetSandbox(t.Context(), &arbev1.GetSandboxRequest{Id: th.Thread.SandboxId})
		must(t, err)
		return box.Sandbox
	}
	first := boxOf(t)

	t.Run("is made by a thread's first command, from the house's recipe", func(t *testing.T) {
		if first.Status != arbev1.SandboxStatus_SANDBOX_STATUS_LIVE || first.Provider != "local" || first.EnvironmentId != ada.house.DefaultEnvironmentId || first.DestroyedAt != nil {
			t.Errorf("it is %v", first)
		}
	})
	t.Run("says who uses it", func(t *testing.T) {
		use := boxOf(t).Use
		if use.GetEnvironmentName() == "" || use.GetUsedAt() == nil || use.GetThreadCount() != 1 || len(use.GetThreads()) != 1 || use.GetThreads()[0].ThreadId != th.Id {
			t.Errorf("it is used by %v", use)
		}
	})
	t.Run("is destroyed, and can be again", func(t *testing.T) {
		for range 2 {
			res, err := ada.Sandboxes.DestroySandbox(t.Context(), &arbev1.DestroySandboxRequest{Id: first.Id})
			must(t, err)
			if res.Sandbox.Status != arbev1.SandboxStatus_SANDBOX_STATUS_DEAD || res.Sandbox.DestroyedAt == nil {
				t.Errorf("it is %v", res.Sandbox)
			}
		}
	})
	t.Run("is followed by another at the next command, and both are listed, newest first", func(t *testing.T) {
		ada.run(t, th.Id, "second")
		second := boxOf(t)
		list, err := ada.Sandboxes.ListSandboxes(t.Context(), &arbev1.ListSandboxesRequest{HouseId: ada.house.Id})
		must(t, err)
		if len(list.Sandboxes) != 2 || list.Sandboxes[0].Id != second.Id || list.Sandboxes[1].Id != first.Id || list.Sandboxes[1].Status != arbev1.SandboxStatus_SANDBOX_STATUS_DEAD {
			t.Errorf("they are %v", list.Sandboxes)
		}
		list, err = ada.Sandboxes.ListSandboxes(t.Context(), &arbev1.ListSandboxesRequest{HouseId: ada.house.Id, Existing: true})
		must(t, err)
		if len(list.Sandboxes) != 1 || list.Sandboxes[0].Id != second.Id || list.Sandboxes[0].GetUse().GetThreadCount() == 0 {
			t.Errorf("those that exist are %v", list.Sandboxes)
		}
		list, err = ada.Sandboxes.ListSandboxes(t.Context(), &arbev1.ListSandboxesRequest{HouseId: ada.house.Id, IdPrefix: first.Id[:5]})
		must(t, err)
		if len(list.Sandboxes) != 1 || list.Sandboxes[0].Id != first.Id {
			t.Errorf("%s begins %v", first.Id[:5], list.Sandboxes)
		}
	})
}

func TestRunCommand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	th := ada.thread(t, &arbev1.CreateThreadRequest{})
	line := func(text string) *arbev1.RunCommandRequest_Command {
		return &arbev1.RunCommandRequest_Command{Command: text}
	}

	t.Run("with one id runs once", func(t *testing.T) {
		req := &arbev1.RunCommandRequest{ThreadId: th.Id, Id: "once", What: line("true")}
		one, err := ada.Threads.RunCommand(t.Context(), req)
		must(t, err)
		two, err := ada.Threads.RunCommand(t.Context(), req)
		must(t, err)
		if one.Entry.Seq != two.Entry.Seq || one.Entry.Type != "command" || one.Entry.AuthorAgentId != ada.id || one.ResultId != two.ResultId {
			t.Errorf("they are %v and %v", one, two)
		}
	})
	t.Run("with the id of another entry is refused", func(t *testing.T) {
		said := ada.say(t, th.Id, "hello")
		_, err := ada.Threads.RunCommand(t.Context(), &arbev1.RunCommandRequest{ThreadId: th.Id, Id: said.Id, What: line("true")})
		refused(t, err, connect.CodeAlreadyExists, said.Id)
		_, err = ada.Threads.RunCommand(t.Context(), &arbev1.RunCommandRequest{ThreadId: th.Id, Id: "once.result", What: line("true")})
		refused(t, err, connect.CodeInvalidArgument, "id")
	})
	t.Run("with an environment that the house does not have is refused, and nothing is said", func(t *testing.T) {
		before := len(ada.log(t, th.Id))
		for _, id := range []string{"nosuchrecipe", b.bob.house.DefaultEnvironmentId} {
			_, err := ada.Threads.RunCommand(t.Context(), &arbev1.RunCommandRequest{ThreadId: th.Id, EnvironmentId: id, Id: "lost", What: line("true")})
			refused(t, err, connect.CodeNotFound, "environment")
		}
		for _, e := range ada.log(t, th.Id)[before:] {
			if e.Id == "lost" {
				t.Errorf("the log has %v", e)
			}
		}
	})
	t.Run("with nothing to run is refused", func(t *testing.T) {
		for _, req := range []*arbev1.RunCommandRequest{
			{}, {What: line("")}, {What: line("  ")}, {What: line("a\x00b")},
			{What: &arbev1.RunCommandRequest_Argv{Argv: &arbev1.Argv{}}}, {What: &arbev1.RunCommandRequest_Argv{Argv: &arbev1.Argv{Args: []string{""}}}},
		} {
			req.ThreadId = th.Id
			_, err := ada.Threads.RunCommand(t.Context(), req)
			refused(t, err, connect.CodeInvalidArgument)
		}
	})
	t.Run("keeps a time limit shorter than a millisecond a limit", func(t *testing.T) {
		said, err := ada.Threads.RunCommand(t.Context(), &arbev1.RunCommandRequest{ThreadId: th.Id, What: line("true"), Timeout: durationpb.New(time.Microsecond)})
		must(t, err)
		if want := `"timeout_ms":1`; !strings.Contains(said.Entry.Payload, want) {
			t.Errorf("it is %s, want %s", said.Entry.Payload, want)
		}
	})
	t.Run("that nobody ran cannot be cancelled", func(t *testing.T) {
		said := ada.say(t, th.Id, "hello")
		for _, id := range []string{"nosuchcommand", said.Id} {
			_, err := ada.Threads.CancelCommand(t.Context(), &arbev1.CancelCommandRequest{ThreadId: th.Id, CommandId: id})
			refused(t, err, connect.CodeNotFound)
		}
	})
	t.Run("in a house without a default environment says how to set one", func(t *testing.T) {
		_, err := b.bob.Houses.UpdateHouse(t.Context(), &arbev1.UpdateHouseRequest{Id: b.bob.house.Id, DefaultEnvironmentId: new("")})
		must(t, err)
		result := b.bob.run(t, b.bob.thread(t, &arbev1.CreateThreadRequest{}).Id, "true")
		if !strings.Contains(result, "the house has no default") || !strings.Contains(result, "set the house's default environment") {
			t.Errorf("the result is %s", result)
		}
	})
}
