package auth

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// proveEvery is the time between two proofs that the listening connection receives notifications, and proveTimeout
	// limits each. Both together are less than leaseTime, so that a silent connection is replaced before facts become
	// invalid.
	proveEvery   = 200 * time.Millisecond
	proveTimeout = 400 * time.Millisecond
	// recheckBatch is how many watches one query checks, so that it ends within the time of one proof.
	recheckBatch = 500
	// connectTimeout limits how long making a listening connection may take.
	connectTimeout = 3 * time.Second
)

// Listen starts to answer from memory while notifications of changes are received over a connection outside the pool.
// Before that connection exists, and whenever it is broken, the database is asked every time. Call Listen once. stop
// ends it and waits until it has ended.
func (a *Auth) Listen() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	forget := a.db.OnPermission(a.changed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer a.facts.setListening(false)
		l := a.listener()
		a.listens.Store(l)
		l.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
		forget()
	}
}

// changed deletes the facts under topics and rechecks the watches that depend on them. A change of a membership affects
// every answer about its agent.
func (a *Auth) changed(heard []string) {
	// A copy, because other listeners get the same slice.
	topics := slices.Clone(heard)
	for _, topic := range heard {
		if agent, ok := changedAgent(topic); ok {
			topics = append(topics, agentTopic(agent))
		}
	}
	a.facts.forget(topics)
	a.rechecker.changed(topics)
}

// listener receives notifications of changes and renews the lease of the facts: each round trip over its connection
// proves that all earlier changes were received.
func (a *Auth) listener() *db.Listener {
	broken := false
	return &db.Listener{
		DB: a.db, Name: "arbe permission", Channels: []string{db.PermissionChannel},
		ConnectTimeout: connectTimeout, ProveEvery: proveEvery, ProveTimeout: proveTimeout,
		Notified: func(n *pgconn.Notification) { a.changed([]string{n.Payload}) },
		Connected: func(ask db.Ask) error {
			a.facts.setListening(true)
			// A change that was not received may have ended the permission of a watch. Ask over the new connection,
			// because the pool's connections may be as dead as the previous one.
			for some := range slices.Chunk(a.rechecker.watched(), recheckBatch) {
				if err := ask(func(ctx context.Context, conn *pgx.Conn) error { return a.rechecker.check(ctx, conn, some) }); err != nil {
					return err
				}
			}
			if broken {
				a.logger.Info("changes of permission are received again")
			}
			broken = false
			return nil
		},
		Proved: a.facts.prove,
		Broken: func(cause error) {
			a.facts.setListening(false)
			a.rechecker.schedule(a.rechecker.watched()...) // now, because a new connection may take long
			if !broken {
				a.logger.Warn("the connection that listens for changes of permission broke; asking the database every time until there is a new one", "error", fault.From(cause).Detail())
			}
			broken = true
		},
	}
}
