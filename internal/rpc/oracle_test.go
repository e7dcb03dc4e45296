package rpc_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// good holds requests that succeed, one for each procedure whose request has an id. A new procedure needs a line here.
var good = map[string]func(things) proto.Message{
	"HouseService.GetHouse":    func(of things) proto.Message { return &arbev1.GetHouseRequest{Id: of.house} },
	"HouseService.DeleteHouse": func(of things) proto.Message { return &arbev1.DeleteHouseRequest{Id: of.house, Name: "Not its name"} },
	"HouseService.UpdateHouse": func(of things) proto.Message { return &arbev1.UpdateHouseRequest{Id: of.house, Name: new("Renamed")} },
	"HouseService.ListMembers": func(of things) proto.Message { return &arbev1.ListMembersRequest{HouseId: of.house} },
	"BotService.CreateBot":     func(of things) proto.Message { return &arbev1.CreateBotRequest{HouseId: of.house, Name: "Bot"} },
	"BotService.GetBot": func(of things) proto.Message {
		return &arbev1.GetBotRequest{HouseId: of.house, Which: &arbev1.GetBotRequest_Id{Id: of.bot}}
	},
	"BotService.ListBots": func(of things) proto.Message { return &arbev1.ListBotsRequest{HouseId: of.house} },
	"BotService.UpdateBot": func(of things) proto.Message {
		return &arbev1.UpdateBotRequest{HouseId: of.house, Id: of.bot, Name: new("Renamed")}
	},
	"BotService.DeleteBot":          func(of things) proto.Message { return &arbev1.DeleteBotRequest{HouseId: of.house, Id: of.bot} },
	"BotService.ListTools":          func(of things) proto.Message { return &arbev1.ListToolsRequest{HouseId: of.house} },
	"BotService.ListRuntimes":       func(of things) proto.Message { return &arbev1.ListRuntimesRequest{HouseId: of.house} },
	"EntryService.Search":           func(of things) proto.Message { return &arbev1.SearchRequest{HouseId: of.house, Query: "hello"} },
	"InboxService.GetInbox":         func(of things) proto.Message { return &arbev1.GetInboxRequest{HouseId: of.house} },
	"InboxService.MarkRead":         func(of things) proto.Message { return &arbev1.MarkReadRequest{ThreadId: of.thread, Seq: 1} },
	"InboxService.MuteThread":       func(of things) proto.Message { return &arbev1.MuteThreadRequest{ThreadId: of.thread, Muted: true} },
	"ApprovalService.ListApprovals": func(of things) proto.Message { return &arbev1.ListApprovalsRequest{HouseId: of.house} },
	"ApprovalService.GetApproval":   func(of things) proto.Message { return &arbev1.GetApprovalRequest{HouseId: of.house, Id: of.approval} },
	"ApprovalService.AnswerApproval": func(of things) proto.Message {
		return &arbev1.AnswerApprovalRequest{ThreadId: of.thread, Id: of.approval, Verdict: arbev1.Verdict_VERDICT_DENY}
	},
	"BotService.CreatePolicy": func(of things) proto.Message {
		return &arbev1.CreatePolicyRequest{HouseId: of.house, BotId: of.bot, Trigger: "always"}
	},
	"BotService.UpdatePolicy": func(of things) proto.Message {
		return &arbev1.UpdatePolicyRequest{HouseId: of.house, Id: of.policy, Enabled: new(false)}
	},
	"BotService.DeletePolicy": func(of things) proto.Message { return &arbev1.DeletePolicyRequest{HouseId: of.house, Id: of.policy} },
	"AgentService.CreateAgent": func(of things) proto.Message {
		return &arbev1.CreateAgentRequest{HouseId: of.house, Name: "Bot", Runtime: "pi"}
	},
	"AgentService.GetAgent":   func(of things) proto.Message { return &arbev1.GetAgentRequest{HouseId: of.house, Id: of.agent} },
	"AgentService.ListAgents": func(of things) proto.Message { return &arbev1.ListAgentsRequest{HouseId: of.house} },
	"CredentialService.CreateAPIKey": func(of things) proto.Message {
		return &arbev1.CreateAPIKeyRequest{HouseId: of.house, Name: "New"}
	},
	"CredentialService.ListAPIKeys":  func(of things) proto.Message { return &arbev1.ListAPIKeysRequest{HouseId: of.house} },
	"CredentialService.RevokeAPIKey": func(of things) proto.Message { return &arbev1.RevokeAPIKeyRequest{Id: of.key} },
	"CredentialService.CreateThreadToken": func(of things) proto.Message {
		return &arbev1.CreateThreadTokenRequest{ThreadId: of.thread}
	},
	"CredentialService.RevokeThreadTokens": func(of things) proto.Message {
		return &arbev1.RevokeThreadTokensRequest{ThreadId: of.thread}
	},
	"ThreadService.CreateThread": func(of things) proto.Message { return &arbev1.CreateThreadRequest{HouseId: of.house} },
	"ThreadService.GetThread":    func(of things) proto.Message { return &arbev1.GetThreadRequest{Id: of.thread} },
	"ThreadService.ListThreads":  func(of things) proto.Message { return &arbev1.ListThreadsRequest{HouseId: of.house} },
	"ThreadService.UpdateThread": func(of things) proto.Message {
		return &arbev1.UpdateThreadRequest{Id: of.thread, Name: new("Renamed")}
	},
	"ThreadService.DeleteThread": func(of things) proto.Message { return &arbev1.DeleteThreadRequest{Id: of.thread} },
	"ThreadService.ForkThread":   func(of things) proto.Message { return &arbev1.ForkThreadRequest{ThreadId: of.thread} },
	"ThreadService.RunCommand": func(of things) proto.Message {
		return &arbev1.RunCommandRequest{ThreadId: of.thread, What: &arbev1.RunCommandRequest_Command{Command: "true"}}
	},
	"ThreadService.ReadOutput": func(of things) proto.Message {
		return &arbev1.ReadOutputRequest{ThreadId: of.thread, CommandId: of.command}
	},
	"ThreadService.WriteInput": func(of things) proto.Message {
		return &arbev1.WriteInputRequest{ThreadId: of.thread, CommandId: of.command}
	},
	"ThreadService.CancelCommand": func(of things) proto.Message {
		return &arbev1.CancelCommandRequest{ThreadId: of.thread, CommandId: of.command}
	},
	"RunService.Delegate": func(of things) proto.Message {
		return &arbev1.DelegateRequest{HouseId: of.house, ParentThreadId: of.thread, Task: "Fix it.", Agent: of.coder, EnvironmentId: of.environment}
	},
	"RunService.ListRuns":    func(of things) proto.Message { return &arbev1.ListRunsRequest{ThreadId: of.thread} },
	"RunService.ContinueRun": func(of things) proto.Message { return &arbev1.ContinueRunRequest{ThreadId: of.driven} },
	"RunService.CancelRun":   func(of things) proto.Message { return &arbev1.CancelRunRequest{ThreadId: of.driven} },
	"RunService.ListQueue":   func(of things) proto.Message { return &arbev1.ListQueueRequest{ThreadId: of.thread} },
	"RunService.ChangeQueue": func(of things) proto.Message {
		return &arbev1.ChangeQueueRequest{ThreadId: of.driven, EntryId: "queued", Change: &arbev1.ChangeQueueRequest_Edit{Edit: "more"}}
	},
	"RunService.ApplyChanges":    func(of things) proto.Message { return &arbev1.ApplyChangesRequest{ThreadId: of.driven} },
	"RunService.OpenBranch":      func(of things) proto.Message { return &arbev1.OpenBranchRequest{ThreadId: of.driven} },
	"RunService.ReconcileThread": func(of things) proto.Message { return &arbev1.ReconcileThreadRequest{ThreadId: of.driven} },
	"ThreadService.StopTurn": func(of things) proto.Message {
		return &arbev1.StopTurnRequest{ThreadId: of.thread, TurnId: of.turn}
	},
	"ThreadService.RetryTurn": func(of things) proto.Message {
		return &arbev1.RetryTurnRequest{ThreadId: of.thread, TurnId: of.turn}
	},
	"EntryService.Say":        func(of things) proto.Message { return &arbev1.SayRequest{ThreadId: of.thread, Text: "hello"} },
	"EntryService.WhoAnswers": func(of things) proto.Message { return &arbev1.WhoAnswersRequest{ThreadId: of.thread, Text: "hello"} },
	"EntryService.ShowTyping": func(of things) proto.Message { return &arbev1.ShowTypingRequest{ThreadId: of.thread} },
	"EntryService.Append": func(of things) proto.Message {
		return &arbev1.AppendRequest{ThreadId: of.thread, Type: "chat", Payload: chat("hello")}
	},
	"EntryService.Edit":   func(of things) proto.Message { return &arbev1.EditRequest{ThreadId: of.thread, Text: "hello"} },
	"EntryService.Delete": func(of things) proto.Message { return &arbev1.DeleteRequest{ThreadId: of.thread} },
	"EntryService.React": func(of things) proto.Message {
		return &arbev1.ReactRequest{ThreadId: of.thread, EntryId: of.command, Emoji: "👍"}
	},
	"EntryService.ListEdits": func(of things) proto.Message {
		return &arbev1.ListEditsRequest{ThreadId: of.thread, EntryId: of.command}
	},
	"EntryService.List": func(of things) proto.Message { return &arbev1.ListRequest{ThreadId: of.thread} },
	"EnvironmentService.CreateEnvironment": func(of things) proto.Message {
		return &arbev1.CreateEnvironmentRequest{HouseId: of.house, Name: "New"}
	},
	"EnvironmentService.GetEnvironment":   func(of things) proto.Message { return &arbev1.GetEnvironmentRequest{Id: of.environment} },
	"EnvironmentService.ListEnvironments": func(of things) proto.Message { return &arbev1.ListEnvironmentsRequest{HouseId: of.house} },
	"EnvironmentService.UpdateEnvironment": func(of things) proto.Message {
		return &arbev1.UpdateEnvironmentRequest{Id: of.environment, Name: new("Renamed")}
	},
	"EnvironmentService.AllowHosts": func(of things) proto.Message {
		return &arbev1.AllowHostsRequest{Id: of.environment, Hosts: []string{"example.com"}}
	},
	"EnvironmentService.DiagnoseEnvironment": func(of things) proto.Message {
		return &arbev1.DiagnoseEnvironmentRequest{Id: of.environment}
	},
	"EnvironmentService.DeleteEnvironment": func(of things) proto.Message { return &arbev1.DeleteEnvironmentRequest{Id: of.environment} },
	"SecretService.SetSecret": func(of things) proto.Message {
		return &arbev1.SetSecretRequest{HouseId: of.house, Name: "TOKEN", Value: []byte("value")}
	},
	"SecretService.ListSecrets":      func(of things) proto.Message { return &arbev1.ListSecretsRequest{HouseId: of.house} },
	"SecretService.DeleteSecret":     func(of things) proto.Message { return &arbev1.DeleteSecretRequest{HouseId: of.house, Name: "TOKEN"} },
	"SecretService.RotateSecretKey":  func(of things) proto.Message { return &arbev1.RotateSecretKeyRequest{HouseId: of.house} },
	"ModelService.ListModels":        func(of things) proto.Message { return &arbev1.ListModelsRequest{HouseId: of.house} },
	"ModelService.SetFallbackModels": func(of things) proto.Message { return &arbev1.SetFallbackModelsRequest{HouseId: of.house} },
	"ModelService.SetDefaultModel":   func(of things) proto.Message { return &arbev1.SetDefaultModelRequest{HouseId: of.house} },
	"ModelService.SetModelEndpoint": func(of things) proto.Message {
		return &arbev1.SetModelEndpointRequest{HouseId: of.house, Name: "lab", BaseUrl: "https://lab.example/v1"}
	},
	"ModelService.DeleteModelEndpoint": func(of things) proto.Message {
		return &arbev1.DeleteModelEndpointRequest{HouseId: of.house, Name: "lab"}
	},
	"ArtifactService.CreateArtifact": func(of things) proto.Message {
		return &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: of.thread}}
	},
	"ArtifactService.GetArtifact": func(of things) proto.Message { return &arbev1.GetArtifactRequest{Id: of.artifact} },
	"ArtifactService.ListArtifacts": func(of things) proto.Message {
		return &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_ThreadId{ThreadId: of.thread}}
	},
	"ArtifactService.DeleteArtifact": func(of things) proto.Message { return &arbev1.DeleteArtifactRequest{Id: of.artifact} },
	"HouseService.CreateInvite":      func(of things) proto.Message { return &arbev1.CreateInviteRequest{HouseId: of.house} },
	"HouseService.ListInvites":       func(of things) proto.Message { return &arbev1.ListInvitesRequest{HouseId: of.house} },
	"HouseService.ListAuditEvents":   func(of things) proto.Message { return &arbev1.ListAuditEventsRequest{HouseId: of.house} },
	"HouseService.RevokeInvite": func(of things) proto.Message {
		return &arbev1.RevokeInviteRequest{HouseId: of.house, Id: of.invite}
	},
	"HouseService.UpdateMember": func(of things) proto.Message {
		return &arbev1.UpdateMemberRequest{HouseId: of.house, AgentId: of.member, Role: "owner"}
	},
	"HouseService.RemoveMember": func(of things) proto.Message {
		return &arbev1.RemoveMemberRequest{HouseId: of.house, AgentId: of.member}
	},
	"SandboxService.GetSandbox":    func(of things) proto.Message { return &arbev1.GetSandboxRequest{Id: of.sandbox} },
	"SandboxService.ListSandboxes": func(of things) proto.Message { return &arbev1.ListSandboxesRequest{HouseId: of.house} },
	"SandboxService.GetSandboxLog": func(of things) proto.Message { return &arbev1.GetSandboxLogRequest{Id: of.sandbox} },
	"SandboxService.ListSandboxAccounts": func(of things) proto.Message {
		return &arbev1.ListSandboxAccountsRequest{HouseId: of.house}
	},
	"SandboxService.ReconcileSandboxes": func(of things) proto.Message {
		return &arbev1.ReconcileSandboxesRequest{HouseId: of.house}
	},
	"SandboxService.DestroySandbox": func(of things) proto.Message { return &arbev1.DestroySandboxRequest{Id: of.sandbox} },
	"SandboxService.WakeSandbox":    func(of things) proto.Message { return &arbev1.WakeSandboxRequest{ThreadId: of.thread} },
	"SandboxService.ReadSandboxPath": func(of things) proto.Message {
		return &arbev1.ReadSandboxPathRequest{ThreadId: of.thread, Path: "file"}
	},
	"SandboxService.GetSandboxChanges": func(of things) proto.Message {
		return &arbev1.GetSandboxChangesRequest{ThreadId: of.thread}
	},
	"SandboxService.OpenPreview": func(of things) proto.Message {
		return &arbev1.OpenPreviewRequest{ThreadId: of.thread, Port: 3000}
	},
}

