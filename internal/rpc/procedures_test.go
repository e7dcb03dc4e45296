package rpc_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// access specifies who may call what. "-" is a call that succeeds without effect, because the target does not exist for the
// caller. GetLoginLink, RedeemLoginLink, GetInvite and AcceptInvite are called with an unknown link, PollDeviceLogin
// with an unknown code, and there is no login provider.
const access = `
                                     nobody unknown expired revoked outsider member owner bot house-key owner-key elsewhere token reader writer sibling

# Of the caller.
AgentService.WhoAmI                  401    401     401     401     ok       ok     ok    ok  ok        ok        ok        ok    ok     ok     ok
AgentService.EndSession              401    ok      ok      ok      ok       ok     ok    ok  ok        ok        ok        ok    ok     ok     ok
AgentService.GetLoginLink            401    401     401     401     401      401    401   401 401       401       401       401   401    401    401
AgentService.RedeemLoginLink         401    401     401     401     401      401    401   401 401       401       401       401   401    401    401
AgentService.BeginProviderLogin      412    401     401     401     412      412    412   412 412       412       412       412   412    412    412
AgentService.FinishProviderLogin     412    401     401     401     412      412    412   412 412       412       412       412   412    412    412
AgentService.BeginDeviceLogin        ok     ok      ok      ok      ok       ok     ok    ok  ok        ok        ok        ok    ok     ok     ok
AgentService.PollDeviceLogin         401    401     401     401     401      401    401   401 401       401       401       401   401    401    401
AgentService.GetDeviceLogin          401    401     401     401     ok       ok     ok    403 403       403       403       403   403    403    403
AgentService.AnswerDeviceLogin       401    401     401     401     ok       ok     ok    403 403       403       403       403   403    403    403
AgentService.CreateLoginLink         401    401     401     401     ok       ok     ok    403 403       403       403       403   403    403    403
AgentService.UpdateProfile           401    401     401     401     ok       ok     ok    403 403       403       403       403   403    403    403
NotificationService.GetNotifications 401    401     401     401     ok       ok     ok    403 403       403       403       403   403    403    403
NotificationService.UpdateNotifications 401    401     401     401     ok       ok     ok    403 403       403       403       403   403    403    403
NotificationService.AddPushDevice    401    401     401     401     ok       ok     ok    403 403       403       403       403   403    403    403
NotificationService.RemovePushDevice 401    401     401     401     404      404    404   403 403       403       403       403   403    403    403
HouseService.CreateHouse             401    401     401     401     ok       ok     ok    403 403       403       403       403   403    403    403
HouseService.ListHouses              401    401     401     401     ok       ok     ok    ok  ok        ok        ok        403   403    403    403

HouseService.GetInvite               401    401     401     401     401      401    401   401 401       401       401       401   401    401    401
HouseService.AcceptInvite            401    401     401     401     401      401    401   403 403       403       403       403   403    403    403

# Of a house. The member who is changed and removed is not the caller.
HouseService.GetHouse                401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
HouseService.ListMembers             401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
HouseService.WatchHouse              401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
HouseService.UpdateHouse             401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
HouseService.DeleteHouse             401    401     401     401     -        403    ok    403 403       403       -         403   403    403    403
HouseService.UpdateMember            401    401     401     401     404      403    ok    403 403       403       404       403   403    403    403
HouseService.RemoveMember            401    401     401     401     404      403    ok    403 403       403       404       403   403    403    403
HouseService.CreateInvite            401    401     401     401     404      403    ok    403 403       403       404       403   403    403    403
HouseService.ListInvites             401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
HouseService.RevokeInvite            401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
HouseService.ListAuditEvents         401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
AgentService.GetAgent                401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
AgentService.ListAgents              401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
AgentService.CreateAgent             401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
BotService.CreateBot                 401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
BotService.GetBot                    401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
BotService.ListBots                  401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
BotService.UpdateBot                 401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
BotService.DeleteBot                 401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
BotService.ListTools                 401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
BotService.ListRuntimes              401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
BotService.CreatePolicy              401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
BotService.UpdatePolicy              401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
BotService.DeletePolicy              401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
ApprovalService.ListApprovals        401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ApprovalService.GetApproval          401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EntryService.Search                  401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
InboxService.GetInbox                401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EnvironmentService.CreateEnvironment 401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EnvironmentService.GetEnvironment    401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EnvironmentService.ListEnvironments  401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EnvironmentService.UpdateEnvironment 401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EnvironmentService.AllowHosts        401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EnvironmentService.DiagnoseEnvironment 401  401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EnvironmentService.DeleteEnvironment 401    401     401     401     -        ok     ok    ok  ok        ok        -         403   403    403    403
SandboxService.GetSandbox            401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
SandboxService.ListSandboxes         401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
SandboxService.ListSandboxAccounts   401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
SandboxService.GetSandboxLog         401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
SandboxService.ReconcileSandboxes    401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
SandboxService.DestroySandbox        401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
SandboxService.WakeSandbox           401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
SandboxService.OpenPreview           401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ThreadService.CreateThread           401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ThreadService.ListThreads            401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
SecretService.SetSecret              401    401     401     401     404      ok     ok    403 ok        ok        404       403   403    403    403
SecretService.ListSecrets            401    401     401     401     404      ok     ok    403 ok        ok        404       403   403    403    403
SecretService.DeleteSecret           401    401     401     401     404      ok     ok    403 ok        ok        404       403   403    403    403
SecretService.RotateSecretKey        401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
ModelService.ListModels              401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ModelService.SetDefaultModel         401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
ModelService.SetFallbackModels       401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
ModelService.SetModelEndpoint        401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403
ModelService.DeleteModelEndpoint     401    401     401     401     404      403    ok    403 403       ok        404       403   403    403    403

# Of a thread, which is all that its tokens can reach. The artifact is one of the thread.
ThreadService.GetThread              401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
EntryService.List                    401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
EntryService.Tail                    401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
EntryService.Say                     401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    403    ok     403
EntryService.Edit                    401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EntryService.Delete                  401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EntryService.React                   401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EntryService.ListEdits               401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
EntryService.WhoAnswers              401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EntryService.ShowTyping              401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    403    ok     403
EntryService.WatchPresence           401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
EntryService.Append                  401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    403    ok     403
ArtifactService.GetArtifact          401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
ArtifactService.ListArtifacts        401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
ArtifactService.CreateArtifact       401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    403    ok     403
ArtifactService.DeleteArtifact       401    401     401     401     -        ok     ok    ok  ok        ok        -         403   403    403    403
ThreadService.UpdateThread           401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ThreadService.DeleteThread           401    401     401     401     -        ok     ok    ok  ok        ok        -         403   403    403    403
ThreadService.ForkThread             401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ThreadService.RunCommand             401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ThreadService.ReadOutput             401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ThreadService.WriteInput             401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ThreadService.CancelCommand          401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
RunService.Delegate                  401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
RunService.ListRuns                  401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
SandboxService.ReadSandboxPath       401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
SandboxService.GetSandboxChanges     401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
RunService.ContinueRun               401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
RunService.CancelRun                 401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
RunService.ListQueue                 401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
RunService.ChangeQueue               401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
RunService.ApplyChanges              401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
RunService.OpenBranch                401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
RunService.ReconcileThread           401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ThreadService.StopTurn               401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
ThreadService.RetryTurn              401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
InboxService.MarkRead                401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
InboxService.MuteThread              401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
# Only people answer. A key that a person made acts in their name.
ApprovalService.AnswerApproval       401    401     401     401     404      ok     ok    403 ok        ok        404       403   403    403    403

# Credentials. A limited one creates no other, and revokes no other API key; a house's key revokes the tokens of its
# threads, which ends access and gives none. The key to revoke is another key of the member.
CredentialService.CreateAPIKey       401    401     401     401     404      ok     ok    403 403       403       404       403   403    403    403
CredentialService.ListAPIKeys        401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
CredentialService.RevokeAPIKey       401    401     401     401     404      ok     ok    403 403       403       404       403   403    403    403
CredentialService.CreateThreadToken  401    401     401     401     404      ok     ok    403 403       403       404       403   403    403    403
CredentialService.RenewThreadToken   401    401     401     401     403      403    403   403 403       403       403       ok    ok     ok     ok
CredentialService.RevokeThreadTokens 401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
`

