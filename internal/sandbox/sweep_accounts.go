package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

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
