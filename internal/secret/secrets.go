package secret

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

const (
	// MaxValue is the longest value, in bytes.
	MaxValue = 64 << 10
	// maxSecrets and maxBytes limit the secrets of a house.
	maxSecrets = 200
	maxBytes   = 1 << 20
)

// Secret describes a secret to people: everything but its value.
type Secret struct {
	ID, Name string
	// Redacted is false if the value is not removed from output, because it is too short or too common ([Redactable]).
	Redacted bool
	// SetBy is the agent who set the current value, and SetByName their name; empty if they are gone.
	SetBy, SetByName string
	// CreatedAt is when the secret was created, SetAt when it got its current value, and UsedAt when the server last
	// used it, accurate to a minute; zero if never.
	CreatedAt, SetAt, UsedAt time.Time
	// Uses lists what uses it.
	Uses []Use
}

// Use is something that uses a secret by its name.
type Use struct {
	// Kind and Name say what uses it, for example "environment" and "build".
	Kind, Name string
}

func (u Use) String() string { return strings.TrimSpace(u.Kind + " " + u.Name) }

// Uses finds what else uses a house's secrets. The result maps their names to the uses.
type Uses func(ctx context.Context, tx pgx.Tx, house string) (map[string][]Use, error)

// EachUse returns the uses that any of several functions finds.
func EachUse(of ...Uses) Uses {
	return func(ctx context.Context, tx pgx.Tx, house string) (map[string][]Use, error) {
		all := map[string][]Use{}
		for _, uses := range of {
			found, err := uses(ctx, tx, house)
			if err != nil {
				return nil, err
			}
			for name, more := range found {
				all[name] = append(all[name], more...)
			}
		}
		return all, nil
	}
}

// Secrets are the named values of houses. It is safe for concurrent use, also by several servers.
//
// People set, list and delete them. Row-level security shows none to a bot's transaction. Only [Secrets.Value] and
// [Secrets.Values] return values, for the server's own use.
type Secrets struct {
	db   *db.DB
	keys *dataKeys
	q    *query.Queries
	uses Uses
	all  *Known
}

// New returns a Secrets. uses finds uses besides those that the schema knows; nil finds none. Every value that it sees
// is added to known, which redacts the server's own log; nil adds none.
func New(d *db.DB, sealer *Sealer, uses Uses, known *Known) *Secrets {
	return &Secrets{db: d, keys: &dataKeys{sealer: sealer}, q: query.New(), uses: uses, all: known}
}

var nameForm = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// CheckName returns a [fault.Invalid] if a secret cannot have this name. Names are those of environment variables,
// without arbe's own.
func CheckName(name string) error {
	switch {
	case name == "":
		return fault.New(fault.Invalid, "name: it is empty", "name the secret as an environment variable, such as ANTHROPIC_API_KEY")
	case !nameForm.MatchString(name):
		// The name is not repeated, because people who mistake the order give the value here.
		return fault.New(fault.Invalid, "name: it is not the name of an environment variable", "use letters, digits and _, not beginning with a digit, at most 100 characters, such as ANTHROPIC_API_KEY")
	case strings.HasPrefix(name, "ARBE_"):
		return fault.New(fault.Invalid, "name: names that begin with ARBE_ are arbe's own", "choose another name")
	}
	return nil
}

// Set creates a secret of the scope's house, or replaces its value. Setting the same value again changes nothing. fresh
// reports whether it was created.
func (s *Secrets) Set(ctx context.Context, scope db.Scope, name string, value []byte) (set Secret, fresh bool, err error) {
	if err := CheckName(name); err != nil {
		return Secret{}, false, err
	}
	if fresh, err = s.put(ctx, scope, value, func(pgx.Tx) (string, error) { return name, nil }); err != nil {
		return Secret{}, false, err
	}
	list, err := s.List(ctx, scope)
	for _, one := range list {
		if one.Name == name {
			return one, fresh, err
		}
	}
	if err == nil {
		err = fault.New(fault.Aborted, "somebody deleted the secret at the same time", "set it again if you want it")
	}
	return Secret{}, false, err
}

