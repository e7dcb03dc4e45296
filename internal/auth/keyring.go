package auth

import (
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

// readKeysEvery is the shortest time between two reads of the keys for an unknown id. Otherwise each made-up id would cost a
// query.
const readKeysEvery = time.Second

// keyring holds decrypted signing keys. A key in it may have been deleted: only the database, or a fact (facts.go),
// says whether it is still valid.
type keyring struct {
	q      *query.Queries
	from   query.DBTX
	sealer db.Sealer

	mu   sync.RWMutex
	keys map[string][]byte
	// read is when the keys were last read. Holding a token of reading gives the right to read them.
	read    time.Time
	reading chan struct{}
}

func newKeyring(from query.DBTX, s db.Sealer) *keyring {
	return &keyring{q: query.New(), from: from, sealer: s, keys: map[string][]byte{}, reading: make(chan struct{}, 1)}
}

// get returns the key with this id, or nil if the id is unknown. It reads the database for a key that another server created
// recently, at most once per [readKeysEvery] for all callers together, however many made-up ids arrive.
func (k *keyring) get(ctx context.Context, id string) ([]byte, error) {
	came := time.Now()
	if key, _ := k.known(id); key != nil {
		return key, nil
	}
	select {
	case k.reading <- struct{}{}:
		defer func() { <-k.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	key, read := k.known(id)
	// If another caller has read the keys since, every key of that time is known: do not read them again.
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

// newest reads the keys and returns the one that signs, with its id. The key is nil before the first one is created.
func (k *keyring) newest(ctx context.Context) (key []byte, id string, err error) {
	// Taken before the query, because its result may lack a key that is added meanwhile.
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
