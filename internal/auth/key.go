package auth

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// keyPrefix begins every API key, so that secret scanners and people recognise a leaked one.
const keyPrefix = "arbe_"

// newKey returns a new API key. It is shown once, because the database stores only its hash.
func newKey() string {
	random := make([]byte, 32)
	rand.Read(random)
	return keyPrefix + hex.EncodeToString(random)
}

// APIKey describes an API key. A zero time means that the event has not happened or will not happen.
type APIKey struct {
	ID, House, Agent, Name string
	// Maker is who created it: the agent, or an owner of the house for a bot. If the maker stops being an owner, the bot's
	// key is revoked. It is empty for a bot's key from before makers were recorded.
	Maker                string
	CreatedAt, ExpiresAt time.Time
	RevokedAt            time.Time
	// LastUsedAt may be a minute or two behind, because uses are recorded together.
	LastUsedAt time.Time
}

// maxKeyName is the longest name of a key, in characters.
const maxKeyName = 100

// KeyDraft describes a key to create. Agent is its holder: the scope's agent, or a bot of the house.
type KeyDraft struct {
	// ID makes a retry harmless: within a house the same ID always stands for the same key. It is not the id of the
	// created key. If it is empty, each call creates another key.
	ID, Agent, Name string
	// ExpiresAt is when the key expires; zero is never.
	ExpiresAt time.Time
}

// CreateKey creates an API key that is valid for the scope's house only. The key is returned only this once, so a draft
// whose ID was already used in the house creates nothing: the error is a [fault.Exists].
func (a *Auth) CreateKey(ctx context.Context, scope db.Scope, d KeyDraft) (key string, made APIKey, err error) {
	if !d.ExpiresAt.IsZero() && !d.ExpiresAt.After(time.Now()) {
		return "", APIKey{}, fault.New(fault.Invalid, "expires_at: this time is in the past", "choose a later one, or leave it out")
	}
	if d.Name, err = entry.RequiredName("name", d.Name, maxKeyName); err != nil {
		return "", APIKey{}, err
	}
	key = newKey()
	err = a.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := a.checkHolder(ctx, tx, scope, d.Agent); err != nil {
			return err
		}
		if d.ID != "" {
			d.ID = db.IDFor(scope.House, d.ID)
		} else if d.ID, err = a.q.NewID(ctx, tx); err != nil {
			return err
		}
		row, err := a.q.InsertAPIKey(ctx, tx, query.InsertAPIKeyParams{
			ID: d.ID, AgentID: d.Agent, HouseID: db.Null(scope.House), Name: d.Name, Hash: digest(key), ExpiresAt: db.Null(d.ExpiresAt),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.Newf(fault.Exists, "if you never saw it, revoke it and create one with another id", "this id was already used for key %s, which was shown once", d.ID)
		}
		made = fromKeyRow(row)
		return err
	})
	if err != nil {
		return "", APIKey{}, err
	}
	return key, made, nil
}

// checkHolder checks that scope's agent may create a credential for agent: for themselves, or for a bot of the house.
// [Auth.Authorize] decides whether they may create credentials at all. arbe itself is no agent and may create them only
// for bots.
func (a *Auth) checkHolder(ctx context.Context, tx pgx.Tx, scope db.Scope, agent string) error {
	kind, err := a.q.MemberKind(ctx, tx, scope.House, agent)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fault.New(fault.NotFound, "agent_id: the house has no agent with this id", "list them with ListAgents, or leave it out")
	case err != nil:
		return err
	case agent == scope.Agent || scope.Agent == "" && kind == "bot":
		return nil
	case kind != "bot":
		return fault.New(fault.Forbidden, "agent_id: people create their own credentials", "name a bot, or leave it out")
	}
	// The maker stays an owner until the credential is stored: otherwise it would outlive a removal at the same time.
	role, err := a.q.KeepRole(ctx, tx, scope.House, scope.Agent)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && role != "owner" {
		return fault.New(fault.Forbidden, "only an owner of the house may do this", "ask an owner; arbe house list shows your role").WithReason(fault.OwnersOnly)
	}
	return err
}

