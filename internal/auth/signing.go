package auth

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

const (
	// signingKeyAge is the age at which a signing key is replaced.
	signingKeyAge = 30 * 24 * time.Hour
	// overlap is how long a replaced key is kept: until the last token that it signed has expired, and some time for
	// clocks that differ and requests in progress.
	overlap = TokenTTL + 10*time.Minute
)

// RotateOldSigningKeys creates a new signing key if there is none or the newest is about 30 days old, and deletes keys
// whose tokens have all expired. Several servers may do this at the same time.
func (a *Auth) RotateOldSigningKeys(ctx context.Context) error {
	return a.rotate(ctx, signingKeyAge, overlap)
}

// RotateSigningKeys creates a new signing key now. With dropOld, all tokens signed with earlier keys end at once on all
// servers; otherwise they stay valid until they expire. The error is a [fault.Precondition] if the existing keys were
// sealed with another secret key.
func (a *Auth) RotateSigningKeys(ctx context.Context, dropOld bool) error {
	// A key that is sealed differently from the others would keep the servers from reading the keys.
	if _, _, err := a.signing.newest(ctx); err != nil {
		return err
	}
	keep := overlap
	if dropOld {
		keep = 0
	}
	return a.rotate(ctx, 0, keep)
}

func (a *Auth) rotate(ctx context.Context, unlessYounger, keepFor time.Duration) error {
	secret := make([]byte, 32)
	rand.Read(secret)
	sealed, err := a.signing.sealer.Seal(secret)
	if err != nil {
		return err
	}
	return a.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		// Otherwise each of several servers that start together would add a key.
		if err := a.q.LockSigningKeys(ctx, tx); err != nil {
			return err
		}
		if err := a.q.AddSigningKey(ctx, tx, sealed, unlessYounger.Seconds()); err != nil {
			return err
		}
		return a.q.DropSigningKeys(ctx, tx, keepFor.Seconds())
	})
}
