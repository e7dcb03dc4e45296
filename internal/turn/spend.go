package turn

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Spender is a caller of models in a thread: a turn of a bot, or a run of a coding agent. All of them share the same
// limits.
type Spender struct {
	House, Thread string
	// Root is the root of its work; see [RootOf].
	Root string
	// Run is the epoch of the run; 0 for a turn.
	Run int64
	// Bot is the handle of the bot.
	Bot string
	// Limits are the bot's limits; only those for a run or a day apply here. Roots are the operator's.
	Limits Limits
	Roots  RootLimits
}

// SpentTx returns a [fault.Exhausted] if a limit is reached, and otherwise nil.
func (s Spender) SpentTx(ctx context.Context, tx pgx.Tx) error {
	list, err := s.metersTx(ctx, tx)
	for _, m := range list {
		if m.used >= m.max {
			return fault.New(fault.Exhausted, m.words, m.next).WithReason(fault.BudgetSpent)
		}
	}
	return err
}

// metersTx returns the limits of a run, and those that the spender shares with others.
func (s Spender) metersTx(ctx context.Context, tx pgx.Tx) ([]meter, error) {
	root, err := queries.RootUsed(ctx, tx, s.House, s.Root)
	if err != nil {
		return nil, err
	}
	day, err := queries.DayUsed(ctx, tx, s.Thread, s.House, s.Root)
	if err != nil {
		return nil, err
	}
	l, roots := s.Limits.withDefaults(), s.Roots.WithDefaults()
	list := []meter{
		{"entry_usd", dollars(root), dollars(roots.Micros),
			fmt.Sprintf("what follows from one message of a person may cost $%.2f, and that is spent", dollars(roots.Micros)),
			"say what to do next, which is a new message; or ask the operator to raise the setting entry_usd"},
		{"thread_usd_day", dollars(day.Tree), dollars(l.ThreadMicros),
			fmt.Sprintf("what bots do in this thread, and in those above and below it, may cost $%.2f a day, and that is spent", dollars(l.ThreadMicros)),
			"go on in another thread, wait until midnight UTC, or have an owner raise " + limitOfBot(s.Bot, "thread_usd_day")},
	}
	if l.MemberMicros > 0 {
		list = append(list, meter{"member_usd_day", dollars(day.Member), dollars(l.MemberMicros),
			fmt.Sprintf("what one person asks of the bots of this house may cost $%.2f a day, and that is spent", dollars(l.MemberMicros)),
			fmt.Sprintf("wait until midnight UTC, or have an owner raise the limit; the command is: arbe house limit --member %d --house %s", raised(l.MemberMicros), s.House)})
	}
	list = append(list, meter{"house_usd_day", dollars(day.House), dollars(l.HouseMicros),
		fmt.Sprintf("the bots of this house may cost $%.2f a day together, and that is spent", dollars(l.HouseMicros)),
		fmt.Sprintf("wait until midnight UTC, or have an owner raise the house's limit; the command is: arbe house limit %d --house %s", raised(l.HouseMicros), s.House)})
	if s.Run == 0 {
		return list, nil
	}
	run, err := s.runMeterTx(ctx, tx, l)
	return append(list, run), err
}

// runMeterTx returns the limit of the spender's run.
func (s Spender) runMeterTx(ctx context.Context, tx pgx.Tx, l Limits) (meter, error) {
	run, err := queries.RunUsed(ctx, tx, s.House, s.Thread, s.Run)
	return meter{"run_usd", dollars(run), dollars(l.RunMicros),
		fmt.Sprintf("a run of this bot may cost $%.2f, and that is spent", dollars(l.RunMicros)),
		"continue the thread, which begins another run, or have an owner raise " + limitOfBot(s.Bot, "run_usd")}, err
}

// raised returns twice a limit, in whole dollars, as an example of a higher one.
func raised(micros int64) int64 { return (2*micros + 999_999) / 1e6 }

// limitOfBot names a limit of a bot and the command that changes it, as a separate step that pages leave out.
func limitOfBot(handle, name string) string {
	return fmt.Sprintf("the bot's limit %s; the command is: arbe bot edit @%s", name, handle)
}

func (e *spentError) Error() string { return e.words + "; " + e.next }
func (e *spentError) Unwrap() error {
	return fault.New(fault.Exhausted, e.words, e.next).WithReason(fault.BudgetSpent)
}
