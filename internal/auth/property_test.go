package auth_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

// TestMemoryAgreesWithTheDatabase makes random changes while other goroutines keep asking. It compares the answers from
// memory with those of a server that asks the database each time: on the server that made the change once the change
// has returned, and on another server once it has received the change.
func TestMemoryAgreesWithTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := &wild{bench: b, random: rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano()))), other: b.listening(t, b.DB), asking: auth.New(auth.Config{DB: b.DB, Sealer: b.Sealer})}
	w.agents = []string{b.ada, b.cyd, b.bob}
	w.houses = []string{b.home.house, b.bobs.house}
	for _, of := range []things{b.home, b.bobs} {
		w.targets = append(w.targets, auth.House(of.house), auth.Thread(of.thread), auth.Environment(of.environment), auth.Sandbox(of.sandbox))
		w.threads = append(w.threads, of.thread)
	}
	w.targets = append(w.targets, auth.Account)
	for len(w.credentials) < 5 {
		w.change(t)
	}

	ctx, stop := context.WithCancel(t.Context())
	var askers sync.WaitGroup
	for n := range 2 {
		askers.Go(func() {
			for random := rand.New(rand.NewPCG(2, uint64(n))); ctx.Err() == nil; {
				q := w.question(random)
				_ = w.answer(ctx, []*auth.Auth{b.auth, w.other}[n%2], q)
				time.Sleep(time.Millisecond) // otherwise these two would take all processor time from other tests
			}
		})
	}
	t.Cleanup(func() { stop(); askers.Wait() })

	reading := map[question]context.Context{}
	begin := time.Now()
	for n := 0; n < 50 || n < 1000 && time.Since(begin) < 4*time.Second; n++ {
		what := w.change(t)
		conn := b.Owner(t)
		for range 20 {
			q := w.question(w.random)
			want := w.answer(t.Context(), w.asking, q)
			if got := w.answer(t.Context(), b.auth, q); got != want {
				t.Fatalf("%d: after %s, of %v the server that did it says %s, the database %s", n, what, q, got, want)
			}
			if strings.HasPrefix(want, "ok") && q.action == auth.Read && reading[q] == nil && len(reading) < 10 {
				reading[q] = reads(t, w.other, q.credential, q.target)
			}
		}
		authtest.Heard(t, conn, w.other)
		conn.Close(t.Context())
		for range 10 {
			q := w.question(w.random)
			if want, got := w.answer(t.Context(), w.asking, q), w.answer(t.Context(), w.other, q); got != want {
				t.Fatalf("%d: after %s, of %v the other server says %s, the database %s", n, what, q, got, want)
			}
		}
		for q, read := range reading {
			if want := w.answer(t.Context(), w.asking, q); strings.HasPrefix(want, "ok") {
				if read.Err() != nil && what != remade { // which ended the read in between
					t.Fatalf("%d: after %s, the read of %v ended: %v", n, what, q, context.Cause(read))
				}
				if read.Err() != nil {
					delete(reading, q)
				}
				continue
			}
			until(t, fmt.Sprintf("after %s, the read of %v ends", what, q), func() bool { return read.Err() != nil })
			delete(reading, q)
		}
	}
}

// remade is a change that consists of two.
const remade = "a thread was deleted and created again"

// wild is a bench with many things that change.
type wild struct {
	*bench
	random *rand.Rand
	// other receives the changes that bench.auth makes; asking asks the database each time.
	other, asking           *auth.Auth
	agents, houses, threads []string

	mu          sync.Mutex
	credentials []string
	targets     []auth.Target
}

// question is a principal and what they ask for.
type question struct {
	credential string
	action     auth.Action
	target     auth.Target
}

func (q question) String() string {
	return fmt.Sprintf("%.30s… to %d %v", q.credential, q.action, q.target)
}

func (w *wild) question(random *rand.Rand) question {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Ask mostly about new things.
	newest := func(n int) int { return max(random.IntN(n), random.IntN(n)) }
	return question{w.credentials[newest(len(w.credentials))], []auth.Action{auth.Read, auth.Say, auth.Own, auth.CreateCredential}[random.IntN(4)], w.targets[random.IntN(len(w.targets))]}
}

func (w *wild) answer(ctx context.Context, a *auth.Auth, q question) string {
	return may(ctx, a, q.credential, q.action, q.target)
}