// SetChosen is [Secrets.Set] of a secret whose name choose returns, in the transaction that sets it. If the secret cannot be
// set, everything that choose writes is undone.
func (s *Secrets) SetChosen(ctx context.Context, scope db.Scope, value []byte, choose func(pgx.Tx) (name string, err error)) error {
	_, err := s.put(ctx, scope, value, choose)
	return err
}

// put sets the value of the secret whose name choose returns.
func (s *Secrets) put(ctx context.Context, scope db.Scope, value []byte, choose func(pgx.Tx) (string, error)) (fresh bool, err error) {
	switch {
	case len(value) == 0:
		return false, fault.New(fault.Invalid, "value: it is empty", "give a value; to remove the secret, delete it")
	case len(value) > MaxValue:
		return false, fault.Newf(fault.Invalid, "store larger values as artifacts", "value: it has %d bytes, more than the %d that a secret may have", len(value), MaxValue)
	case !utf8.Valid(value) || strings.ContainsRune(string(value), 0):
		return false, fault.New(fault.Invalid, "value: it is not text, which an environment variable must be", "encode it, for example with base64")
	}
	s.all.Add(value)
	redacted := Redactable(value)
	err = s.forPeople(ctx, scope, func(tx pgx.Tx) error {
		key, err := s.houseKey(ctx, tx, scope.House)
		if err != nil {
			return err
		}
		// choose runs after the key is locked, so that a rotation that holds the key does not wait for locks of choose.
		name, err := choose(tx)
		if err != nil {
			return err
		}
		old, err := s.q.GetSecretForUpdate(ctx, tx, scope.House, name)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
		case err != nil:
			return err
		default:
			if was, err := open(key, scope.House, name, old.Sealed); err == nil && string(was) == string(value) {
				return nil
			}
		}
		// Every Set takes only a shared lock of the house's key. Two at once may exceed the limit by one, which is
		// harmless.
		had, err := s.q.CountSecrets(ctx, tx, scope.House, name)
		if err != nil {
			return err
		}
		if had.Secrets >= maxSecrets || had.Bytes+int64(len(value)) > maxBytes {
			return fault.Newf(fault.Exhausted, "delete secrets that are not used; arbe secret list shows when each was used",
				"a house has at most %d secrets of %d KiB together", maxSecrets, maxBytes>>10).WithReason(fault.LimitReached)
		}
		sealed, err := key.Encrypt(value, bound(scope.House, name))
		if err != nil {
			return err
		}
		id := uuid.NewString()
		if err := s.q.AddSealedValue(ctx, tx, id, scope.House, sealed); err != nil {
			return err
		}
		if fresh, err = s.q.PutSecret(ctx, tx, query.PutSecretParams{HouseID: scope.House, Name: name, VaultSecretID: id, Redacted: redacted, SetBy: db.Null(scope.Agent)}); err != nil {
			return err
		}
		return s.q.DropSealedValues(ctx, tx, scope.House)
	})
	return fresh, err
}

// forPeople runs f in a transaction of the scope, unless its agent is a bot. Row-level security would hide the secrets from
// a bot anyway; this error says why.
func (s *Secrets) forPeople(ctx context.Context, scope db.Scope, f func(tx pgx.Tx) error) error {
	return s.db.In(ctx, scope, func(tx pgx.Tx) error {
		if bot, err := s.q.BotAsks(ctx, tx); err != nil {
			return err
		} else if bot {
			return fault.New(fault.Forbidden, "bots may not see or change secrets", "ask a person of the house")
		}
		return f(tx)
	})
}

