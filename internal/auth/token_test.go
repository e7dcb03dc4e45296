package auth_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

// another returns another server on the bench's database.
func (b *bench) another() *auth.Auth { return auth.New(auth.Config{DB: b.DB, Sealer: b.Sealer}) }

// token creates a token of Ada's for a thread.
func (b *bench) token(t *testing.T, thread string, scopes ...string) auth.ThreadToken {
	t.Helper()
	made, err := b.auth.CreateThreadToken(t.Context(), db.Scope{House: b.home.house, Agent: b.ada}, thread, b.ada, scopes)
	must(t, err)
	return made
}

// wantsEnded asserts that a credential is refused for a reason, with a next step.
func (b *bench) wantsEnded(t *testing.T, token, why string) {
	t.Helper()
	_, err := b.auth.Authenticate(t.Context(), token)
	if f := fault.From(err); err == nil || f.Code != fault.Unauthenticated || !strings.Contains(f.Message, why) || f.Next == "" {
		t.Errorf("it says %v, want that %s", err, why)
	}
}

func (b *bench) wantsGood(t *testing.T, token string) auth.Principal {
	t.Helper()
	p, err := b.auth.Authenticate(t.Context(), token)
	must(t, err)
	return p
}

func TestThreadToken(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("gives its agent, thread, scopes and expiry", func(t *testing.T) {
		made := b.token(t, b.home.thread, auth.StreamRead, auth.StreamRead)
		p := b.wantsGood(t, made.Token)
		if p.Agent != b.ada || p.Credential != "thread_token" || p.House != b.home.house || p.Thread != b.home.thread ||
			len(p.Scopes) != 1 || p.Scopes[0] != auth.StreamRead || p.Expires.Unix() != made.ExpiresAt.Unix() {
			t.Errorf("it is %+v", p)
		}
		if left := time.Until(p.Expires); left < auth.TokenTTL-time.Minute || left > auth.TokenTTL {
			t.Errorf("it is valid for %v", left)
		}
	})
	t.Run("has the requested scopes, or all by default", func(t *testing.T) {
		if made := b.token(t, b.home.thread); len(made.Scopes) != len(auth.Scopes) {
			t.Errorf("it has %v", made.Scopes)
		}
		_, err := b.auth.CreateThreadToken(t.Context(), db.Scope{House: b.home.house, Agent: b.ada}, b.home.thread, b.ada, []string{"house:own"})
		if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), auth.StreamRead) {
			t.Error(err)
		}
	})
	t.Run("belongs to its creator or to a bot of the house", func(t *testing.T) {
		bot := b.insert(t, "insert into agents (kind, name, runtime) values ('bot', 'Pi', 'pi') returning id::text")
		for agent, want := range map[string]fault.Code{b.cyd: fault.Forbidden, b.bob: fault.NotFound, bot: fault.NotFound} {
			_, err := b.auth.CreateThreadToken(t.Context(), db.Scope{House: b.home.house, Agent: b.ada}, b.home.thread, agent, nil)
			if fault.CodeOf(err) != want {
				t.Errorf("it says %v, want %s", err, want)
			}
		}
		b.insert(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member') returning role", b.home.house, bot)
		_, err := b.auth.CreateThreadToken(t.Context(), db.Scope{House: b.home.house, Agent: b.ada}, b.home.thread, bot, nil)
		must(t, err)
	})
	t.Run("is renewed by its holder, and both stay valid", func(t *testing.T) {
		made := b.token(t, b.home.thread, auth.StreamWrite)
		renewed, err := b.auth.RenewThreadToken(t.Context(), b.wantsGood(t, made.Token))
		must(t, err)
		if renewed.Token == made.Token || renewed.ExpiresAt.Before(made.ExpiresAt) {
			t.Errorf("it is renewed to %v", renewed)
		}
		if p := b.wantsGood(t, renewed.Token); p.Agent != b.ada || p.Thread != b.home.thread || p.Scopes[0] != auth.StreamWrite {
			t.Errorf("the new one is %+v", p)
		}
		b.wantsGood(t, made.Token)
	})
}

func TestAThreadsTokensEndWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	set := func(t *testing.T, thread, status string) {
		t.Helper()
		b.insert(t, "update threads set status = $2 where id = $1 returning id", thread, status)
	}
	driven := func(t *testing.T) string {
		return b.insert(t, `
			with s as (insert into streams (house_id, name) values ($1, generate_short_id()) returning name)
			insert into threads (house_id, stream_id, agent_id, status) select $1, name, $2, 'idle' from s returning id`, cast.House, cast.Bot)
	}
	for _, end := range []string{"completed", "failed", "cancelled"} {
		t.Run("when it is "+end+", and stay ended when it runs again", func(t *testing.T) {
			thread := driven(t)
			idle := cast.Token(t, thread)
			set(t, thread, "running")
			b.wantsGood(t, idle)
			running := cast.Token(t, thread)
			set(t, thread, end)
			for _, token := range []string{idle, running} {
				b.wantsEnded(t, token, "the thread is "+end)
			}
			_, err := b.auth.CreateThreadToken(t.Context(), db.Scope{House: cast.House}, thread, cast.Bot, nil)
			if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), end) {
				t.Errorf("of a new one it says %v", err)
			}
			set(t, thread, "running")
			for _, token := range []string{idle, running} {
				b.wantsEnded(t, token, "has ended since")
			}
			b.wantsGood(t, cast.Token(t, thread))
		})
	}
	t.Run("when a chat is closed", func(t *testing.T) {
		thread := cast.Thread(t, cast.House)
		token := cast.Token(t, thread)
		set(t, thread, "closed")
		b.wantsEnded(t, token, "the thread is closed")
		set(t, thread, "open")
		b.wantsEnded(t, token, "revoked")
	})
	t.Run("when it is deleted, even if another takes its id", func(t *testing.T) {
		thread := cast.Thread(t, cast.House)
		token := cast.Token(t, thread)
		b.insert(t, "delete from threads where id = $1 returning id", thread)
		b.wantsEnded(t, token, "the thread was deleted")
		b.insert(t, `
			with s as (insert into streams (house_id, name) values ($1, generate_short_id()) returning name)
			insert into threads (id, house_id, stream_id) select $2, $1, name from s returning id`, cast.House, thread)
		b.wantsEnded(t, token, "revoked")
	})
	t.Run("when its agent leaves the house, even if they come back", func(t *testing.T) {
		token := cast.Token(t, cast.Thread(t, cast.House))
		b.insert(t, "delete from members where house_id = $1 and agent_id = $2 returning role", cast.House, cast.Member)
		b.wantsGood(t, token) // it belongs to another agent
		leaver := b.insert(t, "insert into agents (kind, name, runtime) values ('bot', 'Temp', 'pi') returning id::text")
		join := "insert into members (house_id, agent_id, role) values ($1, $2, 'member') returning role"
		b.insert(t, join, cast.House, leaver)
		made, err := b.auth.CreateThreadToken(t.Context(), db.Scope{House: cast.House}, cast.Thread(t, cast.House), leaver, nil)
		must(t, err)
		b.wantsGood(t, made.Token)
		b.insert(t, "delete from members where house_id = $1 and agent_id = $2 returning role", cast.House, leaver)
		b.wantsEnded(t, made.Token, "its agent left the house")
		b.insert(t, join, cast.House, leaver)
		b.wantsEnded(t, made.Token, "its agent left the house")
	})
}