// codes maps the outcomes in the table to codes.
var codes = map[string]connect.Code{"401": connect.CodeUnauthenticated, "403": connect.CodePermissionDenied, "404": connect.CodeNotFound, "412": connect.CodeFailedPrecondition}

// refusalText returns what the message of a refusal must contain.
func refusalText(procedure, principal, outcome string) []string {
	reasons := map[string]string{
		"nobody": "nobody is logged in", "unknown": "this credential is not known", "expired": "expired", "revoked": "revoked",
		"token": "this token", "reader": "this token", "writer": "this token", "sibling": "valid only for thread",
	}
	switch {
	case procedure == "AgentService.GetLoginLink", procedure == "AgentService.RedeemLoginLink":
		return []string{"this login link is not known"}
	case procedure == "AgentService.PollDeviceLogin":
		return []string{"this login is not known"}
	case procedure == "HouseService.GetInvite",
		procedure == "HouseService.AcceptInvite" && outcome == "401" && (reasons[principal] == "" || principal == "nobody"):
		return []string{"this invite is not known"}
	case outcome == "401", outcome == "403" && reasons[principal] != "":
		return []string{reasons[principal]}
	}
	return nil
}

// things are the targets of calls: one thing of each kind, in one house.
type things struct {
	house, thread, command, environment, sandbox, agent, key, artifact, member, invite, turn, bot, policy, approval string
	// coder is a coding agent, and driven is a thread that it drives.
	coder, driven string
}

// call calls one procedure with some things.
type call func(context.Context, *arbe.Client, things) error

