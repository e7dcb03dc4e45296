package rpc_test

import (
	"net/http"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// updated are resources of Ada's house that can be updated.
type updated struct {
	b      *bench
	thread *arbev1.Thread
	bot    *arbev1.Bot
	policy *arbev1.Policy
	env    *arbev1.Environment
}

func makeUpdated(t *testing.T) updated {
	t.Helper()
	b := setup(t)
	ctx, ada, house := t.Context(), b.ada, b.ada.house.Id
	bot, err := ada.Bots.CreateBot(ctx, &arbev1.CreateBotRequest{HouseId: house, Name: "Bot", Handle: "worker", Instructions: "Be brief.", Tools: &arbev1.Names{Values: []string{"run_command"}}})
	must(t, err)
	policy, err := ada.Bots.CreatePolicy(ctx, &arbev1.CreatePolicyRequest{HouseId: house, BotId: bot.Bot.Id, Name: "all", Trigger: "always"})
	must(t, err)
	env, err := ada.Environments.CreateEnvironment(ctx, &arbev1.CreateEnvironmentRequest{HouseId: house, Name: "old", Config: &arbev1.EnvironmentConfig{Image: "debian:12", Setup: "true"}})
	must(t, err)
	_, err = ada.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: house, Ask: &arbev1.Names{Values: []string{"run_command"}}, Limits: &arbev1.HouseLimits{HouseUsdDay: 5}})
	must(t, err)
	b.exec(t, "insert into login_identities (issuer, subject, agent_id, email) values ('https://login.example.com', 'ada', $1, 'ada@example.com')", ada.id)
	_, err = ada.Notifications.UpdateNotifications(ctx, &arbev1.UpdateNotificationsRequest{Settings: &arbev1.NotificationSettings{
		Digest: arbev1.MailDigest_MAIL_DIGEST_DAILY, QuietHours: &arbev1.QuietHours{From: 1320, To: 420, TimeZone: "Europe/Berlin"}}})
	must(t, err)
	return updated{b: b, bot: bot.Bot, policy: policy.Policy, env: env.Environment, thread: ada.thread(t, &arbev1.CreateThreadRequest{Name: "old", Tags: []string{"a"}})}
}

// update sends an update, and returns the resource that it answers with.
func (w updated) update(t *testing.T, request proto.Message) (proto.Message, error) {
	t.Helper()
	ctx, ada := t.Context(), w.b.ada
	switch r := request.(type) {
	case *arbev1.UpdateThreadRequest:
		res, err := ada.Threads.UpdateThread(ctx, r)
		return res.GetThread(), err
	case *arbev1.UpdateBotRequest:
		res, err := ada.Bots.UpdateBot(ctx, r)
		return res.GetBot(), err
	case *arbev1.UpdatePolicyRequest:
		res, err := ada.Bots.UpdatePolicy(ctx, r)
		return res.GetPolicy(), err
	case *arbev1.UpdateEnvironmentRequest:
		res, err := ada.Environments.UpdateEnvironment(ctx, r)
		return res.GetEnvironment(), err
	case *arbev1.UpdateHouseRequest:
		res, err := ada.Houses.UpdateHouse(ctx, r)
		return res.GetHouse(), err
	case *arbev1.UpdateMemberRequest:
		res, err := ada.Houses.UpdateMember(ctx, r)
		return res.GetMember(), err
	case *arbev1.UpdateProfileRequest:
		res, err := ada.Agents.UpdateProfile(ctx, r)
		return res.GetAgent(), err
	case *arbev1.UpdateNotificationsRequest:
		res, err := ada.Notifications.UpdateNotifications(ctx, r)
		return res.GetSettings(), err
	}
	t.Fatalf("%T is not known", request)
	return nil, nil
}

