package db_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestAThreadIsFoundThroughAnIndexAmongMany(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	execute(t, w.owner, "insert into streams (house_id, name) select '"+w.ours.id+"', 'match-' || n from generate_series(1, 20000) n")
	execute(t, w.owner, "insert into threads (house_id, stream_id, name) select '"+w.ours.id+"', 'match-' || n, 'name ' || n from generate_series(1, 20000) n")
	execute(t, w.owner, "analyze threads")
	in(t, w.DB, w.ours.scope(), func(tx pgx.Tx) {
		for where, index := range map[string]string{
			"id ~>=~ 'abcd' and id ~<~ ('abcd' || chr(127))": "threads_by_prefix",
			"name = 'name 77'": "threads_by_name",
		} {
			plan := strings.Join(column[string](t, tx, "explain select id from threads where house_id = '"+w.ours.id+"' and "+where), "\n")
			if !strings.Contains(plan, index) {
				t.Errorf("%s is not found through %s:\n%s", where, index, plan)
			}
		}
	})
}