// procedures holds all procedures of the contract. A new procedure needs a line here and in the table.
var procedures = map[string]call{
	"NotificationService.GetNotifications": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Notifications.GetNotifications(ctx, &arbev1.GetNotificationsRequest{}))
	},
	"NotificationService.UpdateNotifications": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Notifications.UpdateNotifications(ctx, &arbev1.UpdateNotificationsRequest{Settings: &arbev1.NotificationSettings{Digest: arbev1.MailDigest_MAIL_DIGEST_OFF}}))
	},
	"NotificationService.AddPushDevice": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Notifications.AddPushDevice(ctx, pushDevice("https://push.example.com/"+rand.Text())))
	},
	"NotificationService.RemovePushDevice": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Notifications.RemovePushDevice(ctx, &arbev1.RemovePushDeviceRequest{Id: "unknown"}))
	},
	"HouseService.CreateHouse": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Houses.CreateHouse(ctx, &arbev1.CreateHouseRequest{Name: "New"}))
	},
	"HouseService.GetHouse": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: of.house}))
	},
	"HouseService.ListHouses": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Houses.ListHouses(ctx, &arbev1.ListHousesRequest{}))
	},
	"HouseService.WatchHouse": func(ctx context.Context, c *arbe.Client, of things) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.Houses.WatchHouse(ctx, &arbev1.WatchHouseRequest{HouseId: of.house})
		if err != nil {
			return err
		}
		stream.Receive()
		return stream.Err()
	},
	"HouseService.UpdateHouse": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: of.house, Name: new("Renamed")}))
	},
	"HouseService.DeleteHouse": func(ctx context.Context, c *arbe.Client, of things) error {
		// All calls share the house, so those who may delete it do not confirm it.
		err := errOf(c.Houses.DeleteHouse(ctx, &arbev1.DeleteHouseRequest{Id: of.house, Name: "not its name"}))
		if connect.CodeOf(err) == connect.CodeInvalidArgument {
			return nil
		}
		return err
	},
	"HouseService.ListMembers": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.ListMembers(ctx, &arbev1.ListMembersRequest{HouseId: of.house}))
	},
	"HouseService.UpdateMember": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.UpdateMember(ctx, &arbev1.UpdateMemberRequest{HouseId: of.house, AgentId: of.member, Role: "owner"}))
	},
	"HouseService.RemoveMember": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.RemoveMember(ctx, &arbev1.RemoveMemberRequest{HouseId: of.house, AgentId: of.member}))
	},
	"HouseService.CreateInvite": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.CreateInvite(ctx, &arbev1.CreateInviteRequest{HouseId: of.house}))
	},
	"HouseService.ListInvites": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.ListInvites(ctx, &arbev1.ListInvitesRequest{HouseId: of.house}))
	},
	"HouseService.RevokeInvite": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.RevokeInvite(ctx, &arbev1.RevokeInviteRequest{HouseId: of.house, Id: of.invite}))
	},
	"HouseService.ListAuditEvents": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.ListAuditEvents(ctx, &arbev1.ListAuditEventsRequest{HouseId: of.house}))
	},
	"HouseService.GetInvite": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Houses.GetInvite(ctx, &arbev1.GetInviteRequest{Token: "unknown"}))
	},
	"HouseService.AcceptInvite": func(ctx context.Context, c *arbe.Client, _ things) error {
		who, err := c.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
		name := "New"
		if err == nil && who.Agent != nil {
			name = "" // the caller already has one
		}
		return errOf(c.Houses.AcceptInvite(ctx, &arbev1.AcceptInviteRequest{Token: "unknown", Name: name}))
	},
	"AgentService.WhoAmI": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{}))
	},
	"AgentService.CreateAgent": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Agents.CreateAgent(ctx, &arbev1.CreateAgentRequest{HouseId: of.house, Name: "Bot", Runtime: "pi"}))
	},
	"BotService.CreateBot": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.CreateBot(ctx, &arbev1.CreateBotRequest{HouseId: of.house, Name: "Bot"}))
	},
	"BotService.GetBot": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.GetBot(ctx, &arbev1.GetBotRequest{HouseId: of.house, Which: &arbev1.GetBotRequest_Id{Id: of.bot}}))
	},
	"BotService.ListBots": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.ListBots(ctx, &arbev1.ListBotsRequest{HouseId: of.house}))
	},
	"BotService.UpdateBot": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.UpdateBot(ctx, &arbev1.UpdateBotRequest{HouseId: of.house, Id: of.bot, Name: new("Renamed")}))
	},
	"BotService.DeleteBot": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.DeleteBot(ctx, &arbev1.DeleteBotRequest{HouseId: of.house, Id: of.bot}))
	},
	"BotService.ListTools": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.ListTools(ctx, &arbev1.ListToolsRequest{HouseId: of.house}))
	},
	"BotService.ListRuntimes": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.ListRuntimes(ctx, &arbev1.ListRuntimesRequest{HouseId: of.house}))
	},
	"EntryService.Search": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.Search(ctx, &arbev1.SearchRequest{HouseId: of.house, Query: "hello"}))
	},
	"InboxService.GetInbox": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Inboxes.GetInbox(ctx, &arbev1.GetInboxRequest{HouseId: of.house, ThreadIds: []string{of.thread}}))
	},
	"InboxService.MarkRead": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Inboxes.MarkRead(ctx, &arbev1.MarkReadRequest{ThreadId: of.thread, Seq: 1}))
	},
	"InboxService.MuteThread": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Inboxes.MuteThread(ctx, &arbev1.MuteThreadRequest{ThreadId: of.thread, Muted: true}))
	},
	"ApprovalService.ListApprovals": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Approvals.ListApprovals(ctx, &arbev1.ListApprovalsRequest{HouseId: of.house}))
	},
	"ApprovalService.GetApproval": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Approvals.GetApproval(ctx, &arbev1.GetApprovalRequest{HouseId: of.house, Id: of.approval}))
	},
	"ApprovalService.AnswerApproval": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Approvals.AnswerApproval(ctx, &arbev1.AnswerApprovalRequest{ThreadId: of.thread, Id: of.approval, Verdict: arbev1.Verdict_VERDICT_APPROVE}))
	},
	"BotService.CreatePolicy": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.CreatePolicy(ctx, &arbev1.CreatePolicyRequest{HouseId: of.house, BotId: of.bot, Trigger: "always"}))
	},
	"BotService.UpdatePolicy": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.UpdatePolicy(ctx, &arbev1.UpdatePolicyRequest{HouseId: of.house, Id: of.policy, Enabled: new(false)}))
	},
	"BotService.DeletePolicy": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Bots.DeletePolicy(ctx, &arbev1.DeletePolicyRequest{HouseId: of.house, Id: of.policy}))
	},
	"AgentService.GetAgent": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Agents.GetAgent(ctx, &arbev1.GetAgentRequest{HouseId: of.house, Id: of.agent}))
	},
	"AgentService.ListAgents": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: of.house}))
	},
	"AgentService.CreateLoginLink": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.CreateLoginLink(ctx, &arbev1.CreateLoginLinkRequest{}))
	},
	"AgentService.UpdateProfile": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.UpdateProfile(ctx, &arbev1.UpdateProfileRequest{Name: "Renamed"}))
	},
	"AgentService.GetLoginLink": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.GetLoginLink(ctx, &arbev1.GetLoginLinkRequest{Token: "unknown"}))
	},
	"AgentService.BeginProviderLogin": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.BeginProviderLogin(ctx, &arbev1.BeginProviderLoginRequest{}))
	},
	"AgentService.FinishProviderLogin": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.FinishProviderLogin(ctx, &arbev1.FinishProviderLoginRequest{}))
	},
	"AgentService.BeginDeviceLogin": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.BeginDeviceLogin(ctx, &arbev1.BeginDeviceLoginRequest{Client: "arbe"}))
	},
	"AgentService.PollDeviceLogin": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.PollDeviceLogin(ctx, &arbev1.PollDeviceLoginRequest{DeviceCode: "unknown"}))
	},
	"AgentService.GetDeviceLogin": func(ctx context.Context, c *arbe.Client, _ things) error {
		begun, err := c.Agents.BeginDeviceLogin(ctx, &arbev1.BeginDeviceLoginRequest{Client: "arbe"})
		if err != nil {
			return err
		}
		return errOf(c.Agents.GetDeviceLogin(ctx, &arbev1.GetDeviceLoginRequest{UserCode: begun.UserCode}))
	},
	"AgentService.AnswerDeviceLogin": func(ctx context.Context, c *arbe.Client, _ things) error {
		begun, err := c.Agents.BeginDeviceLogin(ctx, &arbev1.BeginDeviceLoginRequest{Client: "arbe"})
		if err != nil {
			return err
		}
		return errOf(c.Agents.AnswerDeviceLogin(ctx, &arbev1.AnswerDeviceLoginRequest{UserCode: begun.UserCode, Verdict: arbev1.Verdict_VERDICT_APPROVE}))
	},
	"AgentService.RedeemLoginLink": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.RedeemLoginLink(ctx, &arbev1.RedeemLoginLinkRequest{Token: "unknown"}))
	},
	"AgentService.EndSession": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.EndSession(ctx, &arbev1.EndSessionRequest{}))
	},
	"CredentialService.CreateAPIKey": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Credentials.CreateAPIKey(ctx, &arbev1.CreateAPIKeyRequest{HouseId: of.house, Name: "New"}))
	},
	"CredentialService.ListAPIKeys": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Credentials.ListAPIKeys(ctx, &arbev1.ListAPIKeysRequest{HouseId: of.house}))
	},
	"CredentialService.RevokeAPIKey": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Credentials.RevokeAPIKey(ctx, &arbev1.RevokeAPIKeyRequest{Id: of.key}))
	},
	"CredentialService.CreateThreadToken": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Credentials.CreateThreadToken(ctx, &arbev1.CreateThreadTokenRequest{ThreadId: of.thread}))
	},
	"CredentialService.RenewThreadToken": func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Credentials.RenewThreadToken(ctx, &arbev1.RenewThreadTokenRequest{}))
	},
	"CredentialService.RevokeThreadTokens": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Credentials.RevokeThreadTokens(ctx, &arbev1.RevokeThreadTokensRequest{ThreadId: of.thread}))
	},
	"ThreadService.CreateThread": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: of.house}))
	},
	"ThreadService.GetThread": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: of.thread}))
	},
	"ThreadService.ListThreads": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: of.house}))
	},
	"ThreadService.UpdateThread": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.UpdateThread(ctx, &arbev1.UpdateThreadRequest{Id: of.thread, Name: new("Renamed")}))
	},
	"ThreadService.DeleteThread": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.DeleteThread(ctx, &arbev1.DeleteThreadRequest{Id: of.thread}))
	},
	"ThreadService.ForkThread": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.ForkThread(ctx, &arbev1.ForkThreadRequest{ThreadId: of.thread}))
	},
	"ThreadService.RunCommand": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.RunCommand(ctx, &arbev1.RunCommandRequest{ThreadId: of.thread, What: &arbev1.RunCommandRequest_Command{Command: "true"}}))
	},
	"ThreadService.ReadOutput": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.ReadOutput(ctx, &arbev1.ReadOutputRequest{ThreadId: of.thread, CommandId: of.command}))
	},
	"ThreadService.WriteInput": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.WriteInput(ctx, &arbev1.WriteInputRequest{ThreadId: of.thread, CommandId: of.command}))
	},
	"ThreadService.CancelCommand": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.CancelCommand(ctx, &arbev1.CancelCommandRequest{ThreadId: of.thread, CommandId: of.command}))
	},
	"RunService.Delegate": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Runs.Delegate(ctx, &arbev1.DelegateRequest{HouseId: of.house, Task: "Fix it.", Agent: of.coder}))
	},
	"RunService.ListRuns": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Runs.ListRuns(ctx, &arbev1.ListRunsRequest{ThreadId: of.thread}))
	},
	"RunService.ContinueRun": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Runs.ContinueRun(ctx, &arbev1.ContinueRunRequest{ThreadId: of.driven}))
	},
	"RunService.CancelRun": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Runs.CancelRun(ctx, &arbev1.CancelRunRequest{ThreadId: of.driven}))
	},
	"RunService.ListQueue": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Runs.ListQueue(ctx, &arbev1.ListQueueRequest{ThreadId: of.thread}))
	},
	"RunService.ChangeQueue": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Runs.ChangeQueue(ctx, &arbev1.ChangeQueueRequest{ThreadId: of.driven, EntryId: "queued", Change: &arbev1.ChangeQueueRequest_Edit{Edit: "more"}}))
	},
	"RunService.ApplyChanges": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Runs.ApplyChanges(ctx, &arbev1.ApplyChangesRequest{ThreadId: of.driven}))
	},
	"RunService.OpenBranch": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Runs.OpenBranch(ctx, &arbev1.OpenBranchRequest{ThreadId: of.driven}))
	},
	"RunService.ReconcileThread": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Runs.ReconcileThread(ctx, &arbev1.ReconcileThreadRequest{ThreadId: of.driven}))
	},
	"ThreadService.StopTurn": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.StopTurn(ctx, &arbev1.StopTurnRequest{ThreadId: of.thread, TurnId: of.turn}))
	},
	"ThreadService.RetryTurn": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.RetryTurn(ctx, &arbev1.RetryTurnRequest{ThreadId: of.thread, TurnId: of.turn}))
	},
	"EntryService.WhoAnswers": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.WhoAnswers(ctx, &arbev1.WhoAnswersRequest{ThreadId: of.thread, Text: "hello"}))
	},
	"EntryService.ShowTyping": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.ShowTyping(ctx, &arbev1.ShowTypingRequest{ThreadId: of.thread}))
	},
	"EntryService.Say": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.Say(ctx, &arbev1.SayRequest{ThreadId: of.thread, Text: "hello"}))
	},
	"EntryService.Edit": func(ctx context.Context, c *arbe.Client, of things) error {
		if _, err := c.Entries.Say(ctx, &arbev1.SayRequest{ThreadId: of.thread, Text: "helo"}); err != nil {
			return err
		}
		return errOf(c.Entries.Edit(ctx, &arbev1.EditRequest{ThreadId: of.thread, Text: "hello"}))
	},
	"EntryService.Delete": func(ctx context.Context, c *arbe.Client, of things) error {
		if _, err := c.Entries.Say(ctx, &arbev1.SayRequest{ThreadId: of.thread, Text: "hello"}); err != nil {
			return err
		}
		return errOf(c.Entries.Delete(ctx, &arbev1.DeleteRequest{ThreadId: of.thread}))
	},
	"EntryService.React": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.React(ctx, &arbev1.ReactRequest{ThreadId: of.thread, EntryId: of.command, Emoji: "👍"}))
	},
	"EntryService.ListEdits": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.ListEdits(ctx, &arbev1.ListEditsRequest{ThreadId: of.thread, EntryId: of.command}))
	},
	"EntryService.Append": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.Append(ctx, &arbev1.AppendRequest{ThreadId: of.thread, Type: "chat", Payload: chat("hello")}))
	},
	"EntryService.WatchPresence": func(ctx context.Context, c *arbe.Client, of things) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.Entries.WatchPresence(ctx, &arbev1.WatchPresenceRequest{ThreadId: of.thread})
		if err != nil {
			return err
		}
		stream.Receive()
		return stream.Err()
	},
	"EntryService.List": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.List(ctx, &arbev1.ListRequest{ThreadId: of.thread}))
	},
	"EntryService.Tail": func(ctx context.Context, c *arbe.Client, of things) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.Entries.Tail(ctx, &arbev1.TailRequest{ThreadId: of.thread})
		if err != nil {
			return err
		}
		stream.Receive()
		return stream.Err()
	},
	"EnvironmentService.CreateEnvironment": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.CreateEnvironment(ctx, &arbev1.CreateEnvironmentRequest{HouseId: of.house, Name: "New"}))
	},
	"EnvironmentService.GetEnvironment": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.GetEnvironment(ctx, &arbev1.GetEnvironmentRequest{Id: of.environment}))
	},
	"EnvironmentService.ListEnvironments": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.ListEnvironments(ctx, &arbev1.ListEnvironmentsRequest{HouseId: of.house}))
	},
	"EnvironmentService.UpdateEnvironment": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.UpdateEnvironment(ctx, &arbev1.UpdateEnvironmentRequest{Id: of.environment, Name: new("Renamed")}))
	},
	"EnvironmentService.AllowHosts": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.AllowHosts(ctx, &arbev1.AllowHostsRequest{Id: of.environment, Hosts: []string{"example.com"}}))
	},
	"EnvironmentService.DiagnoseEnvironment": func(ctx context.Context, c *arbe.Client, of things) error {
		stream, err := c.Environments.DiagnoseEnvironment(ctx, &arbev1.DiagnoseEnvironmentRequest{Id: of.environment})
		if err != nil {
			return err
		}
		for stream.Receive() {
		}
		return stream.Err()
	},
	"EnvironmentService.DeleteEnvironment": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.DeleteEnvironment(ctx, &arbev1.DeleteEnvironmentRequest{Id: of.environment}))
	},
	"ArtifactService.CreateArtifact": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Artifacts.CreateArtifact(ctx, &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: of.thread}, Content: []byte("x")}))
	},
	"ArtifactService.GetArtifact": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Artifacts.GetArtifact(ctx, &arbev1.GetArtifactRequest{Id: of.artifact}))
	},
	"ArtifactService.ListArtifacts": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Artifacts.ListArtifacts(ctx, &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_ThreadId{ThreadId: of.thread}}))
	},
	"ArtifactService.DeleteArtifact": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Artifacts.DeleteArtifact(ctx, &arbev1.DeleteArtifactRequest{Id: of.artifact}))
	},
	"SecretService.SetSecret": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Secrets.SetSecret(ctx, &arbev1.SetSecretRequest{HouseId: of.house, Name: "TOKEN", Value: []byte("value")}))
	},
	"SecretService.ListSecrets": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Secrets.ListSecrets(ctx, &arbev1.ListSecretsRequest{HouseId: of.house}))
	},
	"SecretService.DeleteSecret": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Secrets.DeleteSecret(ctx, &arbev1.DeleteSecretRequest{HouseId: of.house, Name: "TOKEN"}))
	},
	"SecretService.RotateSecretKey": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Secrets.RotateSecretKey(ctx, &arbev1.RotateSecretKeyRequest{HouseId: of.house}))
	},
	"ModelService.ListModels": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Models.ListModels(ctx, &arbev1.ListModelsRequest{HouseId: of.house}))
	},
	"ModelService.SetDefaultModel": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Models.SetDefaultModel(ctx, &arbev1.SetDefaultModelRequest{HouseId: of.house, Model: "anthropic/claude"}))
	},
	"ModelService.SetFallbackModels": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Models.SetFallbackModels(ctx, &arbev1.SetFallbackModelsRequest{HouseId: of.house, Models: []string{"anthropic/claude"}}))
	},
	"ModelService.SetModelEndpoint": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Models.SetModelEndpoint(ctx, &arbev1.SetModelEndpointRequest{HouseId: of.house, Name: "lab", BaseUrl: "https://lab.example/v1"}))
	},
	"ModelService.DeleteModelEndpoint": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Models.DeleteModelEndpoint(ctx, &arbev1.DeleteModelEndpointRequest{HouseId: of.house, Name: "lab"}))
	},
	"SandboxService.GetSandbox": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.GetSandbox(ctx, &arbev1.GetSandboxRequest{Id: of.sandbox}))
	},
	"SandboxService.ListSandboxes": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.ListSandboxes(ctx, &arbev1.ListSandboxesRequest{HouseId: of.house}))
	},
	"SandboxService.GetSandboxLog": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.GetSandboxLog(ctx, &arbev1.GetSandboxLogRequest{Id: of.sandbox}))
	},
	"SandboxService.ListSandboxAccounts": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.ListSandboxAccounts(ctx, &arbev1.ListSandboxAccountsRequest{HouseId: of.house}))
	},
	"SandboxService.ReconcileSandboxes": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.ReconcileSandboxes(ctx, &arbev1.ReconcileSandboxesRequest{HouseId: of.house}))
	},
	"SandboxService.DestroySandbox": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.DestroySandbox(ctx, &arbev1.DestroySandboxRequest{Id: of.sandbox}))
	},
	"SandboxService.WakeSandbox": func(ctx context.Context, c *arbe.Client, of things) error {
		_, err := c.WakeSandbox(ctx, of.thread, nil)
		if connect.CodeOf(err) == connect.CodeFailedPrecondition {
			return nil // the caller may do this, but the house has no environment
		}
		return err
	},
	"SandboxService.ReadSandboxPath": func(ctx context.Context, c *arbe.Client, of things) error {
		pieces, err := c.Sandboxes.ReadSandboxPath(ctx, &arbev1.ReadSandboxPathRequest{ThreadId: of.thread, Path: "file"})
		if err != nil {
			return err
		}
		defer pieces.Close()
		pieces.Receive()
		return withoutSandbox(pieces.Err())
	},
	"SandboxService.GetSandboxChanges": func(ctx context.Context, c *arbe.Client, of things) error {
		_, err := c.Sandboxes.GetSandboxChanges(ctx, &arbev1.GetSandboxChangesRequest{ThreadId: of.thread})
		return withoutSandbox(err)
	},
	"SandboxService.OpenPreview": func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.OpenPreview(ctx, &arbev1.OpenPreviewRequest{ThreadId: of.thread, Port: 3000}))
	},
}

