package rpc_test

import (
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/arbe-dev/arbe/internal/bot"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// invite creates an invite of p to p's house, and returns it with its token.
func (p person) invite(t *testing.T, with *arbev1.CreateInviteRequest) (invite *arbev1.Invite, token string) {
	t.Helper()
	with.HouseId = p.house.Id
	res, err := p.Houses.CreateInvite(t.Context(), with)
	must(t, err)
	_, query, ok := strings.Cut(res.Path, "/join?")
	values, err := url.ParseQuery(query)
	if !ok || err != nil || values.Get("token") == "" {
		t.Fatalf("the link is %q", res.Path)
	}
	return res.Invite, values.Get("token")
}

// accept accepts an invite as p.
func (p person) accept(t *testing.T, token string) (*arbev1.AcceptInviteResponse, error) {
	return p.Houses.AcceptInvite(t.Context(), &arbev1.AcceptInviteRequest{Token: token})
}

// remove removes a member from p's house.
func (p person) remove(t *testing.T, agent string) error {
	return errOf(p.Houses.RemoveMember(t.Context(), &arbev1.RemoveMemberRequest{HouseId: p.house.Id, AgentId: agent}))
}

// setRole changes a member's role in p's house.
func (p person) setRole(t *testing.T, agent, role string) error {
	return errOf(p.Houses.UpdateMember(t.Context(), &arbev1.UpdateMemberRequest{HouseId: p.house.Id, AgentId: agent, Role: role}))
}

// join adds q to p's house, and returns q with that house.
func (b *bench) join(t *testing.T, p, q person, role string) person {
	t.Helper()
	_, token := p.invite(t, &arbev1.CreateInviteRequest{Role: role})
	res, err := q.accept(t, token)
	must(t, err)
	if res.House.Id != p.house.Id || res.House.Role != role || res.Agent.Id != q.id || res.Session != "" {
		t.Errorf("joining answers %v", res)
	}
	q.house = p.house
	return q
}

// roles returns the roles of the members of p's house by their ids.
func (p person) roles(t *testing.T) map[string]string {
	t.Helper()
	res, err := p.Houses.ListMembers(t.Context(), &arbev1.ListMembersRequest{HouseId: p.house.Id})
	must(t, err)
	roles := map[string]string{}
	for _, m := range res.Members {
		roles[m.Agent.Id] = m.Role
	}
	return roles
}

// history returns the types and payloads of the entries in the house's primary thread after the first one.
func (p person) history(t *testing.T) (all []string) {
	t.Helper()
	for _, e := range p.log(t, p.house.PrimaryThreadId)[1:] {
		all = append(all, e.Type+" "+e.Payload)
	}
	return all
}

func TestInvite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, anyone := b.ada, b.client("").Houses
	get := func(token string) (*arbev1.GetInviteResponse, error) {
		return anyone.GetInvite(t.Context(), &arbev1.GetInviteRequest{Token: token})
	}
	join := func(token, name string) (*arbev1.AcceptInviteResponse, error) {
		return anyone.AcceptInvite(t.Context(), &arbev1.AcceptInviteRequest{Token: token, Name: name})
	}

	t.Run("tells whoever has the link what it is for, and stays good", func(t *testing.T) {
		_, token := ada.invite(t, &arbev1.CreateInviteRequest{})
		for range 3 {
			got, err := get(token)
			must(t, err)
			if got.HouseId != ada.house.Id || got.HouseName != "Ada's" || got.InvitedBy != "Ada" || got.Role != "member" {
				t.Errorf("it says %v", got)
			}
		}
	})
	t.Run("makes a new person, a member with a session", func(t *testing.T) {
		made, token := ada.invite(t, &arbev1.CreateInviteRequest{Note: "Dee from work"})
		res, err := join(token, " Dee ")
		must(t, err)
		if res.Agent.Name != "Dee" || res.Agent.Kind != "human" || res.House.Id != ada.house.Id || res.House.Role != "member" {
			t.Errorf("joining answers %v", res)
		}
		dee := b.client(res.Session)
		who, err := dee.Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
		must(t, err)
		if who.Agent.Id != res.Agent.Id || who.Credential != "session" {
			t.Errorf("the session is of %v", who)
		}
		_, err = dee.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: ada.house.PrimaryThreadId, Text: "hello"})
		must(t, err)
		history := ada.history(t)
		for _, want := range []string{
			`signal.house.invited {"invite_id":"` + made.Id + `","role":"member","note":"Dee from work","by":"Ada"}`,
			`signal.house.member_joined {"agent_id":"` + res.Agent.Id + `","name":"Dee","role":"member","invite_id":"` + made.Id + `","invited_by":"Ada"}`,
		} {
			if !slices.Contains(history, want) {
				t.Errorf("the house's log has %q, want %s", history, want)
			}
		}
		_, err = join(token, "Eve")
		refused(t, err, connect.CodeUnauthenticated, "already used")
		_, err = get(token)
		refused(t, err, connect.CodeUnauthenticated, "already used")
	})
	t.Run("takes a person who is logged in, as what it says, and again does nothing", func(t *testing.T) {
		before := len(ada.history(t))
		made, token := ada.invite(t, &arbev1.CreateInviteRequest{Role: "owner"})
		_, err := b.bob.Houses.AcceptInvite(t.Context(), &arbev1.AcceptInviteRequest{Token: token, Name: "Robert"})
		refused(t, err, connect.CodeInvalidArgument, "name")
		for range 2 {
			res, err := b.bob.accept(t, token)
			must(t, err)
			if res.House.Id != ada.house.Id || res.House.Role != "owner" || res.Agent.Id != b.bob.id || res.Session != "" {
				t.Errorf("joining answers %v", res)
			}
		}
		if logged := ada.history(t)[before:]; len(logged) != 2 || !strings.Contains(logged[1], made.Id) {
			t.Errorf("the log has %q", logged)
		}
	})
	t.Run("of a member stays good for somebody else", func(t *testing.T) {
		_, token := ada.invite(t, &arbev1.CreateInviteRequest{Role: "owner"})
		res, err := b.cyd.accept(t, token)
		must(t, err)
		if res.House.Role != "member" {
			t.Errorf("Cyd is %s", res.House.Role)
		}
		_, err = get(token)
		must(t, err)
	})
	t.Run("accepted by many at once lets one in", func(t *testing.T) {
		members, people := len(ada.roles(t)), ask[int](t, b, "select count(*) from agents")
		_, token := ada.invite(t, &arbev1.CreateInviteRequest{})
		var in atomic.Int64
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				if _, err := join(token, "Many"); err == nil {
					in.Add(1)
				} else {
					refused(t, err, connect.CodeUnauthenticated, "already used")
				}
			})
		}
		work.Wait()
		if in.Load() != 1 || len(ada.roles(t)) != members+1 || ask[int](t, b, "select count(*) from agents") != people+1 {
			t.Errorf("%d came in, the house has %d members after %d", in.Load(), len(ada.roles(t)), members)
		}
	})
	t.Run("lasts seven days, or as long as its owner says", func(t *testing.T) {
		for lasts, want := range map[time.Duration]time.Duration{0: 7 * 24 * time.Hour, time.Hour: time.Hour, 30 * 24 * time.Hour: 30 * 24 * time.Hour} {
			with := &arbev1.CreateInviteRequest{}
			if lasts > 0 {
				with.ExpiresIn = durationpb.New(lasts)
			}
			made, _ := ada.invite(t, with)
			if got := made.ExpiresAt.AsTime().Sub(made.CreatedAt.AsTime()); got != want {
				t.Errorf("it lasts %v, want %v", got, want)
			}
		}
		for _, wrong := range []time.Duration{-time.Hour, time.Second, 31 * 24 * time.Hour} {
			_, err := ada.Houses.CreateInvite(t.Context(), &arbev1.CreateInviteRequest{HouseId: ada.house.Id, ExpiresIn: durationpb.New(wrong)})
			refused(t, err, connect.CodeInvalidArgument, "expires_in")
		}
		made, token := ada.invite(t, &arbev1.CreateInviteRequest{})
		b.exec(t, "update invites set expires_at = now() where id = $1", made.Id)
		_, err := get(token)
		refused(t, err, connect.CodeUnauthenticated, "has expired")
		_, err = join(token, "Late")
		refused(t, err, connect.CodeUnauthenticated, "has expired")
	})
	t.Run("is listed while it can be used, until an owner revokes it", func(t *testing.T) {
		made, token := ada.invite(t, &arbev1.CreateInviteRequest{Note: "for Eve"})
		pending := func() (ids []string) {
			for page := ""; ; {
				res, err := ada.Houses.ListInvites(t.Context(), &arbev1.ListInvitesRequest{HouseId: ada.house.Id, PageSize: 2, PageToken: page})
				must(t, err)
				for _, i := range res.Invites {
					ids = append(ids, i.Id)
					if i.Id == made.Id && (i.Note != "for Eve" || i.CreatedByName != "Ada" || i.CreatedByAgentId != ada.id) {
						t.Errorf("it is listed as %v", i)
					}
				}
				if page = res.NextPageToken; page == "" {
					return ids
				}
			}
		}
		if !slices.Contains(pending(), made.Id) {
			t.Error("it is not listed")
		}
		for range 2 {
			must(t, errOf(ada.Houses.RevokeInvite(t.Context(), &arbev1.RevokeInviteRequest{HouseId: ada.house.Id, Id: made.Id})))
		}
		if slices.Contains(pending(), made.Id) {
			t.Error("it is listed still")
		}
		_, err := join(token, "Eve")
		refused(t, err, connect.CodeUnauthenticated, "was revoked")
		if logged := ada.history(t); strings.Count(strings.Join(logged, "\n"), "signal.house.invite_revoked") != 1 {
			t.Errorf("the log has %q", logged)
		}
		err = errOf(ada.Houses.RevokeInvite(t.Context(), &arbev1.RevokeInviteRequest{HouseId: ada.house.Id, Id: "0nosuchinvite"}))
		refused(t, err, connect.CodeNotFound, "no such invite")
	})
	t.Run("needs a name of one line from a new person", func(t *testing.T) {
		_, token := ada.invite(t, &arbev1.CreateInviteRequest{})
		for _, name := range []string{"", "  ", "two\nlines", strings.Repeat("x", 101)} {
			_, err := join(token, name)
			refused(t, err, connect.CodeInvalidArgument, "name")
		}
		_, err := get(token)
		must(t, err)
	})
	t.Run("that nobody made says nothing", func(t *testing.T) {
		for _, token := range []string{"made up", ada.house.Id, "nul\x00", strings.Repeat("x", 200)} {
			_, err := get(token)
			refused(t, err, connect.CodeUnauthenticated, "this invite is not known")
			_, err = join(token, "Eve")
			refused(t, err, connect.CodeUnauthenticated, "this invite is not known")
		}
	})
	t.Run("is not made by a credential that is limited to the house", func(t *testing.T) {
		_, err := b.client(ada.houseKey(t)).Houses.CreateInvite(t.Context(), &arbev1.CreateInviteRequest{HouseId: ada.house.Id})
		refused(t, err, connect.CodePermissionDenied, "limited to one house")
	})
	t.Run("is kept as nothing that joins", func(t *testing.T) {
		_, token := ada.invite(t, &arbev1.CreateInviteRequest{})
		if n := ask[int](t, b, "select count(*) from invites where hash = $1 or note = $2", []byte(token), token); n != 0 {
			t.Error("the token is in the database as it is")
		}
	})
	t.Run("is one of a hundred at most", func(t *testing.T) {
		h := b.newHouse(t, ada, "Full")
		b.exec(t, `insert into invites (house_id, hash, role, created_by, expires_at)
			select $1, n::text::bytea, 'member', $2, now() + interval '1 hour' from generate_series(1, 100) n`, h.Id, ada.id)
		create := func() error {
			return errOf(ada.Houses.CreateInvite(t.Context(), &arbev1.CreateInviteRequest{HouseId: h.Id}))
		}
		refused(t, create(), connect.CodeResourceExhausted, "100 pending invites")
		b.exec(t, "update invites set revoked_at = now() where house_id = $1 and hash = '1'", h.Id)
		must(t, create())
	})
}

func TestMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("a removed member can do nothing in the house after at most a second", func(t *testing.T) {
		ada, dee := b.ada, b.person(t, "Dee")
		dee = b.join(t, ada, dee, "member")
		thread := dee.thread(t, &arbev1.CreateThreadRequest{Name: "Dee's"})
		key := b.client(dee.houseKey(t))
		token, err := dee.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: thread.Id})
		must(t, err)
		tail, err := dee.Entries.Tail(t.Context(), &arbev1.TailRequest{ThreadId: thread.Id})
		must(t, err)
		defer tail.Close()
		watch, err := key.Houses.WatchHouse(t.Context(), &arbev1.WatchHouseRequest{HouseId: ada.house.Id})
		must(t, err)
		defer watch.Close()
		if !watch.Receive() || !tail.Receive() {
			t.Fatal(watch.Err(), tail.Err())
		}

		must(t, ada.remove(t, dee.id))
		for tail.Receive() {
		}
		refused(t, tail.Err(), connect.CodeNotFound)
		for watch.Receive() {
		}
		refused(t, watch.Err(), connect.CodeUnauthenticated)
		_, err = dee.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread.Id})
		refused(t, err, connect.CodeNotFound)
		_, err = key.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: ada.house.Id})
		refused(t, err, connect.CodeUnauthenticated)
		_, err = b.client(token.Token.Token).Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread.Id})
		refused(t, err, connect.CodeUnauthenticated, "left the house")
		if _, in := ada.roles(t)[dee.id]; in {
			t.Error("the list of members has them")
		}
		refused(t, ada.remove(t, dee.id), connect.CodeNotFound, "no such member")
		if logged := ada.history(t); logged[len(logged)-1] != `signal.house.member_removed {"agent_id":"`+dee.id+`","name":"Dee","by":"Ada"}` {
			t.Errorf("the log has %q", logged)
		}

		_ = b.join(t, ada, dee, "member") // and can come back, but not with their old credentials
		_, err = dee.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread.Id})
		must(t, err)
		_, err = key.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: ada.house.Id})
		refused(t, err, connect.CodeUnauthenticated)
	})
	t.Run("a member may leave, with a credential that is not limited", func(t *testing.T) {
		dee := b.join(t, b.ada, b.person(t, "Dee"), "member")
		limited := person{Client: b.client(dee.houseKey(t)), house: dee.house}
		refused(t, limited.remove(t, dee.id), connect.CodePermissionDenied, "limited")
		must(t, dee.remove(t, dee.id))
		refused(t, dee.remove(t, dee.id), connect.CodeNotFound)
		if logged := b.ada.history(t); logged[len(logged)-1] != `signal.house.member_removed {"agent_id":"`+dee.id+`","name":"Dee"}` {
			t.Errorf("the log has %q", logged)
		}
	})
	t.Run("a bot is removed with its keys, and is no owner", func(t *testing.T) {
		made, err := b.ada.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: b.ada.house.Id, Name: "Coder", Runtime: "pi"})
		must(t, err)
		key, err := b.ada.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: b.ada.house.Id, Name: "bot", AgentId: made.Agent.Id})
		must(t, err)
		refused(t, b.ada.setRole(t, made.Agent.Id, "owner"), connect.CodeFailedPrecondition, "a bot cannot")
		must(t, b.ada.remove(t, made.Agent.Id))
		_, err = b.client(key.Key).Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: b.ada.house.Id})
		refused(t, err, connect.CodeUnauthenticated)
	})
	t.Run("an owner changes roles, and each change is in the log", func(t *testing.T) {
		dee := b.join(t, b.ada, b.person(t, "Dee"), "member")
		must(t, b.ada.setRole(t, dee.id, "owner"))
		must(t, b.ada.setRole(t, dee.id, "owner")) // setting the same role again changes nothing
		_, token := dee.invite(t, &arbev1.CreateInviteRequest{})
		logged := b.ada.history(t)
		if got := logged[len(logged)-2]; got != `signal.house.role_changed {"agent_id":"`+dee.id+`","name":"Dee","from":"member","to":"owner","by":"Ada"}` {
			t.Errorf("the log has %q", logged)
		}
		must(t, b.ada.setRole(t, dee.id, "member"))
		refused(t, dee.setRole(t, dee.id, "owner"), connect.CodePermissionDenied)
		_, err := b.bob.accept(t, token)
		refused(t, err, connect.CodeUnauthenticated, "was revoked")
		must(t, b.ada.remove(t, dee.id))
	})
	t.Run("the invites of an owner who was removed are gone", func(t *testing.T) {
		dee := b.join(t, b.ada, b.person(t, "Dee"), "owner")
		_, token := dee.invite(t, &arbev1.CreateInviteRequest{})
		must(t, b.ada.remove(t, dee.id))
		_, err := dee.accept(t, token)
		refused(t, err, connect.CodeUnauthenticated, "not known")
	})
	t.Run("the keys that a former owner made for bots have ended, and the list says whose they were", func(t *testing.T) {
		ada := b.ada
		dee := b.join(t, ada, b.person(t, "Dee"), "owner")
		bot, err := ada.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: ada.house.Id, Name: "Reviewer", Runtime: "pi"})
		must(t, err)
		keys := map[string]string{}
		for _, p := range []person{ada, dee} {
			made, err := p.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: ada.house.Id, Name: "bot", AgentId: bot.Agent.Id})
			must(t, err)
			keys[p.id] = made.Key
			if made.ApiKey.CreatedBy != p.id {
				t.Errorf("it was created by %q", made.ApiKey.CreatedBy)
			}
		}
		must(t, ada.remove(t, dee.id))
		_, err = b.client(keys[dee.id]).Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: ada.house.Id})
		refused(t, err, connect.CodeUnauthenticated, "revoked")
		_, err = b.client(keys[ada.id]).Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: ada.house.Id})
		must(t, err)
		list, err := ada.Credentials.ListAPIKeys(t.Context(), &arbev1.ListAPIKeysRequest{HouseId: ada.house.Id})
		must(t, err)
		for _, k := range list.ApiKeys {
			if k.AgentId == bot.Agent.Id && (k.RevokedAt != nil) != (k.CreatedBy == dee.id) {
				t.Errorf("a key is listed as %v", k)
			}
		}
	})
	t.Run("the last owner stays", func(t *testing.T) {
		refused(t, b.ada.remove(t, b.ada.id), connect.CodeFailedPrecondition, "last owner")
		refused(t, b.ada.setRole(t, b.ada.id, "member"), connect.CodeFailedPrecondition, "last owner")
	})
	t.Run("of two owners who remove or demote each other at once one stays", func(t *testing.T) {
		for round := range 6 {
			ada := b.ada
			ada.house = b.newHouse(t, ada, "Duel")
			dee := b.join(t, ada, b.bob, "owner")
			var work sync.WaitGroup
			errs := make([]error, 2)
			for i, p := range []person{ada, dee} {
				other := []person{dee, ada}[i].id
				work.Go(func() {
					if round%2 == 0 {
						errs[i] = p.remove(t, other)
					} else {
						errs[i] = p.setRole(t, other, "member")
					}
				})
			}
			work.Wait()
			if n := ask[int](t, b, "select count(*) from members where house_id = $1 and role = 'owner'", ada.house.Id); n != 1 {
				t.Fatalf("%d owners are left: %v", n, errs)
			}
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("both or none succeeded: %v", errs)
			}
		}
	})
	t.Run("a member who closed the house's log is removed all the same", func(t *testing.T) {
		ada := b.ada
		ada.house = b.newHouse(t, ada, "Quiet")
		dee := b.join(t, ada, b.person(t, "Dee"), "member")
		b.exec(t, "update streams set closed_at = now() where name = 'arbe-thread-' || $1", ada.house.PrimaryThreadId)
		must(t, ada.remove(t, dee.id))
		if roles := ada.roles(t); len(roles) != 2+len(bot.Coding) || roles[dee.id] != "" {
			t.Errorf("the members are %v", roles)
		}
	})
}

// A leaked key for one house must not be able to change the members, because such a change would outlast its revocation.
func TestAKeyForOneHouseChangesNoMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	bob := b.join(t, ada, b.bob, "member")
	limited := person{Client: b.client(ada.houseKey(t)), id: ada.id, house: ada.house}
	refused(t, limited.setRole(t, bob.id, "owner"), connect.CodePermissionDenied, "")
	refused(t, limited.remove(t, bob.id), connect.CodePermissionDenied, "")
	if role := ada.roles(t)[bob.id]; role != "member" {
		t.Errorf("he is %q", role)
	}
}