// Keys lists the keys of the scope's house, oldest first; in a scope without a house, the agent's own keys that are
// valid for all their houses.
func (a *Auth) Keys(ctx context.Context, scope db.Scope, after db.Cursor, limit int) (list []APIKey, err error) {
	err = a.db.In(ctx, scope, func(tx pgx.Tx) error {
		var rows []query.ApiKey
		if scope.House == "" {
			rows, err = a.q.ListAPIKeysForAllHouses(ctx, tx, after.Time, after.ID, int32(limit))
		} else {
			rows, err = a.q.ListAPIKeys(ctx, tx, query.ListAPIKeysParams{
				HouseID: scope.House, AfterTime: after.Time, AfterID: after.ID, MaxRows: int32(limit),
			})
		}
		for _, row := range rows {
			list = append(list, fromKeyRow(row))
		}
		return err
	})
	return list, err
}

// RevokeKey revokes a key of the scope's house for good. It does nothing if the key has already ended.
func (a *Auth) RevokeKey(ctx context.Context, scope db.Scope, id string) error {
	return a.db.In(ctx, scope, func(tx pgx.Tx) error { return a.q.RevokeAPIKey(ctx, tx, id) })
}

// RevokeKeyForAllHouses is [Auth.RevokeKey] of a key of the scope's agent that is valid for all their houses. It reports
// whether the agent has such a key.
func (a *Auth) RevokeKeyForAllHouses(ctx context.Context, scope db.Scope, id string) (found bool, err error) {
	err = a.db.In(ctx, scope, func(tx pgx.Tx) error {
		n, err := a.q.RevokeAPIKeyForAllHouses(ctx, tx, id)
		found = n > 0
		return err
	})
	return found, err
}

// RevokeShownKey revokes the API key that p shows, if its id is this one. It reports whether it is. An empty id stands
// for the key shown; if p shows another kind of credential, the error is a [fault.Invalid].
func (a *Auth) RevokeShownKey(ctx context.Context, p Principal, id string) (found bool, err error) {
	switch {
	case p.Credential != apiKey && id == "":
		return false, fault.New(fault.Invalid, "id: it is empty, and this request shows no API key", "give the id of a key, as ListAPIKeys shows it")
	case p.Credential != apiKey:
		return false, nil
	}
	err = a.db.In(ctx, db.Scope{House: p.House, Agent: p.Agent}, func(tx pgx.Tx) error {
		n, err := a.q.RevokeAPIKeyByHash(ctx, tx, p.hash, id)
		found = n > 0
		return err
	})
	return found, err
}

// ReplaceKey creates an API key that is valid for all houses of an agent, and revokes the agent's earlier keys of the
// same name. The key is returned only this once; the database stores its hash.
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
		ID: r.ID, House: db.Zero(r.HouseID), Agent: r.AgentID, Name: r.Name, Maker: db.Zero(r.CreatedBy), CreatedAt: r.CreatedAt,
		ExpiresAt: db.Zero(r.ExpiresAt), RevokedAt: db.Zero(r.RevokedAt), LastUsedAt: db.Zero(r.LastUsedAt),
	}
}

// recordUsesEvery is how long uses of keys are collected before they are written together. Otherwise each request would
// cost a write.
const recordUsesEvery = time.Minute

// recordUse notes a use of the key or session with this hash. Of a session, it notes the User-Agent header, too.
func (a *Auth) recordUse(hash []byte, agent string) {
	u := a.used
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.when == nil {
		u.when = map[[32]byte]use{}
		time.AfterFunc(recordUsesEvery, func() { _ = a.RecordKeyUses(context.Background()) }) // after a failure, the next use tries again
	}
	u.when[[32]byte(hash)] = use{time.Now(), agent[:min(len(agent), 500)]}
}

// RecordKeyUses records when keys and sessions were used through this server. It runs by itself within a minute of a use.
func (a *Auth) RecordKeyUses(ctx context.Context) error {
	a.used.mu.Lock()
	when := a.used.when
	a.used.when = nil
	a.used.mu.Unlock()
	if len(when) == 0 {
		return nil
	}
	var hashes [][]byte
	var times []time.Time
	var clients []string
	for hash, u := range when {
		hashes, times, clients = append(hashes, hash[:]), append(times, u.at), append(clients, ClientName(u.agent))
	}
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	err := a.q.RecordAPIKeyUse(ctx, a.db.Pool(), hashes, times)
	if err == nil {
		err = a.q.RecordSessionUse(ctx, a.db.Pool(), hashes, times, clients)
	}
	return db.Explain(err)
}
