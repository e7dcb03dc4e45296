package db_test

import (
	"os"
	"testing"

	"github.com/arbe-dev/arbe/db/dbtest"
)

// TestTheMigrationForSearchesTouchesNoRow: it may meet millions of entries and threads, in which others write.
func TestTheMigrationForSearchesTouchesNoRow(t *testing.T) {
	t.Parallel()
	conn := dbtest.New(t).Owner(t)
	newHouse(t, conn, "older")
	const versions = "select array_agg(xmin::text || ctid::text order by stream_id) from decisions"
	for _, file := range []string{"down", "up"} {
		text, err := os.ReadFile("migrations/000018_search." + file + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		before := column[[]string](t, conn, versions)[0]
		execute(t, conn, string(text))
		if after := column[[]string](t, conn, versions)[0]; len(after) == 0 || after[0] != before[0] {
			t.Errorf("%s rewrites the cursors of threads: %v are now %v", file, before, after)
		}
	}
	if n := column[int](t, conn, "select count(*) from entry_words")[0]; n > 0 {
		t.Errorf("it made %d entries searchable", n)
	}
	newHouse(t, conn, "newer")
	for name, want := range map[string]bool{"older": true, "newer": false} {
		for _, left := range column[bool](t, conn, "select unindexed > 0 from decisions d join houses h on h.id = d.house_id where name = $1", name) {
			if left != want {
				t.Errorf("%s: that there are entries to make searchable is %v", name, left)
			}
		}
	}
}
