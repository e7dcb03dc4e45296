package entrystate

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// maxOwn limits the reactions of an agent to one entry, maxChanges how often the agent may change them, and maxEmoji the
	// different emoji of an entry.
	maxOwn, maxChanges, maxEmoji = 8, 20, 20
)

// ReactTx adds or removes an agent's reaction to the entry at a position. It reports whether that changed anything; if so,
// the caller writes an entry in the same transaction. The caller holds the lock of the thread's row. The error is a
// [fault.Exhausted] at a limit.
func ReactTx(ctx context.Context, tx pgx.Tx, log stream.Ref, thread string, seq int64, agent, emoji string, remove bool) (changed bool, err error) {
	rows, err := queries.ReactionsTo(ctx, tx, log.House, log.Name, seq)
	if err != nil {
		return false, err
	}
	var own []string
	changes, all := 0, map[string]bool{}
	for _, r := range rows {
		for _, e := range r.Emoji {
			all[e] = true
		}
		if r.AgentID == agent {
			own, changes = r.Emoji, int(r.Changes)
		}
	}
	switch has := slices.Contains(own, emoji); {
	case has != remove:
		return false, nil
	case changes >= maxChanges:
		return false, fault.Newf(fault.Exhausted, "leave it as it is", "you have changed your reactions to this %d times", maxChanges).WithReason(fault.LimitReached)
	case !remove && len(own) >= maxOwn:
		return false, fault.Newf(fault.Exhausted, "remove one of them first", "you have reacted to this with %d emoji", maxOwn).WithReason(fault.LimitReached)
	case !remove && !all[emoji] && len(all) >= maxEmoji:
		return false, fault.Newf(fault.Exhausted, "use one of them", "this has reactions with %d different emoji", maxEmoji).WithReason(fault.LimitReached)
	}
	if remove {
		own = slices.DeleteFunc(own, func(e string) bool { return e == emoji })
	} else {
		own = append(own, emoji)
	}
	return true, queries.PutReaction(ctx, tx, query.PutReactionParams{HouseID: log.House, ThreadID: thread, Stream: log.Name, Seq: seq, AgentID: agent, Emoji: append([]string{}, own...)})
}
