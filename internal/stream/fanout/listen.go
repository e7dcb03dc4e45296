package fanout

import (
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// proveEvery is the time between two checks of the listening connection, and the time that one may take. Without them,
// a connection whose other end has vanished would look like one on which nothing happens.
const proveEvery = 20 * time.Second

// Hooks are called when the hub learns of commits. All are required and must be quick, because no notification is read
// while they run. One goroutine at a time calls them.
type Hooks struct {
	// Changed is called with the streams that were appended to through any server, including this one, some
	// milliseconds after the commits. An empty slice means that streams were closed or deleted; nil means that
	// notifications may have been lost.
	Changed func(streams []int64)
	// Appended is called when a Postgres process committed entries to a stream up to a position. It is not called for
	// positions given to [Hub.Notify].
	Appended func(pid uint32, stream, tail int64)
}

// receiver receives notifications of all servers' commits, and passes them to the topics and the hooks.
type receiver struct {
	log      *slog.Logger
	hooks    Hooks
	topics   *topics
	poller   *poller
	notifier *notifier
	deltas   *forwarder
}

func (r *receiver) listener(s *store.Store) *db.Listener {
	return &db.Listener{
		DB: s.DB, Name: "arbe listen", Channels: []string{appendChannel, deltaChannel},
		ConnectTimeout: store.StatementTimeout, ProveEvery: proveEvery, ProveTimeout: proveEvery,
		Notified: r.notified,
		Connected: func(db.Ask) error {
			r.poller.soon() // earlier commits caused no notification here
			r.hooks.Changed(nil)
			return nil
		},
		Broken: func(cause error) {
			r.log.Warn("the connection that listens for new entries broke; making a new one", "error", fault.From(cause).Detail())
		},
	}
}

// notified must be quick, because Postgres keeps notifications that are not read for all listeners.
func (r *receiver) notified(n *pgconn.Notification) {
	if n.Channel == deltaChannel {
		r.deltas.heard(n.Payload)
		return
	}
	changes, ok := parse(n.Payload)
	if !ok {
		r.log.Warn("ignoring a notification in an unknown form", "channel", n.Channel, "payload", n.Payload)
	}
	appended := []int64{}
	for _, c := range changes {
		if !c.closed && !c.deleted {
			appended = append(appended, c.stream)
		}
	}
	r.hooks.Changed(appended)
	if n.PID == r.notifier.pid.Load() {
		return // nothing is new, because this server sent it
	}
	for _, c := range changes {
		switch {
		case c.deleted:
			r.topics.deleted(c.stream)
		case c.closed:
			r.topics.closed(c.stream, 0) // its tail came with an earlier notification
		default:
			r.hooks.Appended(n.PID, c.stream, c.tail)
			r.topics.reached(c.stream, c.tail)
		}
	}
}

// change is a change of one stream in a notification: it was closed, was deleted, or reaches position tail.
type change struct {
	stream, tail    int64
	closed, deleted bool
}

// parse decodes the payload of a notification. It skips parts in an unknown form; ok is then false.
func parse(payload string) (changes []change, ok bool) {
	ok = true
	for text := range strings.SplitSeq(payload, ",") {
		id, what, _ := strings.Cut(text, ":")
		c := change{closed: what == "closed", deleted: what == "deleted"}
		var err error
		if c.stream, err = strconv.ParseInt(id, 10, 64); err == nil && !c.closed && !c.deleted {
			c.tail, err = strconv.ParseInt(what, 10, 64)
		}
		if err != nil {
			ok = false
			continue
		}
		changes = append(changes, c)
	}
	return changes, ok
}
