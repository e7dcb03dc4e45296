package auth_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

// asks returns how many connections to the database f takes. Without one it cannot ask.
func (b *bench) asks(f func()) int64 {
	before := b.DB.Pool().Stat().AcquireCount()
	f()
	return b.DB.Pool().Stat().AcquireCount() - before
}

// may returns a server's answer to a request: "ok" and the house, or the code of the refusal.
func may(ctx context.Context, a *auth.Auth, credential string, action auth.Action, target auth.Target) string {
	p, err := a.Authenticate(ctx, credential)
	if err != nil {
		return string(fault.CodeOf(err))
	}
	scope, err := a.Authorize(p.With(ctx), action, target)
	if err != nil {
		return string(fault.CodeOf(err))
	}
	return "ok in " + scope.House
}

func (b *bench) artifact(t testing.TB, house, thread string) string {
	t.Helper()
	return b.insert(t, "insert into artifacts (house_id, kind, thread_id) values ($1, 'file', nullif($2, '')) returning id", house, thread)
}

func TestKnownAnswersAreNotAskedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	thread := cast.Thread(t, cast.House)
	environment := b.insert(t, "insert into environments (house_id, name) values ($1, 'recipe') returning id", cast.House)
	sandbox := b.insert(t, "insert into sandboxes (house_id, environment_id, provider) values ($1, $2, 'local') returning id", cast.House, environment)
	artifact := b.artifact(t, cast.House, thread)
	key, _ := cast.Key(t, cast.House)
	everything := map[string]auth.Target{
		"the account": auth.Account, "a house": auth.House(cast.House), "a thread": auth.Thread(thread), "an environment": auth.Environment(environment),
		"a sandbox": auth.Sandbox(sandbox), "an artifact": auth.Artifact(artifact), "a key": auth.Key(key),
	}
	for _, principal := range []string{"member", "owner", "bot", "house-key", "owner-key", "token", "reader"} {
		for kind, credential := range cast.Credentials(t, principal) {
			shown := credential(t, thread)
			for what, target := range everything {
				if strings.Contains(kind, "token") && what != "a thread" && what != "an artifact" {
					continue // which is refused
				}
				t.Run(fmt.Sprintf("%s shows %s for %s", principal, kind, what), func(t *testing.T) {
					ask := func() {
						p, err := b.auth.Authenticate(t.Context(), shown)
						must(t, err)
						ctx := p.With(t.Context())
						_, err = b.auth.Authorize(ctx, auth.Read, target)
						must(t, err)
						_, done := b.auth.While(ctx, auth.Read, target)
						done()
					}
					until(t, "it asks nothing", func() bool { return b.asks(ask) == 0 })
				})
			}
		}
	}
	t.Run("nor is the only house of an agent", func(t *testing.T) {
		p := b.wantsGood(t, cast.Credentials(t, "bot")["a key"](t, ""))
		p.House = ""
		until(t, "it asks nothing", func() bool {
			return b.asks(func() {
				house, err := b.auth.OnlyHouse(t.Context(), p)
				must(t, err)
				if house != cast.House {
					t.Errorf("it is %s", house)
				}
			}) == 0
		})
		b.insert(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member') returning role", cast.Annex, cast.Bot)
		if house, err := b.auth.OnlyHouse(t.Context(), p); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("of two it is %s: %v", house, err)
		}
	})
	t.Run("concurrent callers share one query", func(t *testing.T) {
		b.insert(t, "select pg_notify($1, $2)::text", db.PermissionChannel, db.EverythingChanged)
		shown := cast.Credentials(t, "owner")["a key"](t, "")
		const callers = 50
		n := b.asks(func() {
			var all sync.WaitGroup
			for range callers {
				all.Go(func() { _, _ = b.auth.Authenticate(context.Background(), shown) })
			}
			all.Wait()
		})
		if n >= callers {
			t.Errorf("%d of them asked %d times", callers, n)
		}
	})
}