func errOf[Response any](_ Response, err error) error { return err }

// withoutSandbox drops the error that an allowed caller gets because the thread has no sandbox.
func withoutSandbox(err error) error {
	if arbe.Reason(err) == string(fault.NoSandbox) {
		return nil
	}
	return err
}

func TestEveryProcedureHasItsLine(t *testing.T) {
	t.Parallel()
	var contract []string
	protoregistry.GlobalFiles.RangeFilesByPackage("arbe.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				contract = append(contract, string(service.Name())+"."+string(service.Methods().Get(j).Name()))
			}
		}
		return true
	})
	for _, name := range contract {
		if procedures[name] == nil {
			t.Errorf("%s is in the contract and has no case", name)
		}
	}
	for name := range procedures {
		if !slices.Contains(contract, name) {
			t.Errorf("%s has a case and is not in the contract", name)
		}
	}
	authtest.Complete(t, authtest.Table(t, access), contract)
}

func TestWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	table := authtest.Table(t, access)
	for name, call := range procedures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var of things // replaced when a successful call used them up
			for _, principal := range authtest.Principals {
				want := table[name][principal]
				t.Run(principal, func(t *testing.T) {
					for what, credential := range cast.Credentials(t, principal) {
						if of.house == "" {
							of = b.things(t, cast, cast.House)
							if strings.HasPrefix(name, "BotService") { // the number of a house's bots is limited
								of.bot, of.policy = b.program(t, cast.House)
							}
						}
						err := call(t.Context(), b.client(credential(t, of.thread)), of)
						code, refusal := codes[want]
						switch {
						case refusal:
							refused(t, err, code, refusalText(name, principal, want)...)
						case err != nil:
							t.Errorf("it is refused: %v", err)
						case want == "-":
							b.mustExist(t, of)
						case want == "ok":
							of = things{}
						}
						if t.Failed() {
							t.Fatalf("that was with %s", what)
						}
					}
				})
			}
		})
	}
}