// named returns two ids of the kind that a field of a request names: the id of a thing of another house, and an unused id.
func named(t *testing.T, service, method, field string, theirs things) (there, nowhere string) {
	t.Helper()
	none := strings.ToLower(rand.Text())[:12] // an unused id, because an id that was used stands for a thing
	kind := strings.TrimSuffix(strings.TrimSuffix(field, "id"), "_")
	switch {
	case service == "ArtifactService" && slices.Contains([]string{"run", "resource", "external"}, kind):
		// These fields are free text about things outside the database, and nothing looks them up. Even the id of another
		// house's thread is just text here, and must change nothing.
		return theirs.thread, none
	case field == "id" && slices.Contains([]string{"Say", "Append", "Edit", "Delete", "RunCommand"}, method), kind == "command", kind == "entry":
		return theirs.command, none
	case field == "id" && method == "CreateAPIKey", field == "id" && service == "CredentialService":
		kind = "key"
	case field == "id" && strings.HasSuffix(method, "Policy"):
		kind = "policy"
	case field == "id" && method == "RevokeInvite":
		kind = "invite"
	case field == "agent_id" && service == "HouseService":
		kind = "member"
	case field == "id":
		kind = strings.ToLower(strings.TrimSuffix(service, "Service"))
	}
	kinds := map[string][2]string{
		"house": {theirs.house, none}, "thread": {theirs.thread, none}, "environment": {theirs.environment, none},
		"sandbox": {theirs.sandbox, none}, "artifact": {theirs.artifact, none}, "agent": {theirs.agent, uuid.NewString()}, "key": {theirs.key, none},
		"invite": {theirs.invite, none}, "member": {theirs.member, uuid.NewString()}, "bot": {theirs.bot, uuid.NewString()}, "policy": {theirs.policy, none},
		"turn": {theirs.turn, none}, "approval": {theirs.approval, none},
	}
	for _, prefix := range []string{"", "parent_", "default_", "forked_from_", "answering_"} {
		if of, ok := kinds[strings.TrimPrefix(kind, prefix)]; ok {
			return of[0], of[1]
		}
	}
	t.Fatalf("%s.%s: this test does not know what %q names", service, method, field)
	return "", ""
}

