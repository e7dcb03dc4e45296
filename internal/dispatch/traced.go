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

// saidIn remembers the spans in which entries were said, until the decider, which works outside of any request, decides what
// they ask for. The same server decides them, unless it is killed before; then the work begins a trace of its own. A log
// has no room for this, and no reader of a thread has a use for it.
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

// decide begins the span of what an entry asks for, if it was said in a trace.
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