func TestWhatIsNotThereAndWhatIsAnothersLookTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	unknown := things{"0nosuchh0us", "0nosuchthread", "nosuchcommand", "0nosuchenv", "0nosuchbox", uuid.NewString(), "0nosuchkey", "0nosuchartifact", uuid.NewString(), "0nosuchinvite", "0nosuchturn",
		uuid.NewString(), "0nosuchpolicy", "0nosuchapproval", uuid.NewString(), "0nosuchthread"}
	table := authtest.Table(t, access)
	for name, call := range procedures {
		if outcome := table[name]["outsider"]; outcome != "404" && outcome != "-" || name == "NotificationService.RemovePushDevice" {
			continue // the procedure has no target in a house
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for principal, want := range map[string]string{"member": table[name]["outsider"], "house-key": table[name]["outsider"], "token": "403"} {
				for _, credential := range cast.Credentials(t, principal) {
					c, others := b.client(credential(t, cast.Thread(t, cast.House))), b.things(t, cast, cast.Other)
					if strings.HasPrefix(name, "BotService") {
						others.bot, others.policy = b.program(t, cast.Other)
					}
					notThere, theirs := call(t.Context(), c, unknown), call(t.Context(), c, others)
					if want == "-" {
						if err := errors.Join(notThere, theirs); err != nil {
							t.Errorf("it is refused, want a success without effect: %v", err)
						}
						b.mustExist(t, others)
						continue
					}
					refused(t, notThere, codes[want])
					refused(t, theirs, codes[want])
					if notThere != nil && theirs != nil && shape(notThere) != shape(theirs) {
						t.Errorf("of what is another's it says %q, of what is not there %q", shape(theirs), shape(notThere))
					}
				}
			}
		})
	}
}

