package db_test

import (
	"testing"

	"github.com/arbe-dev/arbe/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
