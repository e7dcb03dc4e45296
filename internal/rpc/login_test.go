package rpc_test

import (
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// link returns the token of a new login link of p.
func (p person) link(t *testing.T) string {
	t.Helper()
	res, err := p.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	must(t, err)
	if left := time.Until(res.ExpiresAt.AsTime()); left < 14*time.Minute || left > 15*time.Minute {
		t.Errorf("the link is good for %v, want fifteen minutes", left)
	}
	_, query, ok := strings.Cut(res.Path, "/login?")
	values, err := url.ParseQuery(query)
	if !ok || err != nil || values.Get("token") == "" {
		t.Fatalf("the link is %q", res.Path)
	}
	return values.Get("token")
}

// login returns a new session of p.
func (b *bench) login(t *testing.T, p person) string {
	t.Helper()
	res, err := b.client("").Agents.RedeemLoginLink(t.Context(), &arbev1.RedeemLoginLinkRequest{Token: p.link(t)})
	must(t, err)
	return res.Session
}

func TestLoginLink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	anyone := b.client("").Agents
	redeem := func(t *testing.T, token string) (*arbev1.RedeemLoginLinkResponse, error) {
		return anyone.RedeemLoginLink(t.Context(), &arbev1.RedeemLoginLinkRequest{Token: token})
	}

	t.Run("logs in who made it, once", func(t *testing.T) {
		token := b.ada.link(t)
		res, err := redeem(t, token)
		must(t, err)
		who, err := b.client(res.Session).Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
		must(t, err)
		if res.Agent.Id != b.ada.id || who.Agent.Id != b.ada.id || who.Credential != "session" || who.HouseId != "" {
			t.Errorf("the session is of %v, and says %v", res.Agent, who)
		}
		_, err = redeem(t, token)
		refused(t, err, connect.CodeUnauthenticated, "already used")
	})
	t.Run("tells whom it logs in without being used up, and what is wrong with it", func(t *testing.T) {
		token := b.ada.link(t)
		get := func() (*arbev1.GetLoginLinkResponse, error) {
			return anyone.GetLoginLink(t.Context(), &arbev1.GetLoginLinkRequest{Token: token})
		}
		for range 3 {
			res, err := get()
			must(t, err)
			if res.Agent.Id != b.ada.id || res.Agent.Name == "" {
				t.Errorf("the link is of %v", res.Agent)
			}
		}
		_, err := redeem(t, token)
		must(t, err)
		_, err = get()
		refused(t, err, connect.CodeUnauthenticated, "already used")
	})
	t.Run("clicked by many at once logs in one", func(t *testing.T) {
		token := b.ada.link(t)
		var in atomic.Int64
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				if _, err := redeem(t, token); err == nil {
					in.Add(1)
				} else {
					refused(t, err, connect.CodeUnauthenticated, "already used")
				}
			})
		}
		work.Wait()
		if in.Load() != 1 {
			t.Errorf("%d are logged in", in.Load())
		}
	})
	t.Run("too old says so", func(t *testing.T) {
		token := b.ada.link(t)
		b.exec(t, "update login_links set expires_at = now() where hash = $1", digest(token))
		_, err := redeem(t, token)
		refused(t, err, connect.CodeUnauthenticated, "has expired")
	})
	t.Run("that nobody made is not known", func(t *testing.T) {
		for _, token := range []string{"made up", b.ada.key, "nul\x00", strings.Repeat("x", 200)} {
			_, err := redeem(t, token)
			refused(t, err, connect.CodeUnauthenticated, "not known")
		}
		_, err := redeem(t, "")
		refused(t, err, connect.CodeInvalidArgument, "token")
	})
	t.Run("is stored only as a hash, like a session and a key", func(t *testing.T) {
		token, session := b.ada.link(t), b.login(t, b.ada)
		n := ask[int](t, b, `select count(*) from (select hash from login_links union all select hash from login_sessions union all select hash from api_keys) kept
			where hash = any ($1)`, [][]byte{[]byte(token), []byte(session), []byte(b.ada.key)})
		if n != 0 {
			t.Errorf("%d credentials are in the database as they are", n)
		}
	})
}

func TestSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	end := func(t *testing.T, token string) error {
		return errOf(b.client(token).Agents.EndSession(t.Context(), &arbev1.EndSessionRequest{}))
	}
	whoAmI := func(t *testing.T, token string) error {
		return errOf(b.client(token).Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{}))
	}

	t.Run("ends with EndSession, alone, and to end it again succeeds", func(t *testing.T) {
		session, other := b.login(t, b.ada), b.login(t, b.ada)
		must(t, end(t, session))
		refused(t, whoAmI(t, session), connect.CodeUnauthenticated, "not known")
		must(t, end(t, session))
		must(t, whoAmI(t, other))
	})
	t.Run("ends by itself", func(t *testing.T) {
		session := b.login(t, b.ada)
		b.exec(t, "update login_sessions set expires_at = now() where hash = $1", digest(session))
		refused(t, whoAmI(t, session), connect.CodeUnauthenticated, "expired")
	})
	t.Run("is nothing that an API key has", func(t *testing.T) {
		must(t, end(t, b.ada.key))
		must(t, whoAmI(t, b.ada.key))
	})
}