func TestOnlyPermissionsAreKeptInMemory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	key := cast.Credentials(t, "member")["a key"](t, "")
	// Facts are kept only once the server receives changes.
	until(t, "it asks nothing", func() bool {
		return b.asks(func() {
			if got := may(t.Context(), b.auth, key, auth.Read, auth.House(cast.House)); got != "ok in "+cast.House {
				t.Fatal(got)
			}
		}) == 0
	})
	before := b.auth.Facts()
	for n := range 100 {
		made := fmt.Sprint(n)
		b.wantsEnded(t, "arbe_"+strings.Repeat(made, 20), "not known")
		for _, target := range []auth.Target{auth.Thread(made), auth.House(made), auth.Artifact(made), auth.Thread(b.home.thread), auth.House(b.home.house)} {
			if got := may(t.Context(), b.auth, key, auth.Read, target); got != string(fault.NotFound) {
				t.Fatalf("of %v it says %s", target, got)
			}
		}
	}
	if after := b.auth.Facts(); after > before {
		t.Errorf("%d facts became %d", before, after)
	}
	t.Run("so that new permissions are effective at once", func(t *testing.T) {
		if got := may(t.Context(), b.auth, key, auth.Own, auth.House(cast.House)); got != string(fault.Forbidden) {
			t.Error(got)
		}
		// The test does not wait until the change is received.
		conn := b.Owner(t)
		_, err := conn.Exec(t.Context(), "update members set role = 'owner' where house_id = $1 and agent_id = $2", cast.House, cast.Member)
		must(t, err)
		if got := may(t.Context(), b.auth, key, auth.Own, auth.House(cast.House)); got != "ok in "+cast.House {
			t.Error(got)
		}
	})
}