func TestALimitedKeySeesOneHouse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.newHouse(t, b.ada, "Ada's annex")
	limited := b.client(b.ada.houseKey(t))

	list, err := limited.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	must(t, err)
	if len(list.Houses) != 1 || list.Houses[0].Id != b.ada.house.Id {
		t.Errorf("it lists %v, want its house", list.Houses)
	}
	who, err := limited.Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
	must(t, err)
	if who.Agent.Id != b.ada.id || who.HouseId != b.ada.house.Id || who.Credential != "api_key" {
		t.Errorf("it is %v", who)
	}
}

// things creates one thing of each kind in a house of the cast.
func (b *bench) things(t *testing.T, cast *authtest.Cast, house string) things {
	t.Helper()
	made := things{house: house, command: "c1", thread: cast.Thread(t, house)}
	made.key, made.agent = cast.Key(t, house)
	made.environment, made.sandbox = b.sandboxes(t, house)
	made.member, made.invite = b.colleague(t, house)
	made.artifact = b.artifactOf(t, made.thread)
	// This command has ended. Cancelling it, reading its output and writing to its input have no effect.
	b.exec(t, `insert into entries (stream_id, seq, house_id, id, type, payload, ts)
		select id, 1, house_id, 'c1', 'command', '{"command":"true","separate":true,"input":true}'::json, now() from streams where name = 'arbe-thread-' || $1
		union all
		select id, 2, house_id, 'c1.result', 'command_result', '{"command_id":"c1"}'::json, now() from streams where name = 'arbe-thread-' || $1`, made.thread)
	// This turn has failed. Stopping it has no effect.
	err := b.owner.QueryRow(t.Context(), `insert into turns (house_id, thread_id, agent_id, entry_id, reason, status, ended_at, asked, asked_seqs)
		values ($1, $2, $3, 'c1', 'mention', 'failed', now(), '{c1}', '{1}') returning id`, house, made.thread, made.agent).Scan(&made.turn)
	must(t, err)
	// This turn waits for a person.
	err = b.owner.QueryRow(t.Context(), `
		with bot as (insert into agents (kind, runtime, name) values ('bot', 'pi', 'Asker') returning id),
		     turn as (insert into turns (house_id, thread_id, agent_id, entry_id, reason, status, due_at, asking_since, asked, asked_seqs)
		       select $1, $2, id, 'c1', 'mention', 'asking', now() + interval '1 day', now(), '{c1}', '{1}' from bot returning id, agent_id)
		insert into approvals (house_id, id, thread_id, turn_id, agent_id, call_id, tool, arguments, expires_at)
		  select $1, left(md5(turn.id), 12), $2, turn.id, agent_id, 'turn.' || turn.id || '.1.call0', 'say', '{"thread_id":"x","text":"hello"}', now() + interval '1 day' from turn returning id`,
		house, made.thread).Scan(&made.approval)
	must(t, err)
	made.coder, made.driven = b.coder(t, cast, house)
	return made
}

