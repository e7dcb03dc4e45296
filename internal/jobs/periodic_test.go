package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
)

func TestAPeriodicTaskRunsOnOneOfAllServersSoonAfterTheStart(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	done := make(chan struct{}, 100)
	for range 3 {
		begin(t, open(t, d.DB, Config{Tasks: []Task{{Name: "tidy", Every: time.Hour, Do: func(context.Context) error {
			done <- struct{}{}
			return nil
		}}}}))
	}
	<-done
	var asked int
	if err := d.Owner(t).QueryRow(t.Context(), "select count(*) from river.river_job where kind = 'periodic_task'").Scan(&asked); err != nil || asked != 1 {
		t.Errorf("it is asked for %d times: %v", asked, err)
	}
}
