package dispatch_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
)

func TestAPeriodicTaskRunsOnOneOfAllServersSoonAfterTheStart(t *testing.T) {
	t.Parallel()
	b := database(t)
	done := make(chan struct{}, 100)
	for range 3 {
		log, err := stream.Open(t.Context(), b.DB, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(detail(err))
		}
		t.Cleanup(log.Close)
		d, err := dispatch.Start(t.Context(), dispatch.Config{
			DB: b.DB, Log: log, Boxes: sandbox.NewResolver(sandbox.Config{DB: b.DB}), Logger: slog.New(slog.DiscardHandler),
			PeriodicTasks: []dispatch.PeriodicTask{{Name: "tidy", Every: time.Hour, Do: func(context.Context) error {
				done <- struct{}{}
				return nil
			}}},
		})
		if err != nil {
			t.Fatal(detail(err))
		}
		t.Cleanup(func() { d.Stop(context.Background()) })
	}
	<-done
	var jobs int
	if err := b.Owner(t).QueryRow(t.Context(), "select count(*) from river.river_job where kind = 'periodic_task'").Scan(&jobs); err != nil || jobs != 1 {
		t.Errorf("it is asked for %d times: %v", jobs, err)
	}
}
