package secret

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

// seedSetting is the name under which the seed of [Sealer.Derive] is stored.
const seedSetting = "derivation_seed"

// Seed returns the sealer with the installation's seed, which the first call creates. conn is a connection as the owner
// of the schema. fresh says that this start created the installation. For an installation of an older version, the seed
// is that version's key, so that everything derived from it stays the same. Several servers may call Seed at once.
func Seed(ctx context.Context, conn *pgx.Conn, sealer *Sealer, fresh bool) (*Sealer, error) {
	sealed, err := setting(ctx, conn, seedSetting)
	if errors.Is(err, pgx.ErrNoRows) {
		sealed, err = sealer.plant(ctx, conn, fresh)
	} else {
		err = db.Explain(err)
	}
	if err != nil {
		return nil, err
	}
	seed, err := sealer.Open(sealed)
	if err != nil {
		return nil, err
	}
	return sealer.seeded(seed), nil
}

// setting reads a sealed setting.
func setting(ctx context.Context, conn *pgx.Conn, name string) (sealed []byte, err error) {
	err = conn.QueryRow(ctx, "select sealed from sealed_settings where name = $1", name).Scan(&sealed)
	return sealed, err
}

// plant creates the seed, and returns it sealed. Another server's seed may have come first.
func (s *Sealer) plant(ctx context.Context, conn *pgx.Conn, fresh bool) (sealed []byte, err error) {
	var before []byte
	if !fresh {
		if before, err = setting(ctx, conn, "server_role_password"); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, db.Explain(err)
		}
	}
	seed, err := s.newSeed(before)
	if err != nil {
		return nil, err
	}
	made, err := s.Seal(seed)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "insert into sealed_settings (name, sealed) values ($1, $2) on conflict do nothing", seedSetting, made); err != nil {
		return nil, db.Explain(err)
	}
	sealed, err = setting(ctx, conn, seedSetting)
	return sealed, db.Explain(err)
}

// sealedUnderRoot are the columns with values that a root key seals. bound is the SQL of the value's associated data;
// it is empty if the column holds a result of [Sealer.Seal].
var sealedUnderRoot = []struct{ table, key, bound string }{
	{"sealed_settings", "name", ""},
	{"signing_keys", "id", ""},
	{"house_keys", "house_id", "house_id"},
}

// Rewrap reseals everything that is sealed under a root key of the installation under the first key of the sealer,
// unless it already is, and returns how many values it changed. conn is a connection as the owner of the schema,
// because Rewrap changes all houses. Servers that have both the old and the new key keep running meanwhile. Rewrap
// changes each value separately, so the next Rewrap continues one that was interrupted, and several at once are
// harmless.
func Rewrap(ctx context.Context, conn *pgx.Conn, sealer *Sealer) (changed int, err error) {
	keys := &dataKeys{sealer: sealer}
	for _, of := range sealedUnderRoot {
		rows, err := conn.Query(ctx, "select "+of.key+" from "+of.table+" order by 1")
		if err != nil {
			return changed, db.Explain(err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return changed, db.Explain(err)
		}
		for _, id := range ids {
			n, err := rewrapOne(ctx, conn, of.table, of.key, id, func(sealed []byte) ([]byte, bool, error) {
				if of.bound != "" {
					return keys.resealed(id, sealed)
				}
				return sealer.Reseal(sealed)
			})
			if changed += n; err != nil {
				return changed, db.Explain(err)
			}
		}
	}
	return changed, nil
}

func rewrapOne(ctx context.Context, conn *pgx.Conn, table, key, id string, reseal func([]byte) ([]byte, bool, error)) (int, error) {
	for {
		var sealed []byte
		err := conn.QueryRow(ctx, "select sealed from "+table+" where "+key+" = $1", id).Scan(&sealed)
		if err == pgx.ErrNoRows {
			return 0, nil // deleted meanwhile
		} else if err != nil {
			return 0, err
		}
		again, changed, err := reseal(sealed)
		if err != nil || !changed {
			return 0, err
		}
		// The update applies only to the same old value, because a house's key may have been replaced meanwhile: no
		// transaction is open during the call of a KMS.
		tag, err := conn.Exec(ctx, "update "+table+" set sealed = $2 where "+key+" = $1 and sealed = $3", id, again, sealed)
		if err != nil || tag.RowsAffected() == 1 {
			return 1, err
		}
	}
}