func TestAnAnswerThatIsOlderThanAChangeIsNotKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for what, end := range map[string]func(key string){
		"this server makes": func(string) {
			_, err := b.auth.ReplaceKey(t.Context(), b.ada, "test")
			must(t, err)
		},
		"another server makes": func(key string) {
			b.insert(t, "update api_keys set revoked_at = now() where hash = sha256($1::text::bytea) returning id", key)
		},
		"is everything": func(key string) {
			_, err := b.Owner(t).Exec(t.Context(), "truncate api_keys")
			must(t, err)
			b.insert(t, "select ''")
		},
	} {
		t.Run("one that "+what, func(t *testing.T) {
			key, err := b.auth.ReplaceKey(t.Context(), b.ada, "test")
			must(t, err)
			must(t, b.auth.AskMeanwhile(t.Context(), key, func() { end(key) }))
			if _, err := b.auth.Authenticate(t.Context(), key); fault.CodeOf(err) != fault.Unauthenticated {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// changes are all the ways to end a permission. Before each change, show is allowed to do action on a target;
// afterwards it is not.
func (b *bench) changes(t *testing.T, cast *authtest.Cast) map[string]func(t *testing.T) (show string, target auth.Target, end func(a *auth.Auth, d *db.DB)) {
	in := func(house, agent, statement string, args ...any) func(*auth.Auth, *db.DB) {
		return func(_ *auth.Auth, d *db.DB) {
			must(t, d.In(t.Context(), db.Scope{House: house, Agent: agent}, func(tx pgx.Tx) error {
				tag, err := tx.Exec(t.Context(), statement, args...)
				if err == nil && tag.RowsAffected() == 0 {
					err = fmt.Errorf("%s changes nothing", statement)
				}
				return err
			}))
		}
	}
	type change = func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB))
	newMember := func(t *testing.T) (agent, key string) {
		t.Helper()
		agent = b.insert(t, "insert into agents (kind, name) values ('human', 'Eve') returning id::text")
		b.insert(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'owner') returning role", cast.House, agent)
		key, err := b.auth.ReplaceKey(t.Context(), agent, "test")
		must(t, err)
		return agent, key
	}
	memberKey := cast.Credentials(t, "member")["a key"](t, "")
	environment := func(t *testing.T) string {
		return b.insert(t, "insert into environments (house_id, name) values ($1, 'recipe') returning id", cast.House)
	}
	gone := func(kind string, make func(t *testing.T) (string, auth.Target)) change {
		return func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			id, target := make(t)
			return memberKey, target, in(cast.House, "", "delete from "+kind+" where id = $1", id)
		}
	}
	// made returns a change that ends a credential that an owner created for a bot.
	made := func(make func(t *testing.T, by db.Scope) (credential string, target auth.Target), statement string) change {
		return func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			owner, _ := newMember(t)
			credential, target := make(t, db.Scope{House: cast.House, Agent: owner})
			return credential, target, in(cast.House, "", statement, owner)
		}
	}
	botKey := func(t *testing.T, by db.Scope) (string, auth.Target) {
		key, _, err := b.auth.CreateKey(t.Context(), by, auth.KeyDraft{Agent: cast.Bot, Name: "test"})
		must(t, err)
		return key, auth.House(cast.House)
	}
	botToken := func(t *testing.T, by db.Scope) (string, auth.Target) {
		thread := cast.Thread(t, cast.House)
		made, err := b.auth.CreateThreadToken(t.Context(), by, thread, cast.Bot, nil)
		must(t, err)
		renewed, err := b.auth.RenewThreadToken(t.Context(), b.wantsGood(t, made.Token))
		must(t, err)
		return renewed.Token, auth.Thread(thread)
	}
	const leaves, demoted = "delete from members where agent_id = $1", "update members set role = 'member' where agent_id = $1"
	return map[string]change{
		"the owner who made a bot's key leaves":             made(botKey, leaves),
		"the owner who made a bot's key becomes a member":   made(botKey, demoted),
		"the owner who made a bot's token leaves":           made(botToken, leaves),
		"the owner who made a bot's token becomes a member": made(botToken, demoted),
		"a session ends": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			session := cast.Credentials(t, "member")["a session"](t, "")
			return session, auth.Account, func(a *auth.Auth, _ *db.DB) {
				p, err := a.Authenticate(t.Context(), session)
				must(t, err)
				must(t, a.EndSession(t.Context(), p))
			}
		},
		"a key is revoked": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			scope := db.Scope{House: cast.House, Agent: cast.Member}
			key, made, err := b.auth.CreateKey(t.Context(), scope, auth.KeyDraft{Agent: cast.Member, Name: "test"})
			must(t, err)
			return key, auth.House(cast.House), func(a *auth.Auth, _ *db.DB) { must(t, a.RevokeKey(t.Context(), scope, made.ID)) }
		},
		"a key is replaced": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			agent, key := newMember(t)
			return key, auth.House(cast.House), func(a *auth.Auth, _ *db.DB) {
				_, err := a.ReplaceKey(t.Context(), agent, "test")
				must(t, err)
			}
		},
		"a member leaves": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			agent, key := newMember(t)
			return key, auth.House(cast.House), in(cast.House, "", "delete from members where agent_id = $1", agent)
		},
		"a member with a key for the house leaves": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			agent, _ := newMember(t)
			key, _, err := b.auth.CreateKey(t.Context(), db.Scope{House: cast.House, Agent: agent}, auth.KeyDraft{Agent: agent, Name: "test"})
			must(t, err)
			return key, auth.House(cast.House), in(cast.House, "", "delete from members where agent_id = $1", agent)
		},
		"a thread is deleted": gone("threads", func(t *testing.T) (string, auth.Target) {
			id := cast.Thread(t, cast.House)
			return id, auth.Thread(id)
		}),
		"an environment is deleted": gone("environments", func(t *testing.T) (string, auth.Target) {
			id := environment(t)
			return id, auth.Environment(id)
		}),
		"a sandbox is deleted": gone("sandboxes", func(t *testing.T) (string, auth.Target) {
			id := b.insert(t, "insert into sandboxes (house_id, environment_id, provider) values ($1, $2, 'local') returning id", cast.House, environment(t))
			return id, auth.Sandbox(id)
		}),
		"an artifact is deleted": gone("artifacts", func(t *testing.T) (string, auth.Target) {
			id := b.artifact(t, cast.House, "")
			return id, auth.Artifact(id)
		}),
		"a house is deleted": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			house := b.insert(t, "insert into houses (name) values ('Short') returning id")
			b.insert(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'owner') returning role", house, cast.Member)
			return memberKey, auth.Thread(cast.Thread(t, house)), in(house, "", "delete from houses where id = $1", house)
		},
		"a token is revoked": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			thread := cast.Thread(t, cast.House)
			return cast.Token(t, thread), auth.Thread(thread), in(cast.House, "", "update threads set token_epoch = default where id = $1", thread)
		},
		"a token's thread ends": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			thread := cast.Thread(t, cast.House)
			return cast.Token(t, thread), auth.Thread(thread), in(cast.House, "", "update threads set status = 'closed' where id = $1", thread)
		},
		"a token's thread is deleted": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			thread := cast.Thread(t, cast.House)
			return cast.Token(t, thread), auth.Thread(thread), in(cast.House, "", "delete from threads where id = $1", thread)
		},
		"an artifact is no longer of a token's thread": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			thread := cast.Thread(t, cast.House)
			artifact := b.artifact(t, cast.House, thread)
			return cast.Token(t, thread), auth.Artifact(artifact), in(cast.House, "", "delete from artifacts where id = $1", artifact)
		},
		"a token's agent leaves": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			agent, _ := newMember(t)
			thread := cast.Thread(t, cast.House)
			made, err := b.auth.CreateThreadToken(t.Context(), db.Scope{House: cast.House, Agent: agent}, thread, agent, nil)
			must(t, err)
			return made.Token, auth.Thread(thread), in(cast.House, "", "delete from members where agent_id = $1", agent)
		},
		"a token's key is dropped": func(t *testing.T) (string, auth.Target, func(*auth.Auth, *db.DB)) {
			thread := cast.Thread(t, cast.House)
			return cast.Token(t, thread), auth.Thread(thread), func(a *auth.Auth, _ *db.DB) { must(t, a.RotateSigningKeys(t.Context(), true)) }
		},
	}
}