// change makes one change through the bench's server, and says which.
func (w *wild) change(t *testing.T) string {
	t.Helper()
	agent, house := w.agents[w.random.IntN(len(w.agents))], w.houses[w.random.IntN(len(w.houses))]
	thread := w.threads[w.random.IntN(len(w.threads))]
	scope := db.Scope{House: house, Agent: agent}
	do := func(statement string, args ...any) error {
		return w.DB.In(t.Context(), scope, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), statement, args...)
			return err
		})
	}
	shown := func(credential string, err error) error {
		if err == nil {
			w.mu.Lock()
			w.credentials = append(w.credentials, credential)
			w.mu.Unlock()
		}
		return err
	}
	target := func(kind func(string) auth.Target, statement string, args ...any) error {
		var id string
		err := w.DB.In(t.Context(), scope, func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), statement, args...).Scan(&id) })
		if err == nil {
			w.mu.Lock()
			w.targets = append(w.targets, kind(id))
			w.mu.Unlock()
		}
		return err
	}
	changes := []struct {
		name string
		do   func() error
	}{
		{"a member joined", func() error {
			return do("insert into members (house_id, agent_id, role) values ($1, $2, $3) on conflict do nothing", house, agent, []string{"owner", "member"}[w.random.IntN(2)])
		}},
		{"a member joined", func() error {
			return do("insert into members (house_id, agent_id, role) values ($1, $2, 'member') on conflict do nothing", house, agent)
		}},
		{"a member left", func() error { return do("delete from members where house_id = $1 and agent_id = $2", house, agent) }},
		{"a role changed", func() error {
			return do("update members set role = case role when 'owner' then 'member' else 'owner' end where house_id = $1 and agent_id = $2", house, agent)
		}},
		{"a key was created", func() error { return shown(w.auth.ReplaceKey(t.Context(), agent, fmt.Sprint(w.random.IntN(3)))) }},
		{"a key of a house was created", func() error {
			key, made, err := w.auth.CreateKey(t.Context(), scope, auth.KeyDraft{Agent: agent, Name: "test"})
			if err == nil {
				w.mu.Lock()
				w.targets = append(w.targets, auth.Key(made.ID))
				w.mu.Unlock()
			}
			return shown(key, err)
		}},
		{"keys of a house were revoked", func() error {
			keys, err := w.auth.Keys(t.Context(), scope, db.Cursor{}, 100)
			if err != nil || len(keys) == 0 {
				return err
			}
			return w.auth.RevokeKey(t.Context(), scope, keys[w.random.IntN(len(keys))].ID)
		}},
		{"a session began", func() error {
			link, _, err := w.auth.CreateLink(t.Context(), agent)
			if err != nil {
				return err
			}
			session, _, _, err := w.auth.Redeem(t.Context(), link)
			return shown(session, err)
		}},
		{"a session ended", func() error {
			if len(w.credentials) == 0 {
				return nil
			}
			p, err := w.auth.Authenticate(t.Context(), w.question(w.random).credential)
			if err != nil {
				return err
			}
			return w.auth.EndSession(t.Context(), p)
		}},
		{"a token was created", func() error {
			made, err := w.auth.CreateThreadToken(t.Context(), scope, thread, agent, nil)
			return shown(made.Token, err)
		}},
		{"tokens were revoked", func() error { return do("update threads set token_epoch = default where id = $1", thread) }},
		{"a thread was closed", func() error { return do("update threads set status = 'closed' where id = $1", thread) }},
		{"a thread was opened", func() error { return do("update threads set status = 'open'") }},
		{remade, func() error {
			err := w.DB.In(t.Context(), scope, func(tx pgx.Tx) error {
				return tx.QueryRow(t.Context(), "delete from threads where id = $1 returning id", thread).Scan(new(string))
			})
			if err != nil { // the thread is in the other house
				return err
			}
			// Under its old id, perhaps in the other house.
			house := w.houses[w.random.IntN(len(w.houses))]
			w.insert(t, `with s as (insert into streams (house_id, name) values ($1, generate_short_id()) returning name)
				insert into threads (id, house_id, stream_id) select $2, $1, name from s returning id`, house, thread)
			return nil
		}},
		{"an environment was created", func() error {
			return target(auth.Environment, "insert into environments (house_id, name) values ($1, 'recipe') returning id", house)
		}},
		{"an artifact was created", func() error {
			return target(auth.Artifact, "insert into artifacts (house_id, kind, thread_id) select $1, 'file', (select id from threads where id = $2) returning id", house, thread)
		}},
		{"artifacts were deleted", func() error { return do("delete from artifacts where random() < 0.5") }},
		{"environments were deleted", func() error {
			return do("delete from environments e where not exists (select from sandboxes s where s.environment_id = e.id)")
		}},
		{"the signing keys were rotated", func() error { return w.auth.RotateSigningKeys(t.Context(), w.random.IntN(2) == 0) }},
	}
	c := changes[w.random.IntN(len(changes))]
	err := c.do()
	if err != nil && fault.CodeOf(err) == fault.Unavailable {
		t.Fatalf("%s: %v", c.name, err)
	}
	return c.name
}