func mask(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

// set sets a field of a request, if it has the field.
func set(request proto.Message, name protoreflect.Name, value any) bool {
	f := request.ProtoReflect().Descriptor().Fields().ByName(name)
	if f != nil {
		request.ProtoReflect().Set(f, protoreflect.ValueOf(value))
	}
	return f != nil
}

// An update with a mask sets or clears the fields that the mask lists, and ignores the others. It checks the etag, too.
func TestAnUpdateWithAMask(t *testing.T) {
	t.Parallel()
	w := makeUpdated(t)
	house, cyd := w.b.ada.house.Id, w.b.cyd.id
	for name, c := range map[string]struct {
		request proto.Message
		changed func(got proto.Message) bool // whether it is what the mask says
	}{
		"of a thread": {&arbev1.UpdateThreadRequest{Id: w.thread.Id, Name: new("new"), Status: arbev1.ThreadStatus_THREAD_STATUS_CLOSED.Enum(), UpdateMask: mask("name", "tags")},
			func(got proto.Message) bool {
				th := got.(*arbev1.Thread)
				return th.Name == "new" && len(th.Tags) == 0 && th.Status == arbev1.ThreadStatus_THREAD_STATUS_OPEN
			}},
		"of a bot": {&arbev1.UpdateBotRequest{HouseId: house, Id: w.bot.Id, Name: new("new"), Handle: new("other"), UpdateMask: mask("name", "tools", "instructions")},
			func(got proto.Message) bool {
				bot := got.(*arbev1.Bot)
				return bot.Name == "new" && len(bot.Tools) == 0 && bot.Instructions == "" && bot.Handle == "worker"
			}},
		"of a policy": {&arbev1.UpdatePolicyRequest{HouseId: house, Id: w.policy.Id, Name: new("new"), Trigger: new("nonsense"), UpdateMask: mask("name", "enabled")},
			func(got proto.Message) bool {
				p := got.(*arbev1.Policy)
				return p.Name == "new" && !p.Enabled && p.Trigger == "always"
			}},
		"of an environment": {&arbev1.UpdateEnvironmentRequest{Id: w.env.Id, Name: new("new"), UpdateMask: mask("config")},
			func(got proto.Message) bool {
				e := got.(*arbev1.Environment)
				return e.Name == "old" && e.Config.Image == "" && e.Config.Setup == ""
			}},
		"of a house": {&arbev1.UpdateHouseRequest{Id: house, Name: new("new"), Limits: &arbev1.HouseLimits{HouseUsdDay: 9}, UpdateMask: mask("name", "ask")},
			func(got proto.Message) bool {
				h := got.(*arbev1.House)
				return h.Name == "new" && len(h.Ask) == 0 && h.Limits.GetHouseUsdDay() == 5
			}},
		"of a member": {&arbev1.UpdateMemberRequest{HouseId: house, AgentId: cyd, Role: "owner", UpdateMask: mask("*")},
			func(got proto.Message) bool { return got.(*arbev1.Member).Role == "owner" }},
		"of a profile": {&arbev1.UpdateProfileRequest{Name: "new", UpdateMask: mask("name")},
			func(got proto.Message) bool { return got.(*arbev1.Agent).Name == "new" }},
		"of notifications": {&arbev1.UpdateNotificationsRequest{Settings: &arbev1.NotificationSettings{Digest: arbev1.MailDigest_MAIL_DIGEST_OFF}, UpdateMask: mask("quiet_hours")},
			func(got proto.Message) bool {
				s := got.(*arbev1.NotificationSettings)
				return s.QuietHours == nil && s.Digest == arbev1.MailDigest_MAIL_DIGEST_DAILY
			}},
	} {
		t.Run(name, func(t *testing.T) {
			if set(c.request, "etag", "0123456789abcdef") {
				_, err := w.update(t, c.request)
				refused(t, err, connect.CodeAborted, "since you read it")
				set(c.request, "etag", "")
			}
			got, err := w.update(t, c.request)
			must(t, err)
			if !c.changed(got) {
				t.Errorf("it is %v", got)
			}
			if etag := got.ProtoReflect().Descriptor().Fields().ByName("etag"); etag != nil && set(c.request, "etag", got.ProtoReflect().Get(etag).String()) {
				_, err := w.update(t, c.request)
				must(t, err)
			}
			for _, path := range []string{"id", "etag", "update_mask", "shoe_size"} {
				set(c.request, "update_mask", mask(path).ProtoReflect())
				_, err := w.update(t, c.request)
				refused(t, err, connect.CodeInvalidArgument, `update_mask: "`+path+`"`)
			}
		})
	}
}

// What must have a value cannot be cleared, and the error names it.
func TestAMaskClearsNothingThatMustHaveAValue(t *testing.T) {
	t.Parallel()
	w := makeUpdated(t)
	house := w.b.ada.house.Id
	for field, request := range map[string]proto.Message{
		"status":  &arbev1.UpdateThreadRequest{Id: w.thread.Id, Name: new("new")},
		"handle":  &arbev1.UpdateBotRequest{HouseId: house, Id: w.bot.Id, Name: new("new")},
		"trigger": &arbev1.UpdatePolicyRequest{HouseId: house, Id: w.policy.Id, Name: new("new")},
		"config":  &arbev1.UpdatePolicyRequest{HouseId: house, Id: w.policy.Id, Name: new("new"), Trigger: new("mention")},
		"name":    &arbev1.UpdateHouseRequest{Id: house},
		"role":    &arbev1.UpdateMemberRequest{HouseId: house, AgentId: w.b.cyd.id},
		"digest":  &arbev1.UpdateNotificationsRequest{Settings: &arbev1.NotificationSettings{}},
	} {
		t.Run(field, func(t *testing.T) {
			set(request, "update_mask", mask(field).ProtoReflect())
			_, err := w.update(t, request)
			refused(t, err, connect.CodeInvalidArgument, field)
			set(request, "update_mask", mask("*").ProtoReflect())
			_, err = w.update(t, request)
			refused(t, err, connect.CodeInvalidArgument)
		})
	}
	for _, request := range []proto.Message{&arbev1.UpdateEnvironmentRequest{Id: w.env.Id, UpdateMask: mask("name")}, &arbev1.UpdateProfileRequest{UpdateMask: mask("name")}} {
		_, err := w.update(t, request)
		refused(t, err, connect.CodeInvalidArgument, "name")
	}
}

func TestAMaskInTheJSONOfACall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.ada.thread(t, &arbev1.CreateThreadRequest{Name: "old", Tags: []string{"a"}})
	post := func(body string) answer {
		return b.post(t, arbev1connect.ThreadServiceUpdateThreadProcedure, "application/json", b.ada.key, []byte(`{"id": "`+th.Id+`", `+body+`}`))
	}
	post(`"name": "new", "pinned": true, "updateMask": "no such"`).refused(t, http.StatusBadRequest, connect.CodeInvalidArgument, `update_mask: "no such"`)
	post(`"updateMask": "*"`).refused(t, http.StatusBadRequest, connect.CodeInvalidArgument, "status")
	if got := post(`"name": "new", "pinned": true, "updateMask": "name,answeringAgentId,environment_id"`); got.status != http.StatusOK {
		t.Fatalf("it answers %d %s", got.status, got.body)
	}
	got, err := b.ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: th.Id})
	must(t, err)
	if got.Thread.Name != "new" || got.Thread.PinnedAt != nil || !slices.Equal(got.Thread.Tags, []string{"a"}) {
		t.Errorf("it is %v", got.Thread)
	}
}
