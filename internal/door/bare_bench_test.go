package door_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/stream"
)

// bareServer is a minimal stream door, the baseline for throughput over HTTP. It commits POSTs in groups into a table
// like entries, and serves pages of it. It checks and authorizes nothing, sends only the headers that its clients need,
// and has its database to itself.
type bareServer struct {
	queue chan *bareAppend
	pool  *pgxpool.Pool
	house string
	// author is the author of all entries.
	author string
}

// barePage is the number of entries in a response.
const barePage = 10_000

type bareAppend struct {
	stream  int64
	payload []byte
	seq     int64
	done    chan error
}

// serveBare starts a bareServer on a database. Streams are numbers and need not be created.
func serveBare(b *testing.B, d *dbtest.Database, house, author string) (url string) {
	b.Helper()
	conn := d.Owner(b)
	if _, err := conn.Exec(b.Context(), `
		create table bare (like entries including defaults including constraints including indexes) partition by hash (stream_id);
		do $$ begin
			for i in 0..15 loop
				execute format('create table bare_%s partition of bare for values with (modulus 16, remainder %s)', i, i);
			end loop;
		end $$`); err != nil {
		b.Fatal(err)
	}
	pool, err := pgxpool.New(b.Context(), d.OwnerURL)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	s := &bareServer{make(chan *bareAppend, 1024), pool, house, author}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.commit(conn)
	}()
	b.Cleanup(func() { close(s.queue); <-ended })
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{stream}", s.post)
	mux.HandleFunc("GET /{stream}", s.get)
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	b.Cleanup(server.Close)
	return server.URL + "/"
}

func (s *bareServer) post(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	id, _ := strconv.ParseInt(r.PathValue("stream"), 10, 64)
	c := &bareAppend{stream: id, payload: payload, done: make(chan error, 1)}
	s.queue <- c
	if err := <-c.done; err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Stream-Next-Offset", stream.Offset(c.seq))
	w.WriteHeader(http.StatusNoContent)
}

// commit writes what was queued during its previous write, with its notification, in one transaction.
func (s *bareServer) commit(conn *pgx.Conn) {
	const statement = `with written as (
			insert into bare (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
			select d.stream, d.seq, $3, d.id, $5::uuid, 'message', d.payload, clock_timestamp()
				from unnest($1::bigint[], $2::bigint[], $4::text[], $6::json[]) d (stream, seq, id, payload)
		) select pg_notify('bare', $7)`
	seqs := map[int64]int64{}
	for first := range s.queue {
		calls := []*bareAppend{first}
		for more := true; more && len(calls) < cap(s.queue); {
			select {
			case c, open := <-s.queue:
				if more = open; open {
					calls = append(calls, c)
				}
			default:
				more = false
			}
		}
		var ids, payloads, changes []string
		var streams, positions []int64
		changed := map[int64]bool{}
		for _, c := range calls {
			seqs[c.stream]++
			c.seq = seqs[c.stream]
			streams, positions = append(streams, c.stream), append(positions, c.seq)
			ids, payloads = append(ids, uuid.Must(uuid.NewV7()).String()), append(payloads, string(c.payload))
			changed[c.stream] = true
		}
		for id := range changed {
			changes = append(changes, fmt.Sprintf("%d:%d", id, seqs[id]))
		}
		_, err := conn.Exec(context.Background(), statement, streams, positions, s.house, ids, s.author, payloads, strings.Join(changes, ","))
		for _, c := range calls {
			c.done <- err
		}
	}
}

// get answers with a page, and copies rows to the body as they arrive.
func (s *bareServer) get(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.ParseInt(r.PathValue("stream"), 10, 64)
	after, _, _ := strings.Cut(r.URL.Query().Get("offset"), "_")
	at, _ := strconv.ParseInt(after, 10, 64)
	start, between, end := byte('['), byte(','), "]"
	if r.Header.Get("Accept") == "application/x-ndjson" {
		start, between, end = '\n', '\n', "\n"
	}
	body := bytes.NewBuffer(make([]byte, 0, 4<<20))
	n := 0
	err := s.pool.AcquireFunc(r.Context(), func(conn *pgxpool.Conn) error {
		const name = "bare page"
		statement, err := conn.Conn().Prepare(r.Context(), name, fmt.Sprintf("select seq, payload from bare where stream_id = $1 and seq > $2 order by seq limit %d", barePage))
		if err != nil {
			return err
		}
		args := [][]byte{binary.BigEndian.AppendUint64(nil, uint64(id)), binary.BigEndian.AppendUint64(nil, uint64(at))}
		rows := conn.Conn().PgConn().ExecPrepared(r.Context(), statement.Name, args, []int16{pgx.BinaryFormatCode}, []int16{pgx.BinaryFormatCode})
		separator := start
		for ; rows.NextRow(); n++ {
			row := rows.Values()
			at = int64(binary.BigEndian.Uint64(row[0]))
			body.WriteByte(separator)
			body.Write(row[1])
			separator = between
		}
		_, err = rows.Close()
		return err
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body.WriteString(end)
	w.Header().Set("Stream-Next-Offset", stream.Offset(at))
	if n < barePage {
		w.Header().Set("Stream-Up-To-Date", "true")
	}
	w.Write(body.Bytes())
}
