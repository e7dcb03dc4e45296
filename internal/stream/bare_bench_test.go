package stream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// bareLog is a minimal group commit, the baseline for appends. One goroutine writes what was queued during its previous
// write into a table like entries, numbers the entries in memory, and notifies others. It checks nothing, needs the
// table for itself and recovers from nothing.
type bareLog struct {
	queue chan *bareCall
	one   *pgx.Conn
	seqs  map[int64]int64
}

type bareCall struct {
	stream            int64
	house, id, author string
	done              chan error
}

func newBareLog(b *testing.B, bed *bench) *bareLog {
	b.Helper()
	l := &bareLog{queue: make(chan *bareCall, 1024), one: bed.Owner(b), seqs: map[int64]int64{}}
	conn := bed.Owner(b)
	if _, err := conn.Exec(b.Context(), `
		create table bare (like entries including defaults including constraints including indexes) partition by hash (stream_id);
		do $$ begin
			for i in 0..15 loop
				execute format('create table bare_%s partition of bare for values with (modulus 16, remainder %s)', i, i);
			end loop;
		end $$`); err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.run(b, conn)
	}()
	b.Cleanup(func() { close(l.queue); <-ended })
	return l
}

func (l *bareLog) append(stream int64, house, author string) error {
	c := &bareCall{stream, house, uuid.Must(uuid.NewV7()).String(), author, make(chan error, 1)}
	l.queue <- c
	return <-c.done
}

func (l *bareLog) run(b *testing.B, conn *pgx.Conn) {
	const statement = `with written as (
			insert into bare (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
			select d.stream, d.seq, d.house, d.id, d.author, d.type, d.payload, clock_timestamp()
				from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::json[]) d (stream, seq, house, id, author, type, payload)
		) select pg_notify('bare', $8)`
	for first := range l.queue {
		calls := []*bareCall{first}
		for more := true; more && len(calls) < cap(l.queue); {
			select {
			case c, open := <-l.queue:
				if more = open; open {
					calls = append(calls, c)
				}
			default:
				more = false
			}
		}
		var streams, seqs []int64
		var houses, ids, authors, types, payloads, changes []string
		changed := map[int64]bool{}
		for _, c := range calls {
			l.seqs[c.stream]++
			streams, seqs, houses, ids = append(streams, c.stream), append(seqs, l.seqs[c.stream]), append(houses, c.house), append(ids, c.id)
			authors, types, payloads = append(authors, c.author), append(types, "chat"), append(payloads, string(payload))
			changed[c.stream] = true
		}
		for s := range changed {
			changes = append(changes, fmt.Sprintf("%d:%d", s, l.seqs[s]))
		}
		_, err := conn.Exec(b.Context(), statement, streams, seqs, houses, ids, authors, types, payloads, strings.Join(changes, ","))
		for _, c := range calls {
			c.done <- err
		}
	}
}

// commitOne commits one row per call over its own connection and notifies nobody.
func (l *bareLog) commitOne(house, author string) func(int) error {
	const alone = -1
	return func(int) error {
		l.seqs[alone]++
		_, err := l.one.Exec(context.Background(), `insert into bare (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
			values ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())`, alone, l.seqs[alone], house, uuid.Must(uuid.NewV7()).String(), author, "chat", string(payload))
		return err
	}
}