// coder creates a coding agent, and an idle thread that it drives, with a waiting message.
func (b *bench) coder(t *testing.T, cast *authtest.Cast, house string) (coder, driven string) {
	t.Helper()
	b.coders.Lock() // a house has one coding agent, whichever test makes it
	defer b.coders.Unlock()
	if err := b.owner.QueryRow(t.Context(), "select agent_id::text from bots where house_id = $1 and handle = 'test-coder'", house).Scan(&coder); err != nil {
		err := b.owner.QueryRow(t.Context(), `
			with a as (insert into agents (kind, runtime, name) values ('bot', 'pi', 'Coder') returning id),
			     m as (insert into members (house_id, agent_id, role) select $1, id, 'member' from a returning agent_id)
			insert into bots (house_id, agent_id, handle, tools) select $1, agent_id, 'test-coder', '{}' from m returning agent_id::text`, house).Scan(&coder)
		must(t, err)
	}
	driven = cast.Thread(t, house)
	b.exec(t, "update threads set agent_id = $2, status = 'completed', run_epoch = 1 where id = $1", driven, coder)
	b.exec(t, `insert into entries (stream_id, seq, house_id, id, type, payload, ts)
		select id, 1, house_id, 'queued', 'chat', '{"text":"more"}'::json, now() from streams where name = 'arbe-thread-' || $1`, driven)
	return coder, driven
}

