package dbtest

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db"
)

// Statement sums up all executions of one statement, including those inside functions.
type Statement struct {
	// Text is the statement, on one line.
	Text string
	// Milliseconds is the total time of all executions.
	Milliseconds float64
	Executions   int
	// Scanned are the tables that at least one of its plans reads sequentially.
	Scanned []string
}

// Watch makes Postgres report, with auto_explain, how it executes every statement of the database on connections that
// are opened through d.DB from now on. The returned function returns the statements so far, the most time-consuming
// first. The test is skipped if the Postgres has no auto_explain.
func (d *Database) Watch(t testing.TB) (statements func() []Statement) {
	t.Helper()
	owner := d.Owner(t)
	var name string
	if err := owner.QueryRow(t.Context(), "select current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), "load 'auto_explain'"); err != nil {
		t.Skipf("this Postgres has no auto_explain: %v", err)
	}
	for _, setting := range []string{"session_preload_libraries = 'auto_explain'", "auto_explain.log_min_duration = 0", "auto_explain.log_nested_statements = on", "auto_explain.log_level = 'notice'"} {
		if _, err := owner.Exec(t.Context(), "alter database "+pgx.Identifier{name}.Sanitize()+" set "+setting); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	all := map[string]*Statement{}
	watched, err := db.Open(t.Context(), d.ServerURL, db.Options{MaxConns: 10, Noticed: func(n *pgconn.Notice) {
		mu.Lock()
		defer mu.Unlock()
		add(all, n.Message)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watched.Close)
	d.DB.Close()
	d.DB = watched
	return func() (list []Statement) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range all {
			list = append(list, *s)
		}
		slices.SortFunc(list, func(a, b Statement) int { return cmp.Compare(b.Milliseconds, a.Milliseconds) })
		return list
	}
}

var (
	planHead = regexp.MustCompile(`^duration: ([0-9.]+) ms  plan:\n`)
	planScan = regexp.MustCompile(`Seq Scan on (\S+)`)
	spaces   = regexp.MustCompile(`\s+`)
)

// add adds auto_explain's report on one execution.
func add(all map[string]*Statement, said string) {
	head := planHead.FindStringSubmatch(said)
	if head == nil {
		return
	}
	var query, plan strings.Builder
	to := &query
	for line := range strings.Lines(said[len(head[0]):]) {
		if strings.Contains(line, "(cost=") {
			to = &plan
		}
		to.WriteString(line)
	}
	text := strings.TrimPrefix(strings.TrimSpace(spaces.ReplaceAllString(query.String(), " ")), "Query Text: ")
	s := all[text]
	if s == nil {
		s = &Statement{Text: text}
		all[text] = s
	}
	took, _ := strconv.ParseFloat(head[1], 64)
	s.Executions++
	s.Milliseconds += took
	for _, found := range planScan.FindAllStringSubmatch(plan.String(), -1) {
		if !slices.Contains(s.Scanned, found[1]) {
			s.Scanned = append(s.Scanned, found[1])
		}
	}
}

// Large returns the tables with at least rows rows, according to the last analysis.
func (d *Database) Large(t testing.TB, rows int) map[string]bool {
	t.Helper()
	found, err := d.Owner(t).Query(t.Context(), "select relname from pg_class where relkind = 'r' and reltuples >= $1", rows)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	large := map[string]bool{}
	for _, n := range names {
		large[n] = true
	}
	return large
}
