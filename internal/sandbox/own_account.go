package sandbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// AccountKeys returns the names that belong to secrets with keys of sandbox providers, whether they are set or not.
// Callers let only owners set, delete or bind them.
func (r *Resolver) AccountKeys(names ...string) (keys []string) {
	for _, name := range names {
		if len(r.drivers.accounts.named(name)) > 0 {
			keys = append(keys, name)
		}
	}
	return keys
}

// TryAccount tries a new value for a secret of the scope's house, if the secret is a key of sandbox providers. It
// returns the result as a sentence, or "" for any other secret. It changes nothing. A key that a provider refuses is
// a [fault.Invalid]. While the house has sandboxes in its own account, only another key of the same account is
// accepted. A key of a different account is a [fault.Precondition]. With skip, the key is not tried.
func (r *Resolver) TryAccount(ctx context.Context, scope db.Scope, name, value string, skip bool) (said string, err error) {
	names := r.drivers.accounts.named(name)
	if len(names) == 0 {
		return "", nil
	}
	if len(value) > maxKey || strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", fault.New(fault.Invalid, "value: it cannot be a key: it has spaces, line breaks or other characters that no key has", "copy the whole key, and nothing else")
	}
	if skip {
		return "It was not tried, as you asked.", nil
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	release, err := r.Reaper.asking.acquire(ctx, scope.House)
	if err != nil {
		return "", err
	}
	defer release()
	for _, driver := range names {
		if err := r.tryAccount(ctx, scope, driver, value); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("The provider accepts the key. New sandboxes of the driver %s are created in its account; those that exist stay where they are.", strings.Join(names, ", ")), nil
}

func (r *Resolver) tryAccount(ctx context.Context, scope db.Scope, name, key string) error {
	driver, err := r.drivers.accounts.of[name].Open(key)
	if err != nil {
		return err
	}
	defer driver.Close(context.WithoutCancel(ctx)) // it only frees connections
	if _, err := driver.List(ctx, Labels{Installation: r.Reaper.installation, House: scope.House}); err != nil {
		if fault.CodeOf(err) == fault.Precondition {
			return fault.Newf(fault.Invalid, "copy the whole key, and set it again; nothing was changed", "value: the provider of the driver %s does not accept the key", name).Because(err)
		}
		return fault.Newf(fault.Unavailable, "nothing was changed; try again; to store it untried: --no-check, or skip_check", "the key could not be tried: %s", fault.From(err).Message).Because(err)
	}
	var boxes []query.Sandbox
	if err := r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		boxes, err = r.Sandboxes.q.OwnSandboxes(ctx, tx, scope.House, []string{name}, probedMost)
		return err
	}); err != nil {
		return err
	}
	for _, row := range boxes {
		if row.ProviderRef == nil {
			return fault.Newf(fault.Precondition, "nothing was changed; try again when it is ready", "the sandbox %s is being created with the present key", row.ID)
		}
		switch alive, err := driver.Probe(ctx, *row.ProviderRef); {
		case err != nil || alive == Unknown:
			return fault.Newf(fault.Unavailable, "nothing was changed; try again; to store it untried: --no-check, or skip_check", "it could not be tried whether the key reaches the sandbox %s", row.ID).Because(err)
		case alive == Gone:
			return fault.Newf(fault.Precondition, "use a key of the same account, or delete the sandboxes first: arbe sandbox list --driver "+name+"; nothing was changed",
				"value: the key does not reach the sandbox %s, which is in the account of the present key", row.ID)
		}
	}
	return nil
}

// OwnAccount describes a house's own account for a driver.
type OwnAccount struct {
	Driver, Secret string
	// Set means that the house has a key, so its new boxes are in its own account. Operator means that the operator
	// has an account too.
	Set, Operator bool
	// Sandboxes is how many boxes are in the house's own account, at most askedMost.
	Sandboxes int
}

// OwnAccounts returns the drivers for which the scope's house can bring a key, by name.
func (r *Resolver) OwnAccounts(ctx context.Context, scope db.Scope) (list []OwnAccount, err error) {
	err = r.db.In(ctx, db.Scope{House: scope.House}, func(tx pgx.Tx) error {
		list = nil
		for _, name := range slices.Sorted(maps.Keys(r.drivers.accounts.of)) {
			a := OwnAccount{Driver: name, Secret: r.drivers.accounts.of[name].Secret}
			if a.Set, err = r.Sandboxes.q.HasSecret(ctx, tx, a.Secret); err != nil {
				return err
			}
			boxes, err := r.Sandboxes.q.OwnSandboxes(ctx, tx, scope.House, []string{name}, askedMost)
			if err != nil {
				return err
			}
			_, a.Operator = r.drivers.all()[name]
			a.Sandboxes = len(boxes)
			list = append(list, a)
		}
		return nil
	})
	return list, err
}

// CloseAccounts closes the houses' own accounts. No method may be called after it.
func (r *Resolver) CloseAccounts(ctx context.Context) error { return r.drivers.accounts.close(ctx) }