// houseKey returns the data key of a house, and creates it if there is none. It cannot be replaced before tx ends.
func (s *Secrets) houseKey(ctx context.Context, tx pgx.Tx, house string) (tink.AEAD, error) {
	sealed, err := s.q.HouseKeyForShare(ctx, tx, house)
	if errors.Is(err, pgx.ErrNoRows) {
		made, _, err := s.keys.create(house)
		if err != nil {
			return nil, err
		}
		if err := s.q.AddHouseKey(ctx, tx, house, made); err != nil {
			return nil, err
		}
		// Another server may have added one meanwhile.
		if sealed, err = s.q.HouseKeyForShare(ctx, tx, house); err != nil {
			return nil, err
		}
		return s.keys.open(house, sealed)
	} else if err != nil {
		return nil, err
	}
	return s.keys.open(house, sealed)
}

// bound returns the associated data of a sealed value.
func bound(house, name string) []byte { return []byte("secret\x00" + house + "\x00" + name) }

func open(key tink.AEAD, house, name string, sealed []byte) ([]byte, error) {
	value, err := key.Decrypt(sealed, bound(house, name))
	if err != nil {
		return nil, fault.Newf(fault.Precondition, "set it again", "the secret %s cannot be opened: its row was changed or belongs elsewhere", name).Because(err)
	}
	return value, nil
}

// List returns the secrets of the scope's house by name, without their values.
func (s *Secrets) List(ctx context.Context, scope db.Scope) (list []Secret, err error) {
	err = s.forPeople(ctx, scope, func(tx pgx.Tx) error {
		rows, err := s.q.ListSecrets(ctx, tx, scope.House)
		if err != nil {
			return err
		}
		uses, err := s.used(ctx, tx, scope.House)
		for _, r := range rows {
			list = append(list, Secret{ID: r.ID, Name: r.Name, Redacted: r.Redacted, SetBy: r.SetBy, SetByName: r.SetByName,
				CreatedAt: r.CreatedAt, SetAt: r.SetAt, UsedAt: db.Zero(r.UsedAt), Uses: uses[r.Name]})
		}
		return err
	})
	return list, err
}

// used returns the uses of a house's secrets, by the names of the secrets.
func (s *Secrets) used(ctx context.Context, tx pgx.Tx, house string) (map[string][]Use, error) {
	rows, err := s.q.SecretUses(ctx, tx, house)
	if err != nil {
		return nil, err
	}
	all := map[string][]Use{}
	for _, r := range rows {
		all[r.Secret] = append(all[r.Secret], Use{r.Kind, r.Name})
	}
	if s.uses == nil {
		return all, nil
	}
	more, err := s.uses(ctx, tx, house)
	for name, uses := range more {
		all[name] = append(all[name], uses...)
	}
	return all, err
}

