package dispatch

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/wait"
)

// DefaultLogQuota and DefaultMemberLogQuota are the defaults of [Config.LogQuota] and [Config.MemberLogQuota], in bytes.
const DefaultLogQuota, DefaultMemberLogQuota = 20 << 30, 10 << 30

const (
	// measureEvery is the pause between two measurements of the logs to which this server has appended. Appends do not
	// count themselves: a counter would be one row per house for which all of its appends wait.
	measureEvery = 10 * time.Second
	// measureMost limits the logs in one statement.
	measureMost = 500
	// logsKnownFor is how long a server uses the size of a house's logs before it reads it again, and maxLogsKnown limits the
	// houses whose sizes it keeps.
	logsKnownFor, maxLogsKnown = 10 * time.Second, 10_000
)

// LogsUsed is the size of all logs of a house: their entries, and what these take in the database, in bytes. It is some
// seconds old.
type LogsUsed struct{ Entries, Bytes int64 }

// MemberLogs is how much of a house's logs one person or bot wrote, in bytes, and the limit for that: 0 for an owner, whom
// only the quota of the house limits.
type MemberLogs struct{ Bytes, Most int64 }

// logSizes measures logs, and caches the total sizes of houses' logs. It is safe for concurrent use.
type logSizes struct {
	db     *db.DB
	logger *slog.Logger
	quota  int64
	member int64 // the quota of a member

	mu sync.Mutex
	// grown holds the logs that have grown since they were measured.
	grown map[int64]bool
	known map[string]knownLogs
	// wrote has what members wrote, by house and agent.
	wrote map[[2]string]knownMember
}

type knownLogs struct {
	LogsUsed
	at time.Time
}

type knownMember struct {
	MemberLogs
	at time.Time
}

func newLogSizes(d *db.DB, logger *slog.Logger, quota, member int64) *logSizes {
	return &logSizes{db: d, logger: logger, quota: quota, member: member, grown: map[int64]bool{}, known: map[string]knownLogs{}, wrote: map[[2]string]knownMember{}}
}

// grew records that this server has appended to a log.
func (s *logSizes) grew(stream int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grown[stream] = true
}

// run measures until ctx ends.
func (s *logSizes) run(ctx context.Context) {
	for wait.For(ctx, measureEvery) {
		if err := s.measure(ctx); err != nil && ctx.Err() == nil {
			s.logger.WarnContext(ctx, "cannot measure how large logs are; trying again", "error", fault.From(err).Detail())
		}
	}
}

// measure measures the logs that have grown. After an error, it measures the remaining logs the next time. If the server
// is killed before that, they are measured after their next entry.
func (s *logSizes) measure(ctx context.Context) error {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.grown))
	clear(s.grown)
	s.mu.Unlock()
	for len(ids) > 0 {
		some := ids[:min(len(ids), measureMost)]
		err := s.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error { return queries.MeasureLogs(ctx, tx, some) })
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, id := range ids {
				s.grown[id] = true
			}
			return err
		}
		ids = ids[len(some):]
	}
	return nil
}

// used returns the size of a house's logs.
func (s *logSizes) used(ctx context.Context, house string) (LogsUsed, error) {
	s.mu.Lock()
	known, ok := s.known[house]
	s.mu.Unlock()
	if ok && time.Since(known.at) < logsKnownFor {
		return known.LogsUsed, nil
	}
	err := s.db.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) error {
		row, err := queries.HouseLogs(ctx, tx, house)
		known = knownLogs{LogsUsed{row.Entries, row.Bytes}, time.Now()}
		return err
	})
	if err != nil {
		return LogsUsed{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxLogsKnown {
		clear(s.known)
	}
	s.known[house] = known
	return known.LogsUsed, nil
}

// of returns the size of the part of its house's logs that the scope's agent wrote.
func (s *logSizes) of(ctx context.Context, scope db.Scope) (MemberLogs, error) {
	key := [2]string{scope.House, scope.Agent}
	s.mu.Lock()
	known, ok := s.wrote[key]
	s.mu.Unlock()
	if ok && time.Since(known.at) < logsKnownFor || scope.Agent == "" {
		return known.MemberLogs, nil
	}
	err := s.db.In(ctx, scope, func(tx pgx.Tx) error {
		row, err := queries.MemberLogs(ctx, tx, scope.House, scope.Agent)
		known = knownMember{MemberLogs{row.Bytes, s.member}, time.Now()}
		if row.Owns {
			known.Most = 0
		}
		return err
	})
	if err != nil {
		return MemberLogs{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrote) >= maxLogsKnown {
		clear(s.wrote)
	}
	s.wrote[key] = known
	return known.MemberLogs, nil
}

// mayGrow is [Dispatcher.MayGrow].
func (s *logSizes) mayGrow(ctx context.Context, scope db.Scope) error {
	used, err := s.used(ctx, scope.House)
	if err == nil && used.Bytes < s.quota {
		mine, err := s.of(ctx, scope)
		if err != nil || mine.Most == 0 || mine.Bytes < mine.Most {
			return err
		}
		return fault.Newf(fault.Exhausted, "delete threads in which it was written, or ask the operator to raise member_log_quota",
			"what this member wrote in the logs of this house has reached the quota of a member, %d MiB", mine.Most>>20).WithReason(fault.LimitReached)
	}
	if err != nil {
		return err
	}
	return fault.Newf(fault.Exhausted, "delete threads that are not needed, let arbe house retention delete old ones, or ask the operator to raise log_quota",
		"the logs of this house have reached their quota of %d MiB", s.quota>>20).WithReason(fault.LimitReached)
}
