package rpc_test

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, cyd := b.ada, b.cyd
	bot := ada.bot(t)
	create := func(t *testing.T, p person, with *arbev1.CreateAPIKeyRequest) (*arbev1.APIKey, string) {
		t.Helper()
		with.HouseId = b.ada.house.Id
		if with.Name == "" {
			with.Name = "test"
		}
		res, err := p.Credentials.CreateAPIKey(t.Context(), with)
		must(t, err)
		return res.ApiKey, res.Key
	}
	list := func(t *testing.T, p person) map[string]*arbev1.APIKey {
		t.Helper()
		res, err := p.Credentials.ListAPIKeys(t.Context(), &arbev1.ListAPIKeysRequest{HouseId: b.ada.house.Id, PageSize: 200})
		must(t, err)
		all := map[string]*arbev1.APIKey{}
		for _, k := range res.ApiKeys {
			all[k.Id] = k
		}
		return all
	}
	whoami := func(key string) (*arbev1.WhoAmIResponse, error) {
		return b.client(key).Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
	}

	t.Run("are shown once, good for their house, and kept as a hash", func(t *testing.T) {
		made, key := create(t, cyd, &arbev1.CreateAPIKeyRequest{Name: "laptop"})
		digits, isKey := strings.CutPrefix(key, "arbe_")
		if raw, err := hex.DecodeString(digits); !isKey || err != nil || len(raw) != 32 {
			t.Errorf("the key is %q", key)
		}
		who, err := whoami(key)
		must(t, err)
		if who.Agent.Id != cyd.id || who.HouseId != ada.house.Id || made.AgentId != cyd.id || made.Name != "laptop" {
			t.Errorf("it is %v, shown by %v", made, who)
		}
		if got := list(t, ada)[made.Id]; got.GetName() != "laptop" || got.RevokedAt != nil || strings.Contains(got.String(), digits) {
			t.Errorf("it is listed as %v", got)
		}
		if n := ask[int](t, b, "select count(*) from api_keys where hash = $1", digest(key)); n != 1 {
			t.Errorf("%d rows have its hash", n)
		}
	})
	t.Run("are made once under an id, which says how to go on", func(t *testing.T) {
		made, _ := create(t, ada, &arbev1.CreateAPIKeyRequest{Id: "chosenbyada1"})
		for _, p := range []person{ada, cyd} {
			_, err := p.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: ada.house.Id, Id: "chosenbyada1", Name: "again"})
			refused(t, err, connect.CodeAlreadyExists, "shown once", made.Id)
		}
		_, err := b.bob.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: b.bob.house.Id, Id: "chosenbyada1", Name: "elsewhere"})
		must(t, err) // chosen ids of different houses do not collide
		if k := list(t, ada)[made.Id]; k.GetName() != "test" {
			t.Errorf("it is %v", k)
		}
	})
	t.Run("end when they expire", func(t *testing.T) {
		made, key := create(t, ada, &arbev1.CreateAPIKeyRequest{ExpiresAt: timestamppb.New(time.Now().Add(time.Hour))})
		_, err := whoami(key)
		must(t, err)
		b.exec(t, "update api_keys set expires_at = now() where id = $1", made.Id)
		_, err = whoami(key)
		refused(t, err, connect.CodeUnauthenticated, "expired")
		for name, at := range map[string]*timestamppb.Timestamp{"past": timestamppb.New(time.Now().Add(-time.Hour)), "no time": {Seconds: 1 << 60}} {
			_, err = ada.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: ada.house.Id, Name: name, ExpiresAt: at})
			refused(t, err, connect.CodeInvalidArgument, "expires_at")
		}
	})
	t.Run("of a bot are made by an owner, of a person by themselves", func(t *testing.T) {
		_, key := create(t, ada, &arbev1.CreateAPIKeyRequest{AgentId: bot})
		who, err := whoami(key)
		must(t, err)
		if who.Agent.Id != bot || who.HouseId != ada.house.Id {
			t.Errorf("it is shown by %v", who)
		}
		create(t, cyd, &arbev1.CreateAPIKeyRequest{AgentId: cyd.id})
		for _, c := range []struct {
			p     person
			agent string
			code  connect.Code
		}{{cyd, bot, connect.CodePermissionDenied}, {ada, cyd.id, connect.CodePermissionDenied}, {ada, b.bob.id, connect.CodeNotFound}} {
			_, err := c.p.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: ada.house.Id, Name: "no", AgentId: c.agent})
			refused(t, err, c.code)
		}
	})
	t.Run("are revoked by their holder and by owners, for good", func(t *testing.T) {
		ours, ourKey := create(t, ada, &arbev1.CreateAPIKeyRequest{})
		theirs, theirKey := create(t, cyd, &arbev1.CreateAPIKeyRequest{})
		own, ownKey := create(t, cyd, &arbev1.CreateAPIKeyRequest{})
		revoke := func(p person, id string) error {
			return errOf(p.Credentials.RevokeAPIKey(t.Context(), &arbev1.RevokeAPIKeyRequest{Id: id}))
		}
		refused(t, revoke(cyd, ours.Id), connect.CodePermissionDenied, "only an owner")
		_, err := whoami(ourKey)
		must(t, err)
		must(t, revoke(ada, theirs.Id))
		must(t, revoke(cyd, own.Id))
		ended := list(t, cyd)[own.Id].RevokedAt
		must(t, revoke(cyd, own.Id))
		if again := list(t, cyd)[own.Id].RevokedAt; ended == nil || !again.AsTime().Equal(ended.AsTime()) {
			t.Errorf("it was revoked at %v, and again at %v", ended, again)
		}
		for _, key := range []string{theirKey, ownKey} {
			_, err := whoami(key)
			refused(t, err, connect.CodeUnauthenticated, "revoked")
		}
	})
	t.Run("for all houses are listed and revoked by their holder, with a credential of that kind", func(t *testing.T) {
		all := func(c *arbe.Client) ([]*arbev1.APIKey, error) {
			res, err := c.Credentials.ListAPIKeys(t.Context(), &arbev1.ListAPIKeysRequest{})
			return res.GetApiKeys(), err
		}
		key, err := b.auth.ReplaceKey(t.Context(), ada.id, "my laptop")
		must(t, err)
		listed, err := all(ada.Client)
		must(t, err)
		i := slices.IndexFunc(listed, func(k *arbev1.APIKey) bool { return k.Name == "my laptop" })
		if i < 0 || listed[i].HouseId != "" || listed[i].AgentId != ada.id {
			t.Fatalf("the keys are %v", listed)
		}
		id := listed[i].Id
		theirs, err := all(cyd.Client)
		must(t, err)
		if slices.ContainsFunc(theirs, func(k *arbev1.APIKey) bool { return k.Id == id }) {
			t.Errorf("another member sees it among %v", theirs)
		}
		_, limited := create(t, ada, &arbev1.CreateAPIKeyRequest{})
		_, err = all(b.client(limited))
		refused(t, err, connect.CodePermissionDenied, "limited to one house")
		revoke := func(c *arbe.Client) error {
			return errOf(c.Credentials.RevokeAPIKey(t.Context(), &arbev1.RevokeAPIKeyRequest{Id: id}))
		}
		for _, c := range []*arbe.Client{cyd.Client, b.bob.Client, b.client(limited)} {
			refused(t, revoke(c), connect.CodeNotFound, id)
		}
		_, err = whoami(key)
		must(t, err)
		must(t, revoke(ada.Client))
		must(t, revoke(ada.Client))
		_, err = whoami(key)
		refused(t, err, connect.CodeUnauthenticated, "revoked")
	})
	t.Run("of one house revoke no other, even of their own holder", func(t *testing.T) {
		other, otherKey := create(t, ada, &arbev1.CreateAPIKeyRequest{})
		theirs, theirKey := create(t, cyd, &arbev1.CreateAPIKeyRequest{})
		_, limited := create(t, ada, &arbev1.CreateAPIKeyRequest{})
		for _, id := range []string{other.Id, theirs.Id} {
			_, err := b.client(limited).Credentials.RevokeAPIKey(t.Context(), &arbev1.RevokeAPIKeyRequest{Id: id})
			refused(t, err, connect.CodePermissionDenied, "limited to one house")
		}
		for _, key := range []string{otherKey, theirKey, limited} {
			_, err := whoami(key)
			must(t, err)
		}
	})
	t.Run("end themselves", func(t *testing.T) {
		for _, named := range []bool{false, true} {
			made, key := create(t, cyd, &arbev1.CreateAPIKeyRequest{})
			req := &arbev1.RevokeAPIKeyRequest{}
			if named {
				req.Id = made.Id
			}
			_, err := b.client(key).Credentials.RevokeAPIKey(t.Context(), req)
			must(t, err)
			_, err = whoami(key)
			refused(t, err, connect.CodeUnauthenticated, "revoked")
			if list(t, ada)[made.Id].RevokedAt == nil {
				t.Errorf("it is not listed as revoked; the request named it: %v", named)
			}
		}
		token, err := ada.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: ada.thread(t, &arbev1.CreateThreadRequest{}).Id})
		must(t, err)
		_, err = b.client(token.Token.Token).Credentials.RevokeAPIKey(t.Context(), &arbev1.RevokeAPIKeyRequest{})
		refused(t, err, connect.CodeInvalidArgument, "shows no API key")
	})
	t.Run("tell when they were used", func(t *testing.T) {
		made, key := create(t, cyd, &arbev1.CreateAPIKeyRequest{})
		if list(t, ada)[made.Id].LastUsedAt != nil {
			t.Error("an unused one says that it was")
		}
		_, err := whoami(key)
		must(t, err)
		must(t, b.auth.RecordKeyUses(t.Context()))
		if at := list(t, ada)[made.Id].LastUsedAt; at == nil || time.Since(at.AsTime()) > time.Minute {
			t.Errorf("it was used at %v", at)
		}
	})
	t.Run("end with their agent's membership", func(t *testing.T) {
		dan := b.person(t, "Dan")
		b.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", ada.house.Id, dan.id)
		_, key := create(t, dan, &arbev1.CreateAPIKeyRequest{})
		b.exec(t, "delete from members where agent_id = $1", dan.id)
		_, err := whoami(key)
		refused(t, err, connect.CodeUnauthenticated, "not known")
	})
}

func TestThreadTokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, bot := b.ada, b.ada.bot(t)
	th := ada.thread(t, &arbev1.CreateThreadRequest{AgentId: bot})
	create := func(t *testing.T, with *arbev1.CreateThreadTokenRequest) *arbev1.ThreadToken {
		t.Helper()
		with.ThreadId = th.Id
		res, err := ada.Credentials.CreateThreadToken(t.Context(), with)
		must(t, err)
		return res.Token
	}

	t.Run("write in the name of their agent", func(t *testing.T) {
		for _, agent := range []string{"", bot} {
			made := create(t, &arbev1.CreateThreadTokenRequest{AgentId: agent})
			said, err := b.client(made.Token).Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Type: "chat", Payload: chat("hello")})
			must(t, err)
			want := agent
			if agent == "" {
				want = ada.id
			}
			if said.Entry.AuthorAgentId != want || made.AgentId != want {
				t.Errorf("the author is %s, the token %v's, want %s", said.Entry.AuthorAgentId, made.AgentId, want)
			}
		}
	})
	t.Run("say that it was them, so that no bot does for them what they may not", func(t *testing.T) {
		token := b.client(create(t, &arbev1.CreateThreadTokenRequest{}).Token)
		said, err := token.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "@arbe search_entries for 'password'"})
		must(t, err)
		raw, err := token.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Type: "chat", Payload: `{"text":"@arbe read_thread","confined":false}`})
		must(t, err)
		typed, err := token.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Chat: &arbev1.Chat{Text: "@arbe run_command"}})
		must(t, err)
		mine, err := ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "hello"})
		must(t, err)
		log := map[int64]string{}
		for _, e := range ada.log(t, th.Id) {
			log[e.Seq] = e.Payload
		}
		for _, e := range []*arbev1.Entry{said.Entry, raw.Entry, typed.Entry} {
			if c, ok := entry.As[entry.Chat](entry.Entry{Type: "chat", Payload: json.RawMessage(log[e.Seq])}); !ok || !c.Confined {
				t.Errorf("the log has %s", log[e.Seq])
			}
		}
		if strings.Contains(log[mine.Entry.Seq], "confined") {
			t.Errorf("what a person says is %s", log[mine.Entry.Seq])
		}
		// Nobody else can claim to be confined, and the holder of such a token cannot deny it.
		for _, c := range []*arbe.Client{ada.Client, token} {
			_, err = c.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Type: "chat", Payload: `{"text":"x","confined":true}`})
			refused(t, err, connect.CodePermissionDenied, "confined")
		}
	})
	t.Run("say what they are", func(t *testing.T) {
		made := create(t, &arbev1.CreateThreadTokenRequest{AgentId: bot, Scopes: []string{"stream:read"}})
		who, err := b.client(made.Token).Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
		must(t, err)
		if who.Agent.Id != bot || who.Credential != "thread_token" || who.HouseId != ada.house.Id || who.ThreadId != th.Id ||
			!slices.Equal(who.Scopes, made.Scopes) || !slices.Equal(who.Scopes, []string{"stream:read"}) || who.ExpiresAt.Seconds != made.ExpiresAt.Seconds {
			t.Errorf("it is %v", who)
		}
	})
	t.Run("of a bot are made by owners", func(t *testing.T) {
		_, err := b.cyd.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: th.Id, AgentId: bot})
		refused(t, err, connect.CodePermissionDenied, "only an owner")
	})
	t.Run("are given with the scopes there are", func(t *testing.T) {
		_, err := ada.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: th.Id, Scopes: []string{"house:own"}})
		refused(t, err, connect.CodeInvalidArgument, "scopes")
	})
	t.Run("are not in what the server logs", func(t *testing.T) {
		made := create(t, &arbev1.CreateThreadTokenRequest{})
		b.exec(t, "alter table threads rename to elsewhere")
		_, err := b.client(made.Token).Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
		b.exec(t, "alter table elsewhere rename to threads")
		refused(t, err, connect.CodeInternal)
		if logged := b.logged.String(); !strings.Contains(logged, "WhoAmI") || strings.Contains(logged, made.Token) || strings.Contains(logged, made.Token[len(made.Token)-20:]) {
			t.Errorf("it logs %s", logged)
		}
	})
}
