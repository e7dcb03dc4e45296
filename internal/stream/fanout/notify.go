package fanout

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

const (
	// appendChannel carries "<stream>:<tail>" for every stream that a commit changed, separated by commas.
	// "<stream>:closed" follows the last entry of a closed stream, and "<stream>:deleted" reports a deleted one.
	appendChannel = "arbe_stream"
	// maxChanges is the number of streams in one notification, chosen so that they always fit into its 8000 bytes.
	maxChanges = 190
	// notifyEvery is the pause between two rounds of notifications. Without it there would be one per batch, and each
	// round wakes every server and Postgres' log writer, and delays concurrent appends by about the time of one append.
	notifyEvery = 10 * time.Millisecond
)

// noWait makes commits not wait for the disk. It is safe, because it is for a connection that writes nothing.
var noWait = map[string]string{"synchronous_commit": "off"}

// notifier notifies other servers of committed batches over a connection of its own, with at most one notification per
// batch, and one for several batches if they come faster. The batches' own transactions do not notify, because a
// notification takes a lock that all notifying transactions share, and they would hold it while they wait for the disk.
// If a server dies between a commit and its notification, the other servers find the entries by polling.
type notifier struct {
	ctx   context.Context
	log   *slog.Logger
	store *store.Store
	// pid is the connection's Postgres process. This server ignores its notifications, because its topics were offered
	// those entries.
	pid atomic.Uint32

	mu    sync.Mutex
	tails map[int64]int64 // positions to notify of, by stream
	// pending holds a token when there is something to notify of. over is closed when nothing more will come.
	pending, over chan struct{}
}

func newNotifier(ctx context.Context, log *slog.Logger, s *store.Store) *notifier {
	return &notifier{ctx: ctx, log: log, store: s, tails: map[int64]int64{}, pending: make(chan struct{}, 1), over: make(chan struct{})}
}

// note asks to notify other servers that a stream ends at tail.
func (n *notifier) note(stream, tail int64) {
	n.mu.Lock()
	n.tails[stream] = max(n.tails[stream], tail)
	n.mu.Unlock()
	select {
	case n.pending <- struct{}{}:
	default: // a token is already pending
	}
}

// take empties the list of positions and returns it.
func (n *notifier) take() (tails map[int64]int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tails, n.tails = n.tails, map[int64]int64{}
	return tails
}

// run notifies until over is closed, and then sends what is left.
func (n *notifier) run() {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			db.HangUp(conn)
		}
	}()
	for more := true; more; {
		select {
		case <-n.pending:
		case <-n.over:
			more = false
		}
		tails := n.take()
		if len(tails) == 0 {
			continue
		}
		var err error
		if conn, err = n.notify(conn, tails); err != nil && n.ctx.Err() == nil {
			n.log.DebugContext(n.ctx, "other servers were not notified of new entries; they will find them by polling", "error", fault.From(err).Detail())
		}
		select {
		case <-time.After(notifyEvery):
		case <-n.ctx.Done():
		}
	}
}

// notify sends notifications over conn, or over a new connection if conn is nil or has died since its last use. It returns
// the connection to use next time.
func (n *notifier) notify(conn *pgx.Conn, tails map[int64]int64) (*pgx.Conn, error) {
	reused := conn != nil
	conn, err := n.send(conn, tails)
	if err != nil && reused {
		conn, err = n.send(nil, tails)
	}
	return conn, err
}

// send sends notifications over conn, or over a new connection if conn is nil. It hangs up a connection that fails.
func (n *notifier) send(conn *pgx.Conn, tails map[int64]int64) (_ *pgx.Conn, err error) {
	// Not n.ctx, because the last positions are sent after it has ended.
	ctx, cancel := context.WithTimeout(context.Background(), store.StatementTimeout)
	defer cancel()
	if conn == nil {
		if conn, err = n.store.DB.Connect(ctx, "arbe notify", noWait); err != nil {
			return nil, err
		}
		n.pid.Store(conn.PgConn().PID())
	}
	var payloads []string
	for some := range slices.Chunk(slices.Collect(maps.Keys(tails)), maxChanges) {
		var text strings.Builder
		for i, stream := range some {
			if i > 0 {
				text.WriteByte(',')
			}
			text.WriteString(strconv.FormatInt(stream, 10))
			text.WriteByte(':')
			text.WriteString(strconv.FormatInt(tails[stream], 10))
		}
		payloads = append(payloads, text.String())
	}
	if _, err := conn.Exec(ctx, "select pg_notify($1, payload) from unnest($2::text[]) payload", appendChannel, payloads); err != nil {
		db.HangUp(conn)
		return nil, err
	}
	return conn, nil
}
