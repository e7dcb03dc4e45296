package auth_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestALastingReadEndsWithItsPermission(t *testing.T) {
	t.Parallel()
	t.Run("through a server that receives notifications", func(t *testing.T) {
		t.Parallel()
		setup(t).readOn(t)
	})
	t.Run("through a server that asks the database repeatedly", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.auth = auth.New(auth.Config{DB: b.DB, Sealer: b.Sealer, Recheck: 20 * time.Millisecond})
		b.readOn(t)
	})
}

func (b *bench) readOn(t *testing.T) {
	cast := authtest.New(t, b.Database, b.auth)
	thread := cast.Thread(t, cast.House)
	while := func(t *testing.T, credential string) context.Context {
		t.Helper()
		return reads(t, b.auth, credential, auth.Thread(thread))
	}
	one := func(t *testing.T, principal string) string {
		t.Helper()
		return cast.Credentials(t, principal)["a "+map[bool]string{true: "token", false: "key"}[principal == "token"]](t, thread)
	}
	untouched := while(t, one(t, "owner"))

	for what, expiring := range map[string]func(t *testing.T, life time.Duration) string{
		"session": func(t *testing.T, life time.Duration) string {
			session := cast.Credentials(t, "member")["a session"](t, "")
			b.insert(t, "update login_sessions set expires_at = now() + $2 where hash = sha256($1::text::bytea) returning ''", session, life)
			return session
		},
		"token": func(t *testing.T, life time.Duration) string {
			return cast.Forge(t, one(t, "token"), func(_, claims map[string]any) { claims["exp"] = time.Now().Add(life).Unix() })
		},
	} {
		t.Run("is refused when their "+what+" expires", func(t *testing.T) {
			// If the credential expires before its holder reads, try again with a longer life, because the time depends
			// on the machine.
			for life := 2 * time.Second; ; life *= 2 {
				credential := expiring(t, life)
				ctx, err := tryRead(t, b.auth, credential, auth.Thread(thread))
				var again context.Context
				if err == nil {
					again, err = tryRead(t, b.auth, credential, auth.Thread(thread))
				}
				if err == nil {
					wantsRefused(t, fault.Unauthenticated, "expired", ctx, again)
					return
				}
				if !strings.Contains(err.Error(), "expired") || life > time.Minute {
					t.Fatalf("with a life of %s it is refused: %v", life, err)
				}
			}
		})
	}
	for _, c := range []struct {
		what string
		show func(t *testing.T) string
		end  func(t *testing.T, credential string)
		code fault.Code
		says string
	}{
		{"their session ended", func(t *testing.T) string { return cast.Credentials(t, "member")["a session"](t, "") }, func(t *testing.T, session string) {
			must(t, b.auth.EndSession(t.Context(), b.wantsGood(t, session)))
		}, fault.Unauthenticated, "not known"},
		{"their session expired", func(t *testing.T) string { return cast.Credentials(t, "member")["a session"](t, "") }, func(t *testing.T, session string) {
			b.insert(t, "update login_sessions set expires_at = now() where hash = sha256($1::text::bytea) returning ''", session)
		}, fault.Unauthenticated, "expired"},
		{"their key was revoked", func(t *testing.T) string { return one(t, "bot") }, func(t *testing.T, key string) {
			b.insert(t, "update api_keys set revoked_at = now() where hash = sha256($1::text::bytea) returning id", key)
		}, fault.Unauthenticated, "revoked"},
		{"their token was revoked", func(t *testing.T) string { return one(t, "token") }, func(t *testing.T, _ string) {
			b.insert(t, "update threads set token_epoch = default where id = $1 returning id", thread)
		}, fault.Unauthenticated, "revoked"},
		{"they left the house", func(t *testing.T) string { return one(t, "member") }, func(t *testing.T, _ string) {
			b.insert(t, "delete from members where house_id = $1 and agent_id = $2 returning role", cast.House, cast.Member)
		}, fault.NotFound, "there is no thread"},
	} {
		t.Run("is refused when "+c.what, func(t *testing.T) {
			credential := c.show(t)
			ctx, again := while(t, credential), while(t, credential)
			c.end(t, credential)
			wantsRefused(t, c.code, c.says, ctx, again)
		})
	}
	t.Run("nobody else is affected", func(t *testing.T) {
		if untouched.Err() != nil {
			t.Errorf("it ended: %v", context.Cause(untouched))
		}
	})
	t.Run("a caller that ends by itself was not refused", func(t *testing.T) {
		ctx, done := b.auth.While(b.wantsGood(t, one(t, "owner")).With(t.Context()), auth.Read, auth.Thread(thread))
		done()
		<-ctx.Done()
		if err := auth.Refused(ctx); err != nil {
			t.Error(err)
		}
	})
}

// wantsRefused waits until calls end, and checks that they were refused.
func wantsRefused(t *testing.T, code fault.Code, says string, calls ...context.Context) {
	t.Helper()
	for _, ctx := range calls {
		<-ctx.Done()
		if err := auth.Refused(ctx); fault.CodeOf(err) != code || !strings.Contains(err.Error(), says) {
			t.Errorf("it says %v", err)
		}
	}
}
