package store

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/db/query"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// statements records the last statement of a connection.
type statements struct{ last pgx.TraceQueryStartData }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.last = d
	return ctx
}
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Unless a transaction says otherwise, Postgres plans the first five executions of a statement for their values. No
// plan may scan a whole partition of a large log.
func TestNoReadOfALogScansItsTable(t *testing.T) {
	t.Parallel()
	ctx, d := t.Context(), dbtest.New(t)
	owner := d.Owner(t)
	run := func(conn *pgx.Conn, statement string) {
		t.Helper()
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	run(owner, "insert into houses (name) select 'House ' || n from generate_series(1, 300) n")
	run(owner, "insert into streams (house_id, name) select id, 'log' from houses where name like 'House %'")
	run(owner, `insert into entries (stream_id, seq, house_id, id, type, payload, ts)
		select s.id, n, s.house_id, 'e' || n, 'chat', '{"text":"some words of a chat"}', now()
		from streams s join houses h on h.id = s.house_id cross join lateral generate_series(1, case when h.name = 'House 1' then 50000 else 20 end) n
		where s.name = 'log'`)
	run(owner, "analyze")
	var house string
	var id int64
	if err := owner.QueryRow(ctx, "select s.house_id, s.id from streams s join houses h on h.id = s.house_id where h.name = 'House 1' and s.name = 'log'").Scan(&house, &id); err != nil {
		t.Fatal(err)
	}

	asked := &statements{}
	cfg, err := pgx.ParseConfig(d.ServerURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Tracer = asked
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	run(conn, "set app.house_id = '"+house+"'; set jit = off")
	type read struct {
		statement string
		args      []any
	}
	reads := map[string]read{}
	for name, ask := range map[string]func() error{
		"GetStream": func() error { _, err := queries.GetStream(ctx, conn, house, "log"); return err },
		"GetEntry":  func() error { _, err := queries.GetEntry(ctx, conn, id, "e7"); return err },
		"HasEntry":  func() error { _, err := queries.HasEntry(ctx, conn, id, []string{"e7"}); return err },
		"ReadForward": func() error {
			_, err := queries.ReadForward(ctx, conn, query.ReadForwardParams{StreamID: id, Before: math.MaxInt64, MaxRows: MaxRows, MaxBytes: 1 << 20})
			return err
		},
		"ReadBackward": func() error {
			_, err := queries.ReadBackward(ctx, conn, query.ReadBackwardParams{StreamID: id, Before: math.MaxInt64, MaxRows: MaxRows, MaxBytes: 1 << 20})
			return err
		},
		"PickForward": func() error {
			_, err := queries.PickForward(ctx, conn, query.PickForwardParams{StreamID: id, After: 25_000, Before: math.MaxInt64, MaxRows: 20, MaxBytes: 1 << 20, Types: []string{"command"}, Groups: []string{"command."}})
			return err
		},
		"PickForward without": func() error {
			_, err := queries.PickForward(ctx, conn, query.PickForwardParams{StreamID: id, After: 25_000, Before: math.MaxInt64, MaxRows: 50, MaxBytes: 1 << 20, Types: []string{}, Groups: []string{}, Without: "signal.chat."})
			return err
		},
		"PickBackward without": func() error {
			_, err := queries.PickBackward(ctx, conn, query.PickBackwardParams{StreamID: id, Before: math.MaxInt64, MaxRows: 50, MaxBytes: 1 << 20, Types: []string{}, Groups: []string{}, Without: "signal.chat."})
			return err
		},
		"PickBackward": func() error {
			_, err := queries.PickBackward(ctx, conn, query.PickBackwardParams{StreamID: id, Before: math.MaxInt64, MaxRows: 20, MaxBytes: 1 << 20, Types: []string{"command"}, Groups: []string{"command."}})
			return err
		},
	} {
		if err := ask(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		reads[name] = read{asked.last.SQL, asked.last.Args}
	}
	for _, after := range []int64{0, 25_000, 49_990} {
		args := []any{id, after, int64(math.MaxInt64), int64(MaxRows)}
		reads[fmt.Sprint(fastName, " after ", after)] = read{fastStatement, args}
		reads[fmt.Sprint(onlyName, " after ", after)] = read{onlyStatement, args}
	}
	for name, r := range reads {
		// As the log reads: in a transaction of the store.
		err := (&Store{DB: d.DB}).In(ctx, Ref{House: house, Name: "log"}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "prepare hot as "+r.statement, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, "explain execute hot ("+literals(r.args)+")", pgx.QueryExecModeSimpleProtocol)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Seq Scan on entries") || !strings.Contains(plan, "Index") {
				t.Errorf("%s:\n%s", name, plan)
			}
			_, err = tx.Exec(ctx, "deallocate hot", pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// literals writes arguments as SQL.
func literals(args []any) string {
	var all []string
	for _, a := range args {
		switch a := a.(type) {
		case string:
			all = append(all, "'"+a+"'")
		case []string:
			all = append(all, "'{"+strings.Join(a, ",")+"}'")
		default:
			all = append(all, fmt.Sprint(a))
		}
	}
	return strings.Join(all, ", ")
}