// answer returns everything that a caller learns: the status, the body without the id in the request, and the next step. For
// a success it returns only the names of the fields, because values differ each time.
func (b *bench) answer(t *testing.T, credential, service, method string, request proto.Message, id string) string {
	t.Helper()
	body, err := protojson.Marshal(request)
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), "POST", b.url+"/arbe.v1."+service+"/"+method, bytes.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+credential)
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	if res.StatusCode == http.StatusOK {
		var value any
		must(t, json.Unmarshal(text, &value))
		return "200 " + fields(value)
	}
	said := fmt.Sprint(string(text), " ", res.Header.Get("Arbe-Next"))
	if id != "" {
		said = strings.ReplaceAll(said, id, "ID")
	}
	return fmt.Sprint(res.StatusCode, " ", said)
}

// fields returns the names of the fields of a JSON value or, for a list, of its first element.
func fields(value any) string {
	switch v := value.(type) {
	case map[string]any:
		names := map[string]string{}
		for name, of := range v {
			names[name] = fields(of)
		}
		return fmt.Sprint(names)
	case []any:
		if len(v) > 0 {
			return "[" + fields(v[0]) + "]"
		}
		return "[]"
	}
	return "x"
}

// TestNoAnswerTellsWhatAnotherHouseHas puts another house's id, and an id that does not exist, into every field of every
// request that takes an id. The answers must not differ.
func TestNoAnswerTellsWhatAnotherHouseHas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	walked := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("arbe.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				method := methods.Get(j)
				if method.IsStreamingServer() {
					continue // TestWhatIsNotThereAndWhatIsAnothersLookTheSame covers tails
				}
				if method.Name() == "EndSession" || method.Name() == "RemovePushDevice" {
					continue // these are a person's and no house's; session_test.go and notification_test.go cover those of others
				}
				for k := range method.Input().Fields().Len() {
					field := method.Input().Fields().Get(k)
					if name := string(field.Name()); name == "id" || strings.HasSuffix(name, "_id") {
						walked++
						b.walk(t, cast, string(file.Services().Get(i).Name()), string(method.Name()), field)
					}
				}
			}
		}
		return true
	})
	if walked < len(good) {
		t.Errorf("%d fields were walked, of %d procedures", walked, len(good))
	}
}