// sandboxes creates an environment without sandboxes, and a sandbox of another environment.
func (b *bench) sandboxes(t *testing.T, house string) (environment, sandbox string) {
	t.Helper()
	err := b.owner.QueryRow(t.Context(), `
		with spare as (insert into environments (house_id, name) values ($1, 'spare') returning id),
		     built as (insert into environments (house_id, name) values ($1, 'built') returning id),
		     box as (insert into sandboxes (house_id, environment_id, provider, status) select $1, id, 'local', 'dead' from built returning id)
		select spare.id, box.id from spare, box`, house).Scan(&environment, &sandbox)
	must(t, err)
	return environment, sandbox
}

// program adds a bot with a policy to a house.
func (b *bench) program(t *testing.T, house string) (bot, policy string) {
	t.Helper()
	err := b.owner.QueryRow(t.Context(), "insert into agents (kind, runtime, name) values ('bot', 'pi', 'Helper') returning id::text").Scan(&bot)
	must(t, err)
	b.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", house, bot)
	b.exec(t, "insert into bots (house_id, agent_id, handle, tools) values ($1, $2, 'helper-' || left($3, 8), '{}')", house, bot, bot)
	err = b.owner.QueryRow(t.Context(), "insert into activation_policies (house_id, agent_id, name, trigger) values ($1, $2, 'mentions', 'mention') returning id", house, bot).Scan(&policy)
	must(t, err)
	return bot, policy
}

// colleague adds another person to a house, and a used invite from that person.
func (b *bench) colleague(t *testing.T, house string) (member, invite string) {
	t.Helper()
	err := b.owner.QueryRow(t.Context(), "insert into agents (kind, name) values ('human', 'Dee') returning id::text").Scan(&member)
	must(t, err)
	b.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", house, member)
	err = b.owner.QueryRow(t.Context(), `insert into invites (house_id, hash, role, created_by, expires_at, used_at)
		values ($1, $2::text::bytea, 'member', $2::uuid, now() + interval '1 day', now()) returning id`, house, member).Scan(&invite)
	must(t, err)
	return member, invite
}

// mustExist asserts that nothing was deleted.
func (b *bench) mustExist(t *testing.T, of things) {
	t.Helper()
	if n := ask[int](t, b, "select (select count(*) from threads where id = $1) + (select count(*) from environments where id = $2) + (select count(*) from artifacts where id = $3)", of.thread, of.environment, of.artifact); n != 3 {
		t.Errorf("%d of the thread, the environment and the artifact are left, want all", n)
	}
}
