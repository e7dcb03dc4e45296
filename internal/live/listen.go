package live

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// changeChannel carries "<house>:<kind>:<id>" for every row that a transaction changed. The triggers notify_change
	// send it.
	changeChannel = "arbe_change"
	// proveEvery is the time between two checks of the listening connection, and proveTimeout limits each. Without them, a
	// connection whose other end has vanished would look like one on which nothing happens.
	proveEvery, proveTimeout = 20 * time.Second, 20 * time.Second
	// connectTimeout limits how long making a connection may take. Otherwise it could wait forever for a database that
	// does not answer.
	connectTimeout = 10 * time.Second
)

// listener receives notifications of changed rows.
func (p *Pictures) listener() *db.Listener {
	return &db.Listener{
		DB: p.DB, Name: "arbe live", Channels: []string{changeChannel, presenceChannel},
		ConnectTimeout: connectTimeout, ProveEvery: proveEvery, ProveTimeout: proveTimeout,
		Notified: func(n *pgconn.Notification) {
			if n.Channel != presenceChannel {
				p.notified(n.Payload)
			} else if err := p.presence.heard(n.Payload); err != nil {
				p.Logger.WarnContext(p.ctx, "ignoring a notification in an unknown form", "channel", presenceChannel)
			}
		},
		Connected: func(db.Ask) error {
			p.markAll() // because earlier commits caused no notification here
			return nil
		},
		Broken: func(cause error) {
			p.Logger.WarnContext(p.ctx, "the connection that listens for changed rows broke; making a new one", "error", fault.From(cause).Detail())
		},
	}
}

// notified marks the row that a notification names.
func (p *Pictures) notified(payload string) {
	house, rest, _ := strings.Cut(payload, ":")
	kind, id, ok := strings.Cut(rest, ":")
	if !ok {
		p.Logger.WarnContext(p.ctx, "ignoring a notification in an unknown form", "channel", changeChannel, "payload", payload)
		return
	}
	p.mark(house, Key{Kind(kind), id})
}
