package jobs

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
)

// heard keeps log lines.
type heard struct {
	mu      sync.Mutex
	records []slog.Record
	more    chan struct{}
}

func (h *heard) Enabled(context.Context, slog.Level) bool { return true }
func (h *heard) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *heard) WithGroup(string) slog.Handler            { return h }
func (h *heard) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, r.Clone())
	select {
	case h.more <- struct{}{}:
	default:
	}
	return nil
}

func (h *heard) says(part string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.records, func(r slog.Record) bool { return strings.Contains(r.Message, part) })
}

// soon is a schedule whose first time is now.
type soon struct{ from time.Time }

func (s soon) Next(t time.Time) time.Time {
	if t.Before(s.from.Add(time.Minute)) {
		return t.Add(time.Millisecond)
	}
	return t.Add(time.Hour)
}

func TestTheQueuesUpkeepWorksUnderTheServersRole(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	owner := d.Owner(t)
	// Something to do for each part of the upkeep. The stuck job's server lives.
	if _, err := owner.Exec(t.Context(), `
		insert into `+db.JobSchema+`.river_job (kind, args, max_attempts, state, finalized_at) values ('periodic_task', '{}', 3, 'completed', now() - interval '30 days');
		insert into `+db.JobSchema+`.river_job (kind, args, max_attempts, state, scheduled_at) values ('periodic_task', '{"name": "none"}', 3, 'scheduled', now() - interval '1 hour');
		insert into `+db.JobSchema+`.river_job (kind, args, max_attempts, state, attempt, attempted_at, attempted_by)
		  values ('periodic_task', '{"name": "none"}', 3, 'running', 1, now() - interval '3 days', array['arbe-1']);
		insert into `+db.JobSchema+`.river_queue (name, metadata, created_at, updated_at) values ('old', '{}', now() - interval '30 days', now() - interval '30 days');
		select pg_advisory_lock(1);`); err != nil {
		t.Fatal(err)
	}
	log := &heard{more: make(chan struct{}, 1)}
	begin(t, open(t, d.DB, Config{Tune: func(q *river.Config) {
		q.Logger, q.TestOnly, q.ReindexerSchedule = slog.New(log), true, soon{time.Now()}
	}}))
	for _, part := range []string{
		"JobCleaner: Ran successfully", "JobScheduler: Ran successfully", "JobRescuer: Ran successfully",
		"QueueCleaner: Ran successfully", "Reindexer: Ran successfully",
	} {
		for deadline := time.After(patience); !log.says(part); {
			select {
			case <-log.more:
			case <-deadline:
				t.Fatalf("%s is not said", part)
			}
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, r := range log.records {
		if r.Level >= slog.LevelWarn {
			text := r.Message
			r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
			t.Errorf("%s: %s", r.Level, text)
		}
	}
}