func (b *bench) walk(t *testing.T, cast *authtest.Cast, service, method string, field protoreflect.FieldDescriptor) {
	t.Run(service+"."+method+"/"+string(field.Name()), func(t *testing.T) {
		t.Parallel()
		make := good[service+"."+method]
		if make == nil {
			t.Fatal("there is no good request")
		}
		things := func(house string) things {
			made := b.things(t, cast, house)
			if service == "BotService" { // the number of a house's bots is limited
				made.bot, made.policy = b.program(t, house)
			}
			return made
		}
		for principal, credential := range cast.Credentials(t, "owner") {
			ask := func(id string) string {
				own := things(cast.House)
				own.command = "c1"
				request := make(own)
				if id != "" {
					request.ProtoReflect().Set(field, protoreflect.ValueOfString(id))
				}
				as := credential(t, own.thread)
				if method == "Edit" || method == "Delete" { // both need a message of the caller
					b.answer(t, as, service, "Say", &arbev1.SayRequest{ThreadId: own.thread, Text: "helo"}, "")
				}
				return b.answer(t, as, service, method, request, id)
			}
			// A call that looks into a sandbox is refused only because there is none. A deletion of the house, which all tests
			// share, repeats another name.
			if plain := ask(""); !strings.HasPrefix(plain, "200 ") && !strings.Contains(plain, string(fault.NoSandbox)) && !strings.Contains(plain, "this is not the name of the house") {
				t.Fatalf("with %s a good request is refused: %s", principal, plain)
			}
			theirs := things(cast.Other)
			theirs.command = "theircommand0"
			b.exec(t, `insert into entries (stream_id, seq, house_id, id, type, payload, ts)
				select id, 3, house_id, $2, 'chat', '{"text":"theirs"}', now() from streams where name = 'arbe-thread-' || $1`, theirs.thread, theirs.command)
			there, nowhere := named(t, service, method, string(field.Name()), theirs)
			if theirs, nothing := ask(there), ask(nowhere); theirs != nothing {
				t.Errorf("with %s, of what another house has:\n%s\nof what there is not:\n%s", principal, theirs, nothing)
			}
		}
	})
}

