package dbtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

// Grep returns the tables of a database that contain a text in a column of any type, such as "public.entries". It is
// for tests that plant a secret.
func Grep(t testing.TB, owner *pgx.Conn, text string) (where []string) {
	t.Helper()
	rows, err := owner.Query(t.Context(), "select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables where schemaname in ('public', '"+db.JobSchema+"') order by 1")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatalf("the tables are %v: %v", tables, err)
	}
	quoted, _ := json.Marshal(text)
	for _, table := range tables {
		var found bool
		// Postgres shows bytes in hexadecimal, and text in its JSON form.
		err := owner.QueryRow(t.Context(), "select exists (select from "+table+" x where position($1 in to_jsonb(x)::text) > 0 or position($2 in to_jsonb(x)::text) > 0)",
			strings.Trim(string(quoted), `"`), fmt.Sprintf("%x", text)).Scan(&found)
		if err != nil {
			t.Fatal(err)
		}
		if found {
			where = append(where, table)
		}
	}
	return where
}