// listener is the name of the listening connection.
const listener = "arbe permission"

// through returns another server on the bench's database, which it reaches through a proxy.
func (b *bench) through(t testing.TB) (*auth.Auth, *dbtest.Proxy) {
	t.Helper()
	p := dbtest.NewProxy(t, b.ServerURL)
	d, err := db.Open(t.Context(), p.URL, db.Options{})
	must(t, err)
	t.Cleanup(d.Close)
	return b.listening(t, d), p
}

// reads opens a lasting read through a server, and returns a function that reports whether it is still open.
func reads(t testing.TB, a *auth.Auth, credential string, target auth.Target) context.Context {
	t.Helper()
	ctx, err := tryRead(t, a, credential, target)
	must(t, err)
	return ctx
}

// tryRead is reads for a credential that may already be refused.
func tryRead(t testing.TB, a *auth.Auth, credential string, target auth.Target) (context.Context, error) {
	t.Helper()
	p, err := a.Authenticate(t.Context(), credential)
	if err != nil {
		return nil, err
	}
	ctx := p.With(t.Context())
	if _, err := a.Authorize(ctx, auth.Read, target); err != nil {
		return nil, err
	}
	ctx, done := a.While(ctx, auth.Read, target)
	t.Cleanup(done)
	return ctx, nil
}

func TestAPermissionEndsAtOnceOnTheServerThatEndsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	for what, change := range b.changes(t, cast) {
		t.Run("when "+what, func(t *testing.T) {
			credential, target, end := change(t)
			read := reads(t, b.auth, credential, target)
			if got := may(t.Context(), b.auth, credential, auth.Read, target); !strings.HasPrefix(got, "ok") {
				t.Fatal(got)
			}
			end(b.auth, b.DB)
			if got := may(t.Context(), b.auth, credential, auth.Read, target); got != string(fault.NotFound) && got != string(fault.Unauthenticated) && got != string(fault.Forbidden) {
				t.Errorf("afterwards it says %s", got)
			}
			<-read.Done()
			if auth.Refused(read) == nil {
				t.Errorf("the read ended with %v", context.Cause(read))
			}
		})
	}
}