// Delete deletes a secret of the scope's house. If something uses it, the error is a [fault.Precondition] that says what,
// unless force is set. Deleting one that does not exist succeeds.
func (s *Secrets) Delete(ctx context.Context, scope db.Scope, name string, force bool) error {
	return s.forPeople(ctx, scope, func(tx pgx.Tx) error {
		if _, err := s.q.GetSecretForUpdate(ctx, tx, scope.House, name); errors.Is(err, pgx.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		uses, err := s.used(ctx, tx, scope.House)
		if err != nil {
			return err
		}
		if by := uses[name]; len(by) > 0 && !force {
			var names []string
			for _, u := range by[:min(len(by), 5)] {
				names = append(names, u.String())
			}
			if len(by) > 5 {
				names = append(names, fmt.Sprintf("%d more", len(by)-5))
			}
			return fault.Newf(fault.Precondition, "stop using it first, or delete it anyway (--force)", "the secret %s is used by %s", name, strings.Join(names, ", "))
		}
		_, err = s.q.DeleteSecret(ctx, tx, scope.House, name)
		return err
	})
}

// DropUnusedTx deletes a secret of a house in the caller's transaction, unless something uses it.
func (s *Secrets) DropUnusedTx(ctx context.Context, tx pgx.Tx, house, name string) error {
	uses, err := s.used(ctx, tx, house)
	if err != nil || len(uses[name]) > 0 {
		return err
	}
	_, err = s.q.DeleteSecret(ctx, tx, house, name)
	return err
}

// Value returns the value of a secret, for the server's own use, and records that it was used. If there is none, the
// error is a [fault.NotFound].
func (s *Secrets) Value(ctx context.Context, house, name string) (string, error) {
	values, err := s.Values(ctx, house, name)
	if err != nil {
		return "", err
	}
	value, there := values[name]
	if !there {
		return "", missing(name)
	}
	return value, s.Used(ctx, house, name)
}

// Current returns the value of a secret and its revision, which changes with its value, for the server's own use. It does not record
// a use. If there is none, the error is a [fault.NotFound].
func (s *Secrets) Current(ctx context.Context, house, name string) (value string, revision int64, err error) {
	rows, err := s.sealed(ctx, house, []string{name})
	if err != nil {
		return "", 0, err
	}
	if len(rows) == 0 {
		return "", 0, missing(name)
	}
	opened, err := s.open(house, rows[0])
	return string(opened), rows[0].Revision, err
}

func missing(name string) error {
	return fault.Newf(fault.NotFound, "set it with: arbe secret set "+name, "the house has no secret %s", name)
}

// Values returns the values of the named secrets, without those that do not exist, for the server's own use. It does not
// record a use, because the caller may not use them; see [Secrets.Used].
func (s *Secrets) Values(ctx context.Context, house string, names ...string) (values map[string]string, err error) {
	rows, err := s.sealed(ctx, house, names)
	if err != nil {
		return nil, err
	}
	values = make(map[string]string, len(rows))
	for _, r := range rows {
		value, err := s.open(house, r)
		if err != nil {
			return nil, err
		}
		values[r.Name] = string(value)
	}
	return values, nil
}

// open opens the value of a row.
func (s *Secrets) open(house string, r query.SealedSecretsRow) ([]byte, error) {
	key, err := s.keys.open(house, r.Key)
	if err != nil {
		return nil, err
	}
	value, err := open(key, house, r.Name, r.Sealed)
	if err == nil {
		s.all.Add(value)
	}
	return value, err
}

func (s *Secrets) sealed(ctx context.Context, house string, names []string) (rows []query.SealedSecretsRow, err error) {
	if names == nil {
		names = []string{}
	}
	err = s.db.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) error {
		rows, err = s.q.SealedSecrets(ctx, tx, house, names)
		return err
	})
	return rows, err
}

// Used records that the server used secrets. It is coalesced to once a minute for each.
func (s *Secrets) Used(ctx context.Context, house string, names ...string) error {
	return s.db.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) error { return s.q.NoteSecretsUsed(ctx, tx, house, names) })
}

// Rotate gives the scope's house a new data key and seals all its values under it, in one transaction. Servers that
// have cached the old key notice the change. A retry creates another key, which is harmless. It returns how many values
// it sealed.
func (s *Secrets) Rotate(ctx context.Context, scope db.Scope) (values int, err error) {
	err = s.forPeople(ctx, scope, func(tx pgx.Tx) error {
		// The lock keeps others from sealing a value under the old key meanwhile.
		if _, err := s.q.HouseKeyForUpdate(ctx, tx, scope.House); errors.Is(err, pgx.ErrNoRows) {
			return nil // no value was ever sealed
		} else if err != nil {
			return err
		}
		rows, err := s.q.SealedSecrets(ctx, tx, scope.House, []string{})
		if err != nil {
			return err
		}
		sealedKey, key, err := s.keys.create(scope.House)
		if err != nil {
			return err
		}
		for _, r := range rows {
			old, err := s.keys.open(scope.House, r.Key)
			if err != nil {
				return err
			}
			value, err := open(old, scope.House, r.Name, r.Sealed)
			if err != nil {
				return err
			}
			sealed, err := key.Encrypt(value, bound(scope.House, r.Name))
			if err != nil {
				return err
			}
			if err := s.q.SealedAgain(ctx, tx, sealed, scope.House, r.Name); err != nil {
				return err
			}
		}
		values = len(rows)
		return s.q.SetHouseKey(ctx, tx, sealedKey, scope.House)
	})
	return values, err
}
