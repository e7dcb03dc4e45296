package auth_test

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is two houses: Ada owns one, in which Cyd is a member; Bob owns the other.
type bench struct {
	*dbtest.Database
	auth          *auth.Auth
	ada, cyd, bob string
	home, bobs    things
}

// things are one thing of each kind in a house.
type things struct{ house, thread, environment, sandbox string }

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10)}
	b.auth = b.listening(t, b.DB)
	for name, id := range map[string]*string{"Ada": &b.ada, "Cyd": &b.cyd, "Bob": &b.bob} {
		*id = b.insert(t, "insert into agents (kind, name) values ('human', $1) returning id::text", name)
	}
	b.home, b.bobs = b.house(t, b.ada), b.house(t, b.bob)
	b.insert(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member') returning role", b.home.house, b.cyd)
	return b
}

func (b *bench) house(t *testing.T, owner string) (of things) {
	t.Helper()
	of.house = b.insert(t, "insert into houses (name) values ('Home') returning id")
	b.insert(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'owner') returning role", of.house, owner)
	b.insert(t, "insert into streams (house_id, name) values ($1, $1) returning name", of.house)
	of.thread = b.insert(t, "insert into threads (house_id, stream_id) values ($1, $1) returning id", of.house)
	of.environment = b.insert(t, "insert into environments (house_id, name) values ($1, 'recipe') returning id", of.house)
	of.sandbox = b.insert(t, "insert into sandboxes (house_id, environment_id, provider) values ($1, $2, 'local') returning id", of.house, of.environment)
	return of
}

// listening is a server that answers from memory.
func (b *bench) listening(t testing.TB, d *db.DB) *auth.Auth {
	t.Helper()
	a := auth.New(auth.Config{DB: d, Sealer: b.Sealer})
	t.Cleanup(a.Listen())
	until(t, "it listens", a.Holds)
	return a
}

