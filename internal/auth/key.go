package auth

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// keyPrefix begins every API key, so that one is recognised where it should not be.
const keyPrefix = "arbe_"

// newKey is an API key: shown once, for the database keeps its hash.
func newKey() string {
	random := make([]byte, 32)
	rand.Read(random)
	return keyPrefix + hex.EncodeToString(random)
}

// APIKey is what there is to know of an API key. Zero times say that it has not happened, or never will.
type APIKey struct {
	ID, House, Agent, Name string
	CreatedAt, ExpiresAt   time.Time
	RevokedAt              time.Time
	// LastUsedAt may be a minute or two behind.
	LastUsedAt time.Time
}

// KeyDraft is a key to be made. Agent is its holder: the scope's own, or a bot of the house.
type KeyDraft struct {
	// ID makes a retry harmless; empty lets the database choose.
	ID, Agent, Name string
	// ExpiresAt is when it ends; zero is never.
	ExpiresAt time.Time
}

// CreateKey makes an API key for the scope's house alone. The key itself is told this once; so a draft whose
// ID is taken makes nothing, and is a [fault.Exists].
func (a *Auth) CreateKey(ctx context.Context, scope db.Scope, d KeyDraft) (key string, made APIKey, err error) {
	if !d.ExpiresAt.IsZero() && !d.ExpiresAt.After(time.Now()) {
		return "", APIKey{}, fault.New(fault.Invalid, "expires_at: this time has passed", "choose a later one, or leave it out")
	}
	key = newKey()
	err = a.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := a.equips(ctx, tx, scope, d.Agent); err != nil {
			return err
		}
		if d.ID == "" {
			if d.ID, err = a.q.NewID(ctx, tx); err != nil {
				return err
			}
		}
		row, err := a.q.InsertAPIKey(ctx, tx, query.InsertAPIKeyParams{
			ID: d.ID, AgentID: d.Agent, HouseID: db.Null(scope.House), Name: d.Name, Hash: digest(key), ExpiresAt: db.Null(d.ExpiresAt),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.Exists, "there is a key with this id, and a key is shown once only",
				"if you never saw it, revoke it and make one with another id")
		}
		made = fromKeyRow(row)
		return err
	})
	if err != nil {
		return "", APIKey{}, err
	}
	return key, made, nil
}

// equips tells whether scope's agent may give a credential to agent: to themselves, or to a bot of the house.
// Whether they may at all is for [Auth.May] to say; arbe itself has no agent.
func (a *Auth) equips(ctx context.Context, tx pgx.Tx, scope db.Scope, agent string) error {
	kind, err := a.q.MemberKind(ctx, tx, scope.House, agent)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fault.New(fault.NotFound, "agent_id: there is none with this id in the house", "list them with ListAgents, or leave it out")
	case err != nil:
		return err
	case kind != "bot" && agent != scope.Agent:
		return fault.New(fault.Forbidden, "agent_id: a person makes their own credentials", "name a bot, or leave it out")
	}
	return nil
}

// Keys lists the keys of the scope's house, oldest first.
func (a *Auth) Keys(ctx context.Context, scope db.Scope, after db.Cursor, limit int) (list []APIKey, err error) {
	err = a.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := a.q.ListAPIKeys(ctx, tx, query.ListAPIKeysParams{
			HouseID: scope.House, AfterTime: after.Time, AfterID: after.ID, MaxRows: int32(limit),
		})
		for _, row := range rows {
			list = append(list, fromKeyRow(row))
		}
		return err
	})
	return list, err
}

// RevokeKey ends a key of the scope's house for good. One that has ended already stays as it is.
func (a *Auth) RevokeKey(ctx context.Context, scope db.Scope, id string) error {
	return a.db.In(ctx, scope, func(tx pgx.Tx) error { return a.q.RevokeAPIKey(ctx, tx, id) })
}

// ReplaceKey makes an API key for an agent over all its houses, and revokes the agent's earlier keys of
// the same name. The key is told this once; the database keeps its hash.
func (a *Auth) ReplaceKey(ctx context.Context, agent, name string) (key string, err error) {
	key = newKey()
	err = a.db.In(ctx, db.Scope{Agent: agent}, func(tx pgx.Tx) error {
		if err := a.q.RevokeAPIKeys(ctx, tx, agent, name); err != nil {
			return err
		}
		id, err := a.q.NewID(ctx, tx)
		if err != nil {
			return err
		}
		_, err = a.q.InsertAPIKey(ctx, tx, query.InsertAPIKeyParams{ID: id, AgentID: agent, Name: name, Hash: digest(key)})
		return err
	})
	return key, err
}

func fromKeyRow(r query.ApiKey) APIKey {
	return APIKey{
		ID: r.ID, House: db.Zero(r.HouseID), Agent: r.AgentID, Name: r.Name, CreatedAt: r.CreatedAt,
		ExpiresAt: db.Zero(r.ExpiresAt), RevokedAt: db.Zero(r.RevokedAt), LastUsedAt: db.Zero(r.LastUsedAt),
	}
}

// noteEvery is how long uses of keys are gathered before they are written together.
const noteEvery = time.Minute

// used gathers when keys were used. What it holds when the program ends is lost.
type used struct {
	mu   sync.Mutex
	when map[[32]byte]time.Time
}

// note remembers a use of the key with this hash.
func (u *used) note(a *Auth, hash []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.when == nil {
		u.when = map[[32]byte]time.Time{}
		time.AfterFunc(noteEvery, func() { _ = a.NoteKeysUsed(context.Background()) }) // when it fails, the next use tells
	}
	u.when[[32]byte(hash)] = time.Now()
}

// NoteKeysUsed writes down when keys were used through this server. It is done by itself within a minute.
func (a *Auth) NoteKeysUsed(ctx context.Context) error {
	a.used.mu.Lock()
	when := a.used.when
	a.used.when = nil
	a.used.mu.Unlock()
	if len(when) == 0 {
		return nil
	}
	var hashes [][]byte
	var times []time.Time
	for hash, t := range when {
		hashes, times = append(hashes, hash[:]), append(times, t)
	}
	ctx, cancel := context.WithTimeout(ctx, recheckWithin)
	defer cancel()
	return db.Explain(a.q.NoteAPIKeysUsed(ctx, a.db.Pool(), hashes, times))
}
