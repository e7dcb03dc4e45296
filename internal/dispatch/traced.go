package dispatch

import (
	"context"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/trace"
)

// saidMost limits the entries whose spans a server remembers. Only entries that were not decided yet are needed, so it is
// more than arrive between two decisions.
const saidMost = 4096

// saidIn remembers the spans in which entries were said until the decider, which works outside of requests, decides about
// them. Usually the same server decides; if it is killed before, the work begins a new trace. The log does not store spans,
// because readers of a thread have no use for them.
type saidIn struct {
	tracer *trace.Tracer
	by     *lru.Cache[saidKey, trace.Parent]
}

type saidKey struct{ house, log, entry string }

// newSaidIn returns nil without a tracer.
func newSaidIn(t *trace.Tracer) *saidIn {
	if t == nil {
		return nil
	}
	by, err := lru.New[saidKey, trace.Parent](saidMost)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &saidIn{t, by}
}

// note remembers the span of ctx for drafts that are about to be appended. It gives each an id, which is how the decider
// finds the span.
func (s *saidIn) note(ctx context.Context, to stream.Ref, drafts []entry.Draft) {
	if s == nil {
		return
	}
	from := trace.Here(ctx)
	if from == "" {
		return
	}
	for i := range drafts {
		if drafts[i].ID == "" {
			drafts[i].ID = uuid.Must(uuid.NewV7()).String()
		}
		s.by.Add(saidKey{to.House, to.Name, drafts[i].ID}, from)
	}
}

// decide begins the span of the work that an entry asks for, if the entry was said in a trace.
func (s *saidIn) decide(ctx context.Context, in stream.Ref, entry string) (context.Context, trace.Span) {
	if s == nil {
		return ctx, trace.Span{}
	}
	from, ok := s.by.Get(saidKey{in.House, in.Name, entry})
	if !ok {
		return ctx, trace.Span{}
	}
	return s.tracer.Continue(ctx, from, trace.Internal, "decide")
}
