package auth

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

const (
	// signingKeyAge is how old the key that signs may become before a new one takes its place.
	signingKeyAge = 30 * 24 * time.Hour
	// overlap is how long a key is kept after another one took its place: until the last token that it signed
	// has expired, and a while for what was under way.
	overlap = TokenLife + 10*time.Minute
	// readKeysEvery is how often at most the keys are looked up for one that is not known.
	readKeysEvery = time.Second
)

// TurnSigningKeys makes a new signing key when there is none, or the newest is about 30 days old, and drops
// those that nothing that counts is signed with any more. Servers may do it at the same time.
func (a *Auth) TurnSigningKeys(ctx context.Context) error {
	return a.turnKeys(ctx, signingKeyAge, overlap)
}

// RotateSigningKeys makes a new signing key now. dropOld ends all tokens that the earlier ones signed, at once
// and on all servers; otherwise these go on until they expire. With another sealer than theirs it is a
// [fault.Precondition].
func (a *Auth) RotateSigningKeys(ctx context.Context, dropOld bool) error {
	// A key that is sealed with another sealer than the others would stop the servers.
	if _, _, err := a.signing.newest(ctx); err != nil {
		return err
	}
	keep := overlap
	if dropOld {
		keep = 0
	}
	return a.turnKeys(ctx, 0, keep)
}

func (a *Auth) turnKeys(ctx context.Context, unlessYounger, keepFor time.Duration) error {
	secret := make([]byte, 32)
	rand.Read(secret)
	sealed, err := a.signing.sealer.Seal(secret)
	if err != nil {
		return err
	}
	return a.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		if err := a.q.LockSigningKeys(ctx, tx); err != nil {
			return err
		}
		if err := a.q.AddSigningKey(ctx, tx, sealed, unlessYounger.Seconds()); err != nil {
			return err
		}
		return a.q.DropSigningKeys(ctx, tx, keepFor.Seconds())
	})
}

// keyring holds the opened signing keys. That it knows one does not mean that it still counts: this is for the
// database to say, in the round trip that every use of a token takes anyway.
type keyring struct {
	q      *query.Queries
	from   query.DBTX
	sealer db.Sealer

	mu   sync.RWMutex
	keys map[string][]byte
	// read is when the keys were last read; who holds turn may read them.
	read time.Time
	turn chan struct{}
}

func newKeyring(from query.DBTX, s db.Sealer) *keyring {
	return &keyring{q: query.New(), from: from, sealer: s, keys: map[string][]byte{}, turn: make(chan struct{}, 1)}
}

// get is the key with this id; nil when there is none. One that another server made lately is read from the
// database. However many made-up ids come in, that is done once a [readKeysEvery], for all who wait.
func (k *keyring) get(ctx context.Context, id string) ([]byte, error) {
	came := time.Now()
	if key, _ := k.known(id); key != nil {
		return key, nil
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	key, read := k.known(id)
	if key != nil || read.After(came) {
		return key, nil
	}
	select {
	case <-time.After(time.Until(read.Add(readKeysEvery))):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if _, _, err := k.newest(ctx); err != nil {
		return nil, err
	}
	key, _ = k.known(id)
	return key, nil
}

func (k *keyring) known(id string) (key []byte, read time.Time) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.keys[id], k.read
}

// newest reads the keys, and returns the one that signs with its id; nil when there is none yet.
func (k *keyring) newest(ctx context.Context) (key []byte, id string, err error) {
	began := time.Now()
	rows, err := k.q.SigningKeys(ctx, k.from)
	if err != nil {
		return nil, "", db.Explain(err)
	}
	keys := map[string][]byte{}
	for _, row := range rows {
		if keys[row.ID], _ = k.known(row.ID); keys[row.ID] == nil {
			if keys[row.ID], err = k.sealer.Open(row.Sealed); err != nil {
				return nil, "", err
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.read = keys, began
	if len(rows) == 0 {
		return nil, "", nil
	}
	return keys[rows[0].ID], rows[0].ID, nil
}