// TestNoAnswerAboutBytesTellsWhatAnotherHouseHas does the same for the path of artifacts' bytes.
func TestNoAnswerAboutBytesTellsWhatAnotherHouseHas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	theirs := b.things(t, cast, cast.Other)
	compare := func(t *testing.T, method, field, success string, path func(own things, id string) string) {
		there, nowhere := named(t, "ArtifactService", "CreateArtifact", field, theirs)
		for principal, credential := range cast.Credentials(t, "owner") {
			ask := func(id string) string {
				own := b.things(t, cast, cast.House)
				got := b.request(t, method, path(own, id), credential(t, own.thread), "x")
				if got.status == http.StatusOK && got.body != "" {
					var value any
					must(t, json.Unmarshal([]byte(got.body), &value))
					return "200 " + fields(value)
				}
				return fmt.Sprint(got.status, " ", strings.ReplaceAll(got.body, id, "ID"))
			}
			of, none := ask(there), ask(nowhere)
			if of != none {
				t.Errorf("with %s, of what another house has:\n%s\nof what there is not:\n%s", principal, of, none)
			}
			if !strings.HasPrefix(none, success) {
				t.Errorf("with %s it answers %s, want %s", principal, none, success)
			}
		}
	}
	for _, method := range []string{"GET", "HEAD"} {
		t.Run(method, func(t *testing.T) {
			compare(t, method, "id", "404", func(_ things, id string) string { return id })
		})
	}
	walked := (&arbev1.CreateArtifactRequest{}).ProtoReflect().Descriptor().Fields()
	for i := range walked.Len() {
		field := string(walked.Get(i).Name())
		if field != "id" && !strings.HasSuffix(field, "_id") {
			continue
		}
		success := "200"
		if field == "house_id" || field == "thread_id" {
			success = "404"
		}
		t.Run("POST/"+field, func(t *testing.T) {
			compare(t, "POST", field, success, func(own things, id string) string {
				if field == "house_id" || field == "thread_id" {
					return "?" + field + "=" + id
				}
				return "?thread_id=" + own.thread + "&" + field + "=" + id
			})
		})
	}
}