// until waits until a condition is true.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// insert changes the database without row-level security and returns one value. It waits until the bench's server has
// received the change, as if another server had made it.
func (b *bench) insert(t testing.TB, statement string, args ...any) (value string) {
	t.Helper()
	conn := b.Owner(t)
	if err := conn.QueryRow(t.Context(), statement, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	authtest.Heard(t, conn, b.auth)
	return value
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const no = fault.NotFound
	for _, c := range []struct {
		who            string
		principal      auth.Principal
		read, own      fault.Code // in the home; empty means allowed
		elsewhere, not fault.Code // in Bob's house; about something that does not exist
	}{
		{"an owner", auth.Principal{Agent: b.ada}, "", "", no, no},
		{"a member", auth.Principal{Agent: b.cyd}, "", fault.Forbidden, no, no},
		{"a stranger", auth.Principal{Agent: b.bob}, no, no, "", no},
		{"an owner with a key for the house", auth.Principal{Agent: b.ada, House: b.home.house}, "", "", no, no},
		{"an owner with a key for another house", auth.Principal{Agent: b.ada, House: b.bobs.house}, no, no, no, no},
	} {
		t.Run(c.who, func(t *testing.T) {
			ctx := c.principal.With(t.Context())
			ask := func(action auth.Action, what string, target auth.Target, house string, want fault.Code) {
				t.Helper()
				scope, err := b.auth.Authorize(ctx, action, target)
				if fault.CodeOf(err) != want {
					t.Errorf("%s: %v, want %q", what, err, want)
				}
				if err == nil && (scope.House != house || scope.Agent != c.principal.Agent) || err != nil && scope.House != "" {
					t.Errorf("%s: the scope is %v", what, scope)
				}
			}
			for kind, target := range map[string]func(things) auth.Target{
				"house":       func(of things) auth.Target { return auth.House(of.house) },
				"thread":      func(of things) auth.Target { return auth.Thread(of.thread) },
				"environment": func(of things) auth.Target { return auth.Environment(of.environment) },
				"sandbox":     func(of things) auth.Target { return auth.Sandbox(of.sandbox) },
			} {
				ask(auth.Read, "to read the "+kind, target(b.home), b.home.house, c.read)
				ask(auth.Write, "to write to the "+kind, target(b.home), b.home.house, c.read)
				ask(auth.Own, "to own the "+kind, target(b.home), b.home.house, c.own)
				ask(auth.Read, "to read Bob's "+kind, target(b.bobs), b.bobs.house, c.elsewhere)
				ask(auth.Read, "to read no "+kind, target(things{"none", "none", "none", "none"}), "", c.not)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		if _, err := b.auth.Authorize(t.Context(), auth.Read, auth.House(b.home.house)); fault.CodeOf(err) != fault.Unauthenticated {
			t.Error(err)
		}
	})
	t.Run("a member who was removed", func(t *testing.T) {
		b.insert(t, "delete from members where agent_id = $1 returning role", b.cyd)
		if _, err := b.auth.Authorize(auth.Principal{Agent: b.cyd}.With(t.Context()), auth.Read, auth.Thread(b.home.thread)); fault.CodeOf(err) != no {
			t.Error(err)
		}
	})
	t.Run("gives the same short answer for a missing thing and for another house's thing", func(t *testing.T) {
		ctx := auth.Principal{Agent: b.ada}.With(t.Context())
		_, gone := b.auth.Authorize(ctx, auth.Read, auth.Thread("none"))
		_, bobs := b.auth.Authorize(ctx, auth.Read, auth.Thread(b.bobs.thread))
		if gone.Error() != strings.ReplaceAll(bobs.Error(), b.bobs.thread, "none") {
			t.Errorf("%q and %q", gone, bobs)
		}
		_, long := b.auth.Authorize(ctx, auth.Read, auth.Thread(strings.Repeat("x", 10_000)))
		if len(long.Error()) > 200 {
			t.Errorf("%q", long)
		}
	})
}

func TestKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replace := func(agent, name string) string {
		key, err := b.auth.ReplaceKey(t.Context(), agent, name)
		must(t, err)
		return key
	}
	first, other, cyds := replace(b.ada, "laptop"), replace(b.ada, "desktop"), replace(b.cyd, "laptop")
	second := replace(b.ada, "laptop")

	t.Run("is recognised, and its agent is known", func(t *testing.T) {
		p, err := b.auth.Authenticate(t.Context(), second)
		if !strings.HasPrefix(second, "arbe_") || err != nil || p.Agent != b.ada || p.Credential != "api_key" || p.House != "" {
			t.Errorf("it is %v: %v", p, err)
		}
	})
	t.Run("is revoked when it is replaced, and no other key is", func(t *testing.T) {
		if _, err := b.auth.Authenticate(t.Context(), first); fault.CodeOf(err) != fault.Unauthenticated || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("the replaced one: %v", err)
		}
		for _, key := range []string{other, cyds, second} {
			if _, err := b.auth.Authenticate(t.Context(), key); err != nil {
				t.Errorf("another one: %v", err)
			}
		}
	})
	t.Run("is not ended by EndSession", func(t *testing.T) {
		p, err := b.auth.Authenticate(t.Context(), second)
		must(t, err)
		must(t, b.auth.EndSession(t.Context(), p))
		_, err = b.auth.Authenticate(t.Context(), second)
		must(t, err)
	})
}

// Otherwise the key would be stored after its maker's keys for bots were revoked.
func TestAnOwnerWhoIsDemotedMeanwhileCreatesNoKeyForABot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bot := b.insert(t, "insert into agents (kind, name, runtime) values ('bot', 'Pi', 'pi') returning id::text")
	b.insert(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member') returning role", b.home.house, bot)
	demotion, err := b.Owner(t).Begin(t.Context())
	must(t, err)
	_, err = demotion.Exec(t.Context(), "update members set role = 'member' where agent_id = $1", b.ada)
	must(t, err)
	made := make(chan error, 1)
	go func() {
		_, _, err := b.auth.CreateKey(t.Context(), db.Scope{House: b.home.house, Agent: b.ada}, auth.KeyDraft{Agent: bot, Name: "test"})
		made <- err
	}()
	until(t, "it waits for the demotion", func() bool {
		return b.insert(t, "select count(*)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == "1"
	})
	must(t, demotion.Commit(t.Context()))
	if err := <-made; fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("it says %v", err)
	}
	if n := b.insert(t, "select count(*)::text from api_keys where agent_id = $1", bot); n != "0" {
		t.Errorf("the bot has %s keys", n)
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, expires, err := b.auth.CreateLink(t.Context(), b.ada)
	must(t, err)
	if left := time.Until(expires); left < auth.LinkTTL-time.Minute || left > auth.LinkTTL {
		t.Errorf("the link is valid for %v", left)
	}
	session, expires, p, err := b.auth.Redeem(t.Context(), token)
	must(t, err)

	t.Run("gives a session for a link", func(t *testing.T) {
		if left := time.Until(expires); left < auth.SessionTTL-time.Minute || left > auth.SessionTTL || p.Agent != b.ada {
			t.Errorf("it is %v's, good for %v", p.Agent, left)
		}
		if got, err := b.auth.Authenticate(t.Context(), session); err != nil || got.Agent != b.ada || got.Credential != "session" {
			t.Errorf("it is %v: %v", got, err)
		}
	})
	t.Run("does not confuse credentials: a link is not a session, a session is not a link", func(t *testing.T) {
		fresh, _, err := b.auth.CreateLink(t.Context(), b.ada)
		must(t, err)
		if _, err := b.auth.Authenticate(t.Context(), fresh); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("a link logs in: %v", err)
		}
		if _, _, _, err := b.auth.Redeem(t.Context(), session); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("a session is redeemed: %v", err)
		}
	})
	t.Run("stores only hashes", func(t *testing.T) {
		sum := sha256.Sum256([]byte(session))
		if n := b.insert(t, "select count(*)::text from login_sessions where hash = $1", sum[:]); n != "1" {
			t.Errorf("%s sessions have the hash", n)
		}
	})
	t.Run("ends when its session ends", func(t *testing.T) {
		must(t, b.auth.EndSession(t.Context(), p))
		must(t, b.auth.EndSession(t.Context(), p))
		if _, err := b.auth.Authenticate(t.Context(), session); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("it goes on: %v", err)
		}
	})
}

func TestPrincipalFrom(t *testing.T) {
	t.Parallel()
	if _, err := auth.PrincipalFrom(context.Background()); fault.CodeOf(err) != fault.Unauthenticated || !strings.Contains(err.Error(), "arbe login") {
		t.Errorf("without a principal it returns %v", err)
	}
	p := auth.Principal{Agent: "a", House: "h"}
	if got, err := auth.PrincipalFrom(p.With(context.Background())); err != nil || got.Agent != "a" || got.House != "h" {
		t.Errorf("it is %v: %v", got, err)
	}
}
