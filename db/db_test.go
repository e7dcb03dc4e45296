package db_test

import (
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestMigrationsGoUpAndDown(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for range 2 {
		if err := db.Down(t.Context(), d.OwnerURL); err != nil {
			t.Fatalf("down: %s", fault.From(err).Detail())
		}
		if _, err := db.Migrate(t.Context(), d.OwnerURL, d.Sealer); err != nil {
			t.Fatalf("up again: %s", fault.From(err).Detail())
		}
	}
}
