package dispatch

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/turn"
)

// chooser selects the turns that chats ask for, by the activation policies of the house's bots. Most chats ask for none,
// which it can tell from memory alone: each round of decisions reads the current version of the house's roster, so it never
// uses an outdated one.
type chooser struct {
	db      *db.DB
	rosters Rosters
	// mentions notifies people that a chat mentions them; nil notifies nobody.
	mentions Mentions
	limits   jobs.Limits
	roots    turn.RootLimits
	// said requests the next run of a driven thread; see [run.Runs.SaidTx].
	said func(ctx context.Context, tx pgx.Tx, thread string, seq int64) error
	// begin records the bot that answers in a thread by its first message; see [thread.Threads.BeginWithTx].
	begin func(ctx context.Context, tx pgx.Tx, thread, bot string) error

	mu   sync.Mutex
	kept map[string]known // by house
}

// Rosters returns the bots of a house; see [bot.Bots.RosterTx].
type Rosters interface {
	RosterTx(ctx context.Context, tx pgx.Tx, house string) (bot.Roster, error)
}

// Mentions notifies people who were mentioned; see [inbox.Inboxes].
type Mentions interface {
	PeopleTx(ctx context.Context, tx pgx.Tx, house string, taken []string) ([]inbox.Person, error)
	MentionTx(ctx context.Context, tx pgx.Tx, thread string, people []string, seq int64) error
	UnmentionTx(ctx context.Context, tx pgx.Tx, house, thread, person string, seqs []int64, still func(first, last int64) ([]int64, error)) error
}
