package db_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
)

// planner explains each query instead of running it.
type planner struct {
	pgx.Tx
	plan []string
}

var errExplained = errors.New("explained")

func (p *planner) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := p.Tx.Query(ctx, "explain "+sql, args...)
	if err != nil {
		return nil, err
	}
	if p.plan, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, err
	}
	return nil, errExplained
}

func TestAMatchIsFoundThroughIndexesAmongMany(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	execute(t, w.owner, "insert into streams (house_id, name) select '"+w.ours.id+"', 'match-' || n from generate_series(1, 20000) n")
	execute(t, w.owner, "insert into threads (house_id, stream_id, name) select '"+w.ours.id+"', 'match-' || n, 'name ' || n from generate_series(1, 20000) n")
	execute(t, w.owner, "insert into artifacts (house_id, kind, label, created_at) select '"+w.ours.id+"', 'file', 'name ' || n % 5000, now() - make_interval(secs => n) from generate_series(1, 20000) n")
	execute(t, w.owner, "analyze threads, artifacts")
	q := query.New()
	for name, c := range map[string]struct {
		explain func(context.Context, *planner) error
		through []string
	}{
		"thread": {func(ctx context.Context, p *planner) error {
			_, err := q.MatchThreads(ctx, p, query.MatchThreadsParams{HouseID: w.ours.id, Prefix: "abcd", Name: "name 77", MaxRows: 50})
			return err
		}, []string{"threads_by_prefix", "threads_by_name"}},
		"artifact": {func(ctx context.Context, p *planner) error {
			_, err := q.MatchArtifacts(ctx, p, query.MatchArtifactsParams{HouseID: w.ours.id, Match: "name 77", BeforeTime: time.Now(), MaxRows: 50})
			return err
		}, []string{"artifacts_by_prefix", "artifacts_by_label"}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, w.DB, w.ours.scope(), func(tx pgx.Tx) {
				p := &planner{Tx: tx}
				if err := c.explain(t.Context(), p); !errors.Is(err, errExplained) {
					t.Fatal(err)
				}
				plan := strings.Join(p.plan, "\n")
				for _, index := range c.through {
					if !strings.Contains(plan, index) {
						t.Errorf("it is not found through %s:\n%s", index, plan)
					}
				}
				if strings.Contains(plan, "Seq Scan on "+name+"s ") {
					t.Errorf("it is looked for in all rows:\n%s", plan)
				}
			})
		})
	}
}
