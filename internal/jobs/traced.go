package jobs

import (
	"context"

	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/internal/trace"
)

// traced begins the span of the work on a job. It follows from the span that queued the job, on whichever server. Sweeps
// and periodic tasks have no span, because no request caused them.
func (j *Jobs) traced(ctx context.Context, row *rivertype.JobRow) (context.Context, trace.Span) {
	if j.config.Tracer == nil || row.Queue == maintenance {
		return ctx, trace.Span{}
	}
	var from struct {
		Parent trace.Parent `json:"traceparent"`
	}
	note(row, &from)
	ctx, span := j.config.Tracer.Continue(ctx, from.Parent, trace.Consumer, "job "+row.Kind,
		trace.Int("arbe.job.id", row.ID), trace.String("arbe.job.queue", row.Queue), trace.Int("arbe.job.attempt", len(row.AttemptedBy)))
	if row.AttemptedAt != nil {
		span.Set(trace.Int("arbe.job.waited_ms", row.AttemptedAt.Sub(row.ScheduledAt).Milliseconds()))
	}
	return ctx, span
}
