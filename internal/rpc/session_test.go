package rpc_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// login redeems a login link of p, and returns the session's token.
func (p person) login(t *testing.T) string {
	t.Helper()
	link, err := p.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	must(t, err)
	res, err := p.Agents.RedeemLoginLink(t.Context(), &arbev1.RedeemLoginLinkRequest{Token: link.Path[len("/login?token="):]})
	must(t, err)
	return res.Session
}

// naming is a browser that sends a User-Agent.
type naming string

func (n naming) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", string(n))
	return http.DefaultTransport.RoundTrip(r)
}

func TestAPersonSeesWhereTheyAreLoggedInAndLogsOutThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	// as returns the client of a browser.
	as := func(token, agent string) arbev1connect.AgentServiceClient {
		return arbev1connect.NewAgentServiceClient(&http.Client{Transport: naming(agent)}, b.url, connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				req.Header().Set("Authorization", "Bearer "+token)
				return next(ctx, req)
			}
		})))
	}
	laptop, phone, old := b.ada.login(t), b.ada.login(t), b.ada.login(t)
	b.bob.login(t)
	onLaptop := as(laptop, "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0")
	onPhone := as(phone, "<b>evil</b>\u202e 1.0")
	_, err := onPhone.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
	must(t, err)
	b.exec(t, "update login_sessions set expires_at = now() where hash = $1", digest(old))

	list := func() map[string]*arbev1.Session {
		t.Helper()
		res, err := onLaptop.WhoAmI(ctx, &arbev1.WhoAmIRequest{Sessions: true})
		must(t, err)
		found := map[string]*arbev1.Session{}
		for _, s := range res.Sessions {
			found[s.Client] = s
			if s.LastUsedAt == nil || time.Since(s.LastUsedAt.AsTime()) > time.Minute {
				t.Errorf("%s was last used at %v", s.Client, s.LastUsedAt)
			}
		}
		return found
	}
	got := list()
	if len(got) != 2 || !got["Firefox on Linux"].GetCurrent() || got["<b>evil</b> 1.0"] == nil || got["<b>evil</b> 1.0"].GetCurrent() {
		t.Fatalf("Ada is logged in at %v", got)
	}

	// Nobody ends somebody else's session.
	res, err := b.bob.Agents.EndSession(ctx, &arbev1.EndSessionRequest{Which: &arbev1.EndSessionRequest_Id{Id: got["<b>evil</b> 1.0"].Id}})
	if err != nil || res.Ended != 0 {
		t.Errorf("Bob ended %d sessions of Ada: %v", res.GetEnded(), err)
	}
	// Open streams end with their session.
	tail, err := arbe.New(b.url, phone).Houses.WatchHouse(ctx, &arbev1.WatchHouseRequest{HouseId: b.ada.house.Id})
	must(t, err)
	res, err = onLaptop.EndSession(ctx, &arbev1.EndSessionRequest{Which: &arbev1.EndSessionRequest_Id{Id: got["<b>evil</b> 1.0"].Id}})
	must(t, err)
	for tail.Receive() {
	}
	if res.Ended != 1 || connect.CodeOf(tail.Err()) != connect.CodeUnauthenticated {
		t.Errorf("%d sessions ended, and what was open there ended with %v", res.Ended, tail.Err())
	}
	if _, err := onPhone.WhoAmI(ctx, &arbev1.WhoAmIRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("the session that was ended is answered with %v", err)
	}

	b.ada.login(t)
	b.ada.login(t)
	_, err = onLaptop.EndSession(ctx, &arbev1.EndSessionRequest{Which: &arbev1.EndSessionRequest_Others{Others: true}})
	must(t, err)
	if got := list(); len(got) != 1 || got["Firefox on Linux"] == nil {
		t.Errorf("after logging out everywhere else, Ada is logged in at %v", got)
	}
	limited := b.client(b.ada.houseKey(t))
	if _, err := limited.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{Sessions: true}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a key of a house is told of sessions: %v", err)
	}
	if _, err := limited.Agents.EndSession(ctx, &arbev1.EndSessionRequest{Which: &arbev1.EndSessionRequest_Others{Others: true}}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a key of a house ends sessions: %v", err)
	}
	if got := list(); len(got) != 1 {
		t.Errorf("it ended some: %v", got)
	}
	if n := ask[int](t, b, "select count(*) from login_sessions where agent_id = $1", b.bob.id); n != 1 {
		t.Errorf("Bob has %d sessions, want 1", n)
	}
}
