package sandbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// askedMost is the number of sandboxes of a house about which a provider is asked at once.
const askedMost = 1000

// mostOpened limits the open accounts.
const mostOpened = 10_000

// open returns the driver of a house's account. Without its key, the error has the reason [fault.SecretMissing].
func (a *accounts) open(ctx context.Context, house, name string) (Driver, error) {
	of, known := a.of[name]
	if !known {
		return nil, fault.Newf(fault.Precondition, "ask the operator to update it", "this server knows no accounts of houses for the driver %s", name)
	}
	key, revision, err := a.secrets.Current(ctx, house, of.Secret)
	at := accountKey{house, name}
	a.mu.Lock()
	defer a.mu.Unlock()
	if fault.CodeOf(err) == fault.NotFound {
		a.closeLocked(at)
		return nil, fault.Newf(fault.Precondition, "set it again with: arbe secret set "+of.Secret+"; or give the sandbox up with: arbe sandbox delete --discard",
			"the sandbox is in the house's own account, whose key %s is deleted", of.Secret).WithReason(fault.SecretMissing)
	} else if err != nil {
		return nil, err
	}
	if was, ok := a.opened[at]; ok && was.revision == revision {
		return was.driver, nil
	}
	driver, err := of.Open(key)
	if err != nil {
		return nil, err
	}
	a.closeLocked(at)
	if len(a.opened) >= mostOpened { // reopening one is cheap
		for other := range a.opened {
			a.closeLocked(other)
			break
		}
	}
	a.opened[at] = openedAccount{revision, driver}
	return driver, nil
}

// closeLocked closes an account after an hour, so its current uses can end.
func (a *accounts) closeLocked(at accountKey) {
	was, ok := a.opened[at]
	if !ok {
		return
	}
	delete(a.opened, at)
	time.AfterFunc(time.Hour, func() { _ = was.driver.Close(context.Background()) }) // closing only frees connections
}

// close closes all accounts.
func (a *accounts) close(ctx context.Context) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, was := range a.opened {
		err = errors.Join(err, was.driver.Close(ctx))
		delete(a.opened, at)
	}
	return err
}

// named returns the drivers whose keys are the secrets with these names, sorted.
func (a *accounts) named(secrets ...string) (drivers []string) {
	for _, name := range slices.Sorted(maps.Keys(a.of)) {
		if slices.Contains(secrets, a.of[name].Secret) {
			drivers = append(drivers, name)
		}
	}
	return drivers
}

// AccountUses returns, as [secret.Uses], the sandboxes in the accounts of drivers. They use the accounts' keys.
func AccountUses(of map[string]Account) secret.Uses {
	return func(ctx context.Context, tx pgx.Tx, house string) (map[string][]secret.Use, error) {
		rows, err := query.New().OwnSandboxes(ctx, tx, house, slices.Sorted(maps.Keys(of)), askedMost)
		uses := map[string][]secret.Use{}
		for _, row := range rows {
			name := of[row.Provider].Secret
			uses[name] = append(uses[name], secret.Use{Kind: "sandbox", Name: row.ID})
		}
		return uses, err
	}
}

const (
	// tryTime limits a try of a key, and probedMost the number of sandboxes with which a new key is tried.
	tryTime, probedMost = 20 * time.Second, 5
	// maxKey is the size of the longest key, in bytes.
	maxKey = 4096
)

// of returns the driver of a sandbox's box: the operator's, or the one for the house's own account.
func (d *drivers) of(ctx context.Context, box Sandbox) (Driver, error) {
	if box.OwnAccount {
		return d.accounts.open(ctx, box.House, box.Provider)
	}
	return d.get(box.Provider)
}

// chooseTx reports whether new boxes of the transaction's house go to its own account. It returns an error if the
// house can have no box.
func (d *drivers) chooseTx(ctx context.Context, tx pgx.Tx, q *query.Queries, name string) (own bool, err error) {
	of, known := d.accounts.of[name]
	if known {
		if own, err = q.HasSecret(ctx, tx, of.Secret); err != nil || own {
			return own, err
		}
	}
	if _, err = d.get(name); err != nil && known {
		f := fault.From(err)
		err = fault.New(f.Code, f.Message, "set a key of the house with: arbe secret set "+of.Secret+"; or "+f.Next).Because(err)
	}
	return false, err
}
