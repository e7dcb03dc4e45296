package rpc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// audit returns the audit log of p's house, newest first.
func (p person) audit(t *testing.T) (all []*arbev1.AuditEvent) {
	t.Helper()
	for token := ""; ; {
		res, err := p.Houses.ListAuditEvents(t.Context(), &arbev1.ListAuditEventsRequest{HouseId: p.house.Id, PageSize: 200, PageToken: token})
		must(t, err)
		all = append(all, res.Events...)
		if token = res.NextPageToken; token == "" {
			return all
		}
	}
}

// event describes an event in one line: its action, the kind and name of its subject, and its changes.
func event(e *arbev1.AuditEvent) string {
	text := e.Action + " " + e.SubjectKind + " " + e.SubjectName
	for _, c := range e.Changes {
		switch {
		case c.Before == nil && c.After == nil:
			text += " " + c.Field
		case strings.HasSuffix(c.Field, "_at") || strings.HasSuffix(c.Field, "_id"):
			text += " " + c.Field + "=…"
		default:
			text += fmt.Sprintf(" %s=%s→%s", c.Field, c.GetBefore(), c.GetAfter())
		}
	}
	return text
}

// Each operation is done by a service, and each of its events names who did it.
func TestEachChangeInTheAdministrationOfAHouseIsInItsAuditLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, house, ctx := b.ada, b.ada.house.Id, t.Context()
	const value = "sk-a-value-that-no-log-may-have"
	var invite *arbev1.Invite
	var token, bot, policy, environment, key, thread string
	for _, c := range []struct {
		name string
		do   func() error
		want []string // sorted
	}{
		{"renaming the house", func() error {
			return errOf(ada.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: house, Name: new("Home")}))
		}, []string{"changed house Home name=Ada's→Home"}},
		{"limiting the house, and what its bots ask for", func() error {
			return errOf(ada.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: house, Limits: &arbev1.HouseLimits{HouseUsdDay: 7}, Ask: &arbev1.Names{Values: []string{"say"}}}))
		}, []string{`changed house Home ask=[]→["say"] limits={}→{"house_usd_day": 7}`}},
		{"changing nothing", func() error {
			return errOf(ada.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: house, Name: new("Home")}))
		}, nil},
		{"inviting", func() error {
			invite, token = ada.invite(t, &arbev1.CreateInviteRequest{Note: "for Dee"})
			return nil
		}, []string{"created invite for Dee expires_at=… role=→member"}},
		{"revoking an invite", func() error {
			return errOf(ada.Houses.RevokeInvite(ctx, &arbev1.RevokeInviteRequest{HouseId: house, Id: invite.Id}))
		}, []string{"changed invite for Dee revoked_at=…"}},
		{"making an owner", func() error { return ada.setRole(t, b.cyd.id, "owner") }, []string{"changed member Cyd role=member→owner"}},
		{"making an owner a member", func() error { return ada.setRole(t, b.cyd.id, "member") }, []string{"changed member Cyd role=owner→member"}},
		{"removing a member", func() error { return ada.remove(t, b.cyd.id) }, []string{"deleted member Cyd"}},
		{"creating a bot", func() error {
			res, err := ada.Bots.CreateBot(ctx, &arbev1.CreateBotRequest{HouseId: house, Handle: "critic", Instructions: value})
			bot = res.GetBot().GetId()
			return err
		}, []string{"created bot @critic policies role=→member"}},
		{"changing a bot", func() error {
			return errOf(ada.Bots.UpdateBot(ctx, &arbev1.UpdateBotRequest{HouseId: house, Id: bot, Handle: new("reviewer"), Name: new("Reviewer"), Instructions: new(value + "2")}))
		}, []string{"changed bot @reviewer handle=critic→reviewer instructions name=critic→Reviewer"}},
		{"a policy of a bot", func() error {
			res, err := ada.Bots.CreatePolicy(ctx, &arbev1.CreatePolicyRequest{HouseId: house, BotId: bot, Trigger: "always"})
			policy = res.GetPolicy().GetId()
			return err
		}, []string{"changed bot @reviewer policies"}},
		{"changing the policy", func() error {
			return errOf(ada.Bots.UpdatePolicy(ctx, &arbev1.UpdatePolicyRequest{HouseId: house, Id: policy, Enabled: new(false)}))
		}, []string{"changed bot @reviewer policies"}},
		{"deleting the policy", func() error {
			return errOf(ada.Bots.DeletePolicy(ctx, &arbev1.DeletePolicyRequest{HouseId: house, Id: policy}))
		}, []string{"changed bot @reviewer policies"}},
		{"deleting a bot", func() error {
			return errOf(ada.Bots.DeleteBot(ctx, &arbev1.DeleteBotRequest{HouseId: house, Id: bot}))
		}, []string{"deleted bot @reviewer"}},
		{"setting a secret", func() error {
			return errOf(ada.Secrets.SetSecret(ctx, &arbev1.SetSecretRequest{HouseId: house, Name: "TOKEN", Value: []byte(value)}))
		}, []string{"created secret TOKEN"}},
		{"setting it again", func() error {
			return errOf(ada.Secrets.SetSecret(ctx, &arbev1.SetSecretRequest{HouseId: house, Name: "TOKEN", Value: []byte(value + "2")}))
		}, []string{"changed secret TOKEN value"}},
		{"a new key for all secrets", func() error {
			return errOf(ada.Secrets.RotateSecretKey(ctx, &arbev1.RotateSecretKeyRequest{HouseId: house}))
		}, []string{"changed house Home secret_key"}},
		{"deleting a secret", func() error {
			return errOf(ada.Secrets.DeleteSecret(ctx, &arbev1.DeleteSecretRequest{HouseId: house, Name: "TOKEN"}))
		}, []string{"deleted secret TOKEN"}},
		{"the key of a provider", func() error {
			return errOf(ada.Secrets.SetSecret(ctx, &arbev1.SetSecretRequest{HouseId: house, Name: "OPENAI_API_KEY", Value: []byte(value), SkipCheck: true}))
		}, []string{"created secret OPENAI_API_KEY"}},
		{"a model server with a key", func() error {
			return errOf(ada.Models.SetModelEndpoint(ctx, &arbev1.SetModelEndpointRequest{HouseId: house, Name: "lab", BaseUrl: "https://models.example.com/v1", Key: value, SkipCheck: true}))
		}, []string{"created model_endpoint lab dialect=→chat secret_name=→MODEL_LAB_KEY", "created secret MODEL_LAB_KEY"}},
		{"the default model", func() error {
			return errOf(ada.Models.SetDefaultModel(ctx, &arbev1.SetDefaultModelRequest{HouseId: house, Model: "lab/large", SkipCheck: true}))
		}, []string{"changed house Home default_model=→lab/large"}},
		{"the fallback models", func() error {
			return errOf(ada.Models.SetFallbackModels(ctx, &arbev1.SetFallbackModelsRequest{HouseId: house, Models: []string{"lab/small"}, SkipCheck: true}))
		}, []string{`changed house Home fallback_models=[]→["lab/small"]`}},
		{"deleting a model server", func() error {
			return errOf(ada.Models.DeleteModelEndpoint(ctx, &arbev1.DeleteModelEndpointRequest{HouseId: house, Name: "lab"}))
		}, []string{"deleted model_endpoint lab", "deleted secret MODEL_LAB_KEY"}},
		{"creating an environment", func() error {
			res, err := ada.Environments.CreateEnvironment(ctx, &arbev1.CreateEnvironmentRequest{HouseId: house, Name: "go"})
			environment = res.GetEnvironment().GetId()
			return err
		}, []string{"created environment go"}},
		{"changing an environment", func() error {
			return errOf(ada.Environments.UpdateEnvironment(ctx, &arbev1.UpdateEnvironmentRequest{Id: environment, Name: new("golang"), Config: &arbev1.EnvironmentConfig{Driver: "local", Setup: value}}))
		}, []string{"changed environment golang config name=go→golang"}},
		{"deleting an environment", func() error {
			return errOf(ada.Environments.DeleteEnvironment(ctx, &arbev1.DeleteEnvironmentRequest{Id: environment}))
		}, []string{"deleted environment golang"}},
		{"creating an API key", func() error {
			res, err := ada.Credentials.CreateAPIKey(ctx, &arbev1.CreateAPIKeyRequest{HouseId: house, Name: "ci"})
			key = res.GetApiKey().GetId()
			return err
		}, []string{"created api_key ci agent_id=…"}},
		{"revoking an API key", func() error {
			return errOf(ada.Credentials.RevokeAPIKey(ctx, &arbev1.RevokeAPIKeyRequest{Id: key}))
		}, []string{"changed api_key ci revoked_at=…"}},
		{"creating a thread, and saying something", func() error {
			thread = ada.thread(t, &arbev1.CreateThreadRequest{Name: "Old"}).Id
			ada.say(t, thread, "hello")
			return nil
		}, nil},
		{"revoking the tokens of a thread", func() error {
			return errOf(ada.Credentials.RevokeThreadTokens(ctx, &arbev1.RevokeThreadTokensRequest{ThreadId: thread}))
		}, []string{"changed thread Old tokens"}},
		{"deleting a thread", func() error {
			return errOf(ada.Threads.DeleteThread(ctx, &arbev1.DeleteThreadRequest{Id: thread}))
		}, []string{"deleted thread Old"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(ada.audit(t))
			must(t, c.do())
			all := ada.audit(t)
			var got []string
			for _, e := range all[:len(all)-before] {
				got = append(got, event(e))
				if e.ActorAgentId != ada.id || e.ActorName != "Ada" || e.ActorKind != "human" || e.Via != "api" || e.KeyName != "test" || e.At == nil || e.SubjectId == "" {
					t.Errorf("the event is %v", e)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
	t.Run("no event has a value, a key, a token or a hash", func(t *testing.T) {
		text := ask[string](t, b, "select string_agg(e::text, ' ') from audit_events e")
		for _, hidden := range []string{value, token, ada.key, "\\\\x"} {
			if strings.Contains(text, hidden) {
				t.Errorf("the log has %q", hidden)
			}
		}
	})
}

func TestAuditLogSaysWhoJoined(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := len(b.ada.audit(t))
	_, token := b.ada.invite(t, &arbev1.CreateInviteRequest{})
	res, err := b.client("").Houses.AcceptInvite(t.Context(), &arbev1.AcceptInviteRequest{Token: token, Name: "Dee"})
	must(t, err)
	all := b.ada.audit(t)
	var got []string
	for _, e := range all[:len(all)-before] {
		got = append(got, e.ActorName+" "+event(e))
	}
	slices.Sort(got)
	want := []string{"Ada created invite  expires_at=… role=→member", "Dee changed invite  used_at=…", "Dee created member Dee role=→member"}
	if !slices.Equal(got, want) || all[0].ActorAgentId != res.Agent.Id || all[0].Via != "" {
		t.Errorf("the log has %q", got)
	}
}

func TestAuditLogHasTheRolesOfGroups(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		roles map[string]string
		want  string
	}{
		{map[string]string{b.ada.house.Id: "owner"}, "Cyd changed member Cyd group_role=→owner role=member→owner"},
		{nil, "Cyd changed member Cyd group_role=owner→ role=owner→member"},
	} {
		before := len(b.ada.audit(t))
		must(t, errOf(b.houses.FollowGroups(t.Context(), b.cyd.id, "Example", c.roles)))
		all := b.ada.audit(t)
		if got := all[0].ActorName + " " + event(all[0]); got != c.want || len(all) != before+1 {
			t.Errorf("the log has %d new events, the last is %q, want %q", len(all)-before, got, c.want)
		}
	}
}

func TestAuditLogSaysHowSomebodySpoke(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const odd = "'; drop table houses; --é"
	key, err := b.auth.ReplaceKey(t.Context(), b.ada.id, odd)
	must(t, err)
	var session string
	must(t, b.DB.In(t.Context(), db.Scope{Agent: b.ada.id}, func(tx pgx.Tx) (err error) {
		session, _, err = b.auth.StartSessionTx(t.Context(), tx, b.ada.id)
		return err
	}))
	for want, header := range map[string]string{
		"api test":   "Authorization: Bearer " + b.ada.key,
		"cli test":   "Authorization: Bearer " + b.ada.key + "\nUser-Agent: " + arbev1.CLIAgent + "/1",
		"api " + odd: "Authorization: Bearer " + key,
		"api ":       "Authorization: Bearer " + session,
		"browser ":   "Cookie: " + auth.SessionCookie + "=" + session,
	} {
		body, err := json.Marshal(map[string]string{"id": b.ada.house.Id, "name": "by " + want + "!"})
		must(t, err)
		req, err := http.NewRequestWithContext(t.Context(), "POST", b.url+arbev1connect.HouseServiceUpdateHouseProcedure, bytes.NewReader(body))
		must(t, err)
		for line := range strings.Lines("Content-Type: application/json\nSec-Fetch-Site: same-origin\n" + header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			req.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		res.Body.Close()
		e := b.ada.audit(t)[0]
		if got := e.Via + " " + e.KeyName; res.StatusCode != 200 || got != want || e.SubjectName != "by "+want+"!" {
			t.Errorf("status %d, and the log has %q, want %q: %v", res.StatusCode, got, want, e)
		}
	}
}

func TestAuditLogIsForTheOwnersOfItsHouse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	list := func(p person, house string) error {
		return errOf(p.Houses.ListAuditEvents(t.Context(), &arbev1.ListAuditEventsRequest{HouseId: house}))
	}
	refused(t, list(b.cyd, b.ada.house.Id), connect.CodePermissionDenied, "only an owner")
	refused(t, list(b.bob, b.ada.house.Id), connect.CodeNotFound)
	for _, e := range b.bob.audit(t) {
		if e.ActorAgentId != b.bob.id {
			t.Errorf("the log of another house has %v", e)
		}
	}
}

func TestAuditLogHasPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	whole := idsOf(b.ada.audit(t))
	var got []string
	for token := ""; ; {
		res, err := b.ada.Houses.ListAuditEvents(t.Context(), &arbev1.ListAuditEventsRequest{HouseId: b.ada.house.Id, PageSize: 2, PageToken: token})
		must(t, err)
		got = append(got, idsOf(res.Events)...)
		if token = res.NextPageToken; token == "" {
			break
		}
	}
	if len(whole) < 5 || !slices.Equal(got, whole) {
		t.Errorf("the pages have %v, want %v", got, whole)
	}
}

func TestOldAuditEventsAreDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := idsOf(b.ada.audit(t))
	b.exec(t, "update audit_events set at = now() - interval '2 days' where id = $1", all[0])
	for _, keep := range []time.Duration{0, 72 * time.Hour} {
		must(t, b.houses.DropAuditEvents(t.Context(), keep))
		if got := idsOf(b.ada.audit(t)); len(got) != len(all) {
			t.Errorf("with %v, %d events are left, want %d", keep, len(got), len(all))
		}
	}
	must(t, b.houses.DropAuditEvents(t.Context(), 24*time.Hour))
	if got := idsOf(b.ada.audit(t)); !slices.Equal(got, all[1:]) {
		t.Errorf("the events left are %v, want %v", got, all[1:])
	}
}