// refusals are the codes that a caller gets after a permission has ended. A caller who has left a house, or asks for
// something that was deleted, gets NotFound, so that the answer does not reveal what exists.
var refusals = map[string]fault.Code{
	"the owner who made a bot's key leaves":             fault.Unauthenticated,
	"the owner who made a bot's key becomes a member":   fault.Unauthenticated,
	"the owner who made a bot's token leaves":           fault.Unauthenticated,
	"the owner who made a bot's token becomes a member": fault.Unauthenticated,
	"a session ends":                               fault.Unauthenticated,
	"a key is revoked":                             fault.Unauthenticated,
	"a key is replaced":                            fault.Unauthenticated,
	"a member leaves":                              fault.NotFound,
	"a member with a key for the house leaves":     fault.Unauthenticated,
	"a thread is deleted":                          fault.NotFound,
	"an environment is deleted":                    fault.NotFound,
	"a sandbox is deleted":                         fault.NotFound,
	"an artifact is deleted":                       fault.NotFound,
	"a house is deleted":                           fault.NotFound,
	"a token is revoked":                           fault.Unauthenticated,
	"a token's thread ends":                        fault.Unauthenticated,
	"a token's thread is deleted":                  fault.Unauthenticated,
	"an artifact is no longer of a token's thread": fault.Forbidden,
	"a token's agent leaves":                       fault.Unauthenticated,
}

// Each failure keeps the notification of the change from the other server.
func TestAPermissionEndsOnOtherServersEvenIfTheNotificationIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	const noNewOne = "its listening connection is cut, and it gets no new one"
	for trouble, cause := range map[string]func(t *testing.T, p *dbtest.Proxy){
		"nothing happens":                    func(*testing.T, *dbtest.Proxy) {},
		"its listening connection is silent": func(t *testing.T, p *dbtest.Proxy) { p.Silence(t, listener) },
		"its listening connection is cut":    func(_ *testing.T, p *dbtest.Proxy) { p.Cut(listener) },
		noNewOne: func(_ *testing.T, p *dbtest.Proxy) {
			p.Shut(true)
			p.Cut(listener)
		},
	} {
		t.Run("when "+trouble, func(t *testing.T) {
			t.Parallel()
			other, proxy := b.through(t)
			for what, change := range b.changes(t, cast) {
				if what == "a token's key is dropped" {
					continue // the others' tokens too
				}
				credential, target, end := change(t)
				proxy.Shut(false)
				until(t, "it listens", other.Holds)
				read := reads(t, other, credential, target)
				if got := may(t.Context(), other, credential, auth.Read, target); !strings.HasPrefix(got, "ok") {
					t.Fatal(got)
				}
				cause(t, proxy)
				end(b.auth, b.DB)
				ended := time.Now()
				var says string
				until(t, what+" is known", func() bool {
					says = may(t.Context(), other, credential, auth.Read, target)
					// A change of two facts sends two notifications, and the test may ask in between.
					return !strings.HasPrefix(says, "ok") && (says == string(refusals[what]) || trouble == noNewOne)
				})
				// Without a connection, it cannot ask for what it does not have in memory.
				if want := refusals[what]; says != string(want) && !(trouble == noNewOne && says == string(fault.Unavailable)) {
					t.Errorf("when %s, it says %s, want %s", what, says, want)
				}
				<-read.Done()
				// One second is promised; the rest is for a slow machine.
				if took := time.Since(ended); took > 21*time.Second {
					t.Errorf("when %s, it took %v until it was known", what, took)
				}
				if auth.Refused(read) == nil {
					t.Errorf("when %s, the read ended with %v", what, context.Cause(read))
				}
			}
		})
	}
	t.Run("when all its connections are silent, a new one ends the reads", func(t *testing.T) {
		t.Parallel()
		other, proxy := b.through(t)
		credential, target, end := b.changes(t, cast)["a key is revoked"](t)
		read := reads(t, other, credential, target)
		proxy.Silence(t, "")
		end(b.auth, b.DB)
		<-read.Done()
		if auth.Refused(read) == nil {
			t.Errorf("the read ended with %v", context.Cause(read))
		}
	})
}