func TestTheTokenOfARun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bot := b.insert(t, "insert into agents (kind, name, runtime) values ('bot', 'Pi', 'pi') returning id::text")
	b.insert(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member') returning role", b.home.house, bot)
	thread := b.insert(t, `with s as (insert into streams (house_id, name) values ($1, 'arbe-thread-driven') returning name)
		insert into threads (id, house_id, stream_id, status, agent_id, run_epoch) select 'driven', $1, name, 'running', $2, 1 from s returning id`, b.home.house, bot)
	made, err := b.auth.CreateRunToken(t.Context(), b.home.house, thread, bot, 1)
	must(t, err)
	p := b.wantsGood(t, made.Token)
	if p.Run != 1 || p.Thread != thread || p.Agent != bot {
		t.Errorf("it is %+v", p)
	}
	if again, err := b.auth.RenewRunToken(t.Context(), p); err != nil || again != "" {
		t.Errorf("at once, it is renewed as %q: %v", again, err)
	}
	p.Expires = time.Now().Add(auth.TokenTTL/2 - time.Minute)
	renewed, err := b.auth.RenewRunToken(t.Context(), p)
	must(t, err)
	if after := b.wantsGood(t, renewed); renewed == made.Token || after.Run != 1 || after.Thread != thread || time.Until(after.Expires) < auth.TokenTTL-time.Minute {
		t.Errorf("past half its life, it is renewed as %+v", after)
	}
	// The next run begins: both tokens are those of an older one.
	b.insert(t, "update threads set status = 'completed' where id = $1 returning id", thread)
	b.insert(t, "update threads set status = 'running', run_epoch = 2 where id = $1 returning id", thread)
	for _, token := range []string{made.Token, renewed} {
		_, err := b.another().Authenticate(t.Context(), token)
		if f := fault.From(err); f == nil || f.Code != fault.Forbidden || !strings.Contains(f.Message, "this run is over") {
			t.Errorf("after the run it says %v", err)
		}
	}
	if _, err := b.auth.CreateRunToken(t.Context(), b.home.house, thread, bot, 1); fault.CodeOf(err) != fault.Precondition {
		t.Errorf("a token of an older run: %v", err)
	}
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	count := func(t *testing.T, b *bench) string {
		return b.insert(t, "select count(*)::text from signing_keys")
	}
	t.Run("the first one is created once, however many servers start", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := b.another().RotateOldSigningKeys(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := count(t, b); n != "1" {
			t.Errorf("there are %s", n)
		}
	})
	t.Run("are stored sealed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.token(t, b.home.thread)
		if n := b.insert(t, "select count(*)::text from signing_keys where length(sealed) <= 32"); n != "0" {
			t.Errorf("%s are not", n)
		}
	})
	t.Run("are rotated when they are old, and the previous one is kept until its last token has expired", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		before := b.token(t, b.home.thread)
		turn := func() {
			t.Helper()
			must(t, b.auth.RotateOldSigningKeys(t.Context()))
		}
		turn()
		if n := count(t, b); n != "1" {
			t.Fatalf("a young one was replaced: there are %s", n)
		}
		b.insert(t, "update signing_keys set created_at = created_at - interval '31 days' returning id")
		turn()
		if n := count(t, b); n != "2" {
			t.Fatalf("an old one was not replaced: there are %s", n)
		}
		after := b.token(t, b.home.thread)
		b.wantsGood(t, before.Token)
		b.wantsGood(t, after.Token)
		b.insert(t, "update signing_keys set created_at = created_at - interval '3 hours' where created_at > now() - interval '1 day' returning id")
		turn()
		if n := count(t, b); n != "1" {
			t.Errorf("the old one is kept: there are %s", n)
		}
		b.wantsGood(t, after.Token)
	})
	t.Run("are rotated on demand; after a leak, tokens of old keys end at once, even on servers that have read the keys", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := b.another()
		leaked := b.token(t, b.home.thread)
		_, err := other.Authenticate(t.Context(), leaked.Token)
		must(t, err)
		must(t, b.auth.RotateSigningKeys(t.Context(), false))
		b.wantsGood(t, leaked.Token)
		must(t, b.auth.RotateSigningKeys(t.Context(), true))
		b.wantsEnded(t, leaked.Token, "not known")
		if _, err := other.Authenticate(t.Context(), leaked.Token); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("on another server: %v", err)
		}
		b.wantsGood(t, b.token(t, b.home.thread).Token)
	})
	t.Run("of another server are found", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := b.another()
		_, err := other.Authenticate(t.Context(), b.token(t, b.home.thread).Token)
		must(t, err)
		must(t, b.auth.RotateSigningKeys(t.Context(), false))
		_, err = other.Authenticate(t.Context(), b.token(t, b.home.thread).Token)
		must(t, err)
	})
	t.Run("are looked up together for all made-up ids, and an existing one is found among them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := b.another()
		cast := authtest.New(t, b.Database, b.auth)
		good := cast.Token(t, cast.Thread(t, cast.House))
		_, err := other.Authenticate(t.Context(), good) // the keys were read a moment ago
		must(t, err)
		must(t, b.auth.RotateSigningKeys(t.Context(), false))
		good = cast.Token(t, cast.Thread(t, cast.House))
		reads := other.CountKeyReads()
		var all sync.WaitGroup
		for i := range 100 {
			forged := cast.Forge(t, good, func(header, _ map[string]any) { header["kid"] = fmt.Sprint("made-up-", i) })
			all.Go(func() {
				if _, err := other.Authenticate(context.Background(), forged); fault.CodeOf(err) != fault.Unauthenticated {
					t.Errorf("a made-up one: %v", err)
				}
				if _, err := other.Authenticate(context.Background(), good); err != nil {
					t.Errorf("the good one: %v", err)
				}
			})
		}
		all.Wait()
		if n := reads.Load(); n > 50 { // once a second
			t.Errorf("they were read %d times", n)
		}
	})
	t.Run("cannot be opened with another installation's key", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made := b.token(t, b.home.thread)
		_, err := auth.New(auth.Config{DB: b.DB, Sealer: otherSealer{}}).Authenticate(t.Context(), made.Token)
		if !errors.Is(err, errSealed) {
			t.Error(err)
		}
	})
}

var errSealed = fault.New(fault.Precondition, "sealed under another key", "set the key")

// otherSealer opens nothing.
type otherSealer struct{}

func (otherSealer) Seal(value []byte) ([]byte, error) { return value, nil }
func (otherSealer) Open([]byte) ([]byte, error)       { return nil, errSealed }
