package sandbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/egress"
)

// Surroundings describes the place in which a thread's commands run, as far as it is known without building or starting
// anything.
type Surroundings struct {
	Environment Environment
	// Offline means that commands reach no network.
	Offline bool
	// Egress is what they can reach if they are not offline.
	Egress egress.Policy
	// CommandTime is the default time limit of a command.
	CommandTime time.Duration
}

// Surroundings returns a thread's surroundings: of its sandbox or, if it has none, of the one that its first command
// would get. If the thread has no environment, the error is a [fault.Precondition].
func (r *Resolver) Surroundings(ctx context.Context, scope db.Scope, threadID string) (s Surroundings, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := r.threads.GetTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		from := ""
		if th.Sandbox != "" {
			box, err := r.Sandboxes.getTx(ctx, tx, th.Sandbox)
			if err != nil {
				return err
			}
			from = box.Environment
		}
		s.Environment, err = r.Environments.chooseTx(ctx, tx, threadID, from)
		return err
	})
	if err != nil {
		return Surroundings{}, err
	}
	recipe := s.Environment.Recipe
	if driver, ok := r.drivers.all()[recipe.driver()].(Offline); ok {
		s.Offline = driver.Offline()
	}
	s.Egress = r.maxima.egress(r.drivers.egress(recipe))
	s.Offline = s.Offline || s.Egress.Mode == egress.None
	s.CommandTime = r.maxima.time(recipe.commandTimeout())
	return s, nil
}
