package stream

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// maxTold is how many logs one notification tells of: as many as surely fit into its 8000 bytes.
	maxTold = 190
	// tellEvery is the pause between two tellings. Each wakes every server and Postgres' log writer, and delays
	// what is appended meanwhile by as much as an append takes.
	tellEvery = 10 * time.Millisecond
)

// noWait makes a commit not wait for the disk: for a connection that writes nothing.
var noWait = map[string]string{"synchronous_commit": "off"}

// teller tells other servers of batches that were committed, over a connection of its own: at most one
// notification a batch, and one for many batches when they come faster. It is no part of their transactions,
// since it takes a lock that is shared by all who notify in Postgres, which would hold it while they wait for
// the disk. A server that dies between a commit and its telling is made good by the others' polling.
type teller struct {
	log *Log
	// pid is the connection's process in Postgres: what it notifies of is known here.
	pid atomic.Uint32

	mu    sync.Mutex
	tails map[int64]int64 // to be told
	// some says that there is something to tell; over that there will be nothing more.
	some, over chan struct{}
}

func newTeller(l *Log) *teller {
	return &teller{log: l, tails: map[int64]int64{}, some: make(chan struct{}, 1), over: make(chan struct{})}
}

// note asks to tell that a log ends at tail now.
func (t *teller) note(stream, tail int64) {
	t.mu.Lock()
	t.tails[stream] = max(t.tails[stream], tail)
	t.mu.Unlock()
	select {
	case t.some <- struct{}{}:
	default: // it is asked already
	}
}

// take empties the list of what is to be told.
func (t *teller) take() (tails map[int64]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tails, t.tails = t.tails, map[int64]int64{}
	return tails
}

// run tells until over, and then what is left.
func (t *teller) run() {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			hangUp(conn)
		}
	}()
	for more := true; more; {
		select {
		case <-t.some:
		case <-t.over:
			more = false
		}
		tails := t.take()
		if len(tails) == 0 {
			continue
		}
		var err error
		if conn, err = t.tell(conn, tails); err != nil && t.log.ctx.Err() == nil {
			t.log.log.Debug("other servers were not told of new entries, and will find them", "error", detail(err))
		}
		pause(t.log.ctx, tellEvery)
	}
}

// tell sends what other servers are to hear over conn, or over a new one when it is nil, and returns the one
// to use the next time.
func (t *teller) tell(conn *pgx.Conn, tails map[int64]int64) (_ *pgx.Conn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitWithin)
	defer cancel()
	if conn == nil {
		if conn, err = connect(ctx, t.log.db, "arbe tell", noWait); err != nil {
			return nil, err
		}
		t.pid.Store(conn.PgConn().PID())
	}
	var told []string
	for some := range slices.Chunk(slices.Collect(maps.Keys(tails)), maxTold) {
		var text strings.Builder
		for i, stream := range some {
			if i > 0 {
				text.WriteByte(',')
			}
			text.WriteString(strconv.FormatInt(stream, 10))
			text.WriteByte(':')
			text.WriteString(strconv.FormatInt(tails[stream], 10))
		}
		told = append(told, text.String())
	}
	if _, err := conn.Exec(ctx, "select pg_notify($1, told) from unnest($2::text[]) told", appendChannel, told); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}
