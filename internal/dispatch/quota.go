package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/policy"
	"github.com/arbe-dev/arbe/internal/turn"
)

// This file decides which turns may join the queue. Package jobs decides which queued turn runs next (fair.go), and package
// turn how much it may cost.

// admission admits the turns that a thread's new entries ask for. It enforces the limits on what follows from one entry of a
// person, and on how many turns may wait. Threads are decided concurrently, so a few more turns than the limit may wait.
type admission struct {
	house, thread string
	limits        jobs.Limits
	roots         map[string]*turn.Root
	// waiting is nil until needed, which is rare: usually the bot already has a turn.
	waiting *turn.Waiting
}

// admissionTx returns the admission for some triggers. Call it before tx locks a log; see [turn.RootTx].
func admissionTx(ctx context.Context, tx pgx.Tx, n *News, triggers []*trigger, limits jobs.Limits, roots turn.RootLimits) (*admission, error) {
	a := &admission{house: n.House, thread: n.Thread, limits: limits, roots: map[string]*turn.Root{}}
	for _, t := range triggers {
		if t.Chain > 0 {
			a.roots[t.root] = nil
		}
	}
	for _, root := range slices.Sorted(maps.Keys(a.roots)) {
		found, err := turn.RootTx(ctx, tx, n.House, root, roots)
		if err != nil {
			return nil, err
		}
		a.roots[root] = found
	}
	for _, t := range triggers {
		if a.roots[t.root] == nil { // this entry is being decided only now, so nothing has followed from it yet
			a.roots[t.root] = turn.NewRoot(roots)
		}
	}
	return a, nil
}

// begin admits one more turn, or returns the entry that explains why it is refused. A thread has one such entry per root, or
// one per minute if too many turns wait: the entries of refused turns then share an id, and a log stores one entry per id.
func (a *admission) begin(ctx context.Context, tx pgx.Tx, t *trigger, d policy.Decision) (_ *entry.Draft, err error) {
	if a.waiting == nil {
		w, err := turn.WaitingTx(ctx, tx, a.house, a.thread, a.limits.PersonWaiting)
		if err != nil {
			return nil, err
		}
		a.waiting = &w
	}
	w := a.waiting
	for _, l := range []struct {
		waiting, most int
		of            string
	}{
		{w.Thread, a.limits.ThreadWaiting, "in this thread"}, {w.House, a.limits.HouseWaiting, "in this house"},
		{w.Person, a.limits.PersonWaiting, "in the houses of the person who owns this one"},
	} {
		if l.waiting >= l.most {
			return refused(t, d, entry.ReasonQueue, time.Now().UTC().Format("200601021504"),
				fmt.Sprintf("%d turns of bots are waiting %s, the most allowed. Ask again when some have begun, or stop some.", l.waiting, l.of)), nil
		}
	}
	if why := a.roots[t.root].Begin(); why != "" {
		sum := sha256.Sum256([]byte(t.root))
		return refused(t, d, entry.ReasonBreadth, hex.EncodeToString(sum[:12]), why), nil
	}
	w.Thread, w.House, w.Person = w.Thread+1, w.House+1, w.Person+1
	return nil, nil
}

// refused explains why a turn is refused. once is the end of the entry's id.
func refused(t *trigger, d policy.Decision, reason entry.Reason, once, explanation string) *entry.Draft {
	return new(entry.NewDraft(entry.TurnPrefix+"."+string(reason)+"."+once, "", skipped(t, d, reason, explanation)))
}

// skipped says that a bot does not react to an entry.
func skipped(t *trigger, d policy.Decision, reason entry.Reason, explanation string) entry.Skipped {
	return entry.Skipped{AgentID: d.Bot, EntryID: t.entry.ID, Reason: string(reason), Explanation: explanation, PolicyID: d.Policy}
}
