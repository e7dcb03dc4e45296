package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// Account describes how a house brings its own key to a driver's provider. A house that has the secret has its boxes
// in its own account, instead of the operator's. A key is tried by listing the boxes of its account.
type Account struct {
	// Secret is the name of the secret with the key, such as DAYTONA_API_KEY.
	Secret string
	// Open returns a driver for the account of a key. It does not ask the provider. The driver connects only to the
	// operator's address or to public addresses, never to a host in the operator's network that the account names. It
	// is not [Gated], and its boxes are not bound to a machine.
	Open func(key string) (Driver, error)
}

// accounts are the houses' own accounts at providers. The key is read for each use, so a new key works at once, and a
// deleted one is not kept. It is safe for concurrent use.
type accounts struct {
	of      map[string]Account // by the driver's name
	secrets *secret.Secrets

	mu     sync.Mutex
	opened map[accountKey]openedAccount
}

type accountKey struct{ house, driver string }

type openedAccount struct {
	revision int64 // of the secret
	driver   Driver
}

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

const (
	// accountsAtOnce is the number of accounts that one sweep asks concurrently, and accountsMost the number that it
	// asks in total.
	accountsAtOnce, accountsMost = 8, 20_000
	// accountsTime limits a sweep of all accounts. The next sweep visits them in another order.
	accountsTime = 4 * time.Minute
)

// SweepAccounts is [Reaper.Sweep] for the houses' own accounts. Each has limited time, and one that failed is left
// alone for a while, so no account delays another.
func (r *Reaper) SweepAccounts(ctx context.Context) {
	of := r.drivers.accounts.of
	var secrets []string
	for _, a := range of {
		secrets = append(secrets, a.Secret)
	}
	if len(secrets) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, accountsTime)
	defer cancel()
	var found []query.HousesWithSecretsRow
	err := r.db.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
		found, err = r.sandboxes.q.HousesWithSecrets(ctx, tx, secrets, accountsMost)
		return err
	})
	if err != nil {
		r.complain(ctx, "", "cannot look for houses with accounts of their own", err)
		return
	}
	turns := make(chan struct{}, accountsAtOnce)
	var all sync.WaitGroup
	for _, house := range found {
		for _, name := range r.drivers.accounts.named(house.Name) {
			select {
			case turns <- struct{}{}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				break
			}
			all.Go(func() {
				defer func() { <-turns }()
				r.sweepAccount(ctx, house.HouseID, name)
			})
		}
	}
	all.Wait()
}

// sweepAccount is [Reaper.Sweep] for the boxes of one house's account.
func (r *Reaper) sweepAccount(ctx context.Context, house, name string) {
	at := "account " + name + " " + house
	if !r.rests.over(at) {
		return
	}
	driver, err := r.drivers.accounts.open(ctx, house, name)
	if err == nil {
		err = r.sweepDriver(ctx, swept{name: name, driver: driver, house: house, own: true}, sweepTime)
	}
	if err != nil {
		r.rests.begin(at, sweepEach)
		r.complain(ctx, house, "cannot sweep the sandboxes of a house's own account at the provider "+name, err)
		return
	}
	r.rests.end(at)
}

// CloseAccounts closes the houses' own accounts. No method may be called after it.
func (r *Resolver) CloseAccounts(ctx context.Context) error { return r.drivers.accounts.close(ctx) }
