package house

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Delete closes the scope's house for good. At once, all members lose access and no policy wakes a bot. name must be the
// name of the house, as a confirmation; otherwise the error is a [fault.Invalid]. The installation's first house cannot
// be deleted: [fault.Precondition]. empty runs in the same transaction, and arranges the deletion of everything that the
// house owns.
func (h *Houses) Delete(ctx context.Context, scope db.Scope, name string, empty func(pgx.Tx) error) error {
	return h.db.In(ctx, scope, func(tx pgx.Tx) error {
		if _, err := h.lockOwners(ctx, tx, scope); err != nil {
			return err
		}
		called, err := h.q.LockHouse(ctx, tx, scope.House)
		if err != nil {
			return err
		}
		if strings.TrimSpace(name) != called {
			return fault.New(fault.Invalid, "name: this is not the name of the house", "repeat the name of the house exactly, to confirm that you mean it")
		}
		if first, err := h.q.IsFirstHouse(ctx, tx); err != nil {
			return err
		} else if first {
			return fault.New(fault.Precondition, "this is the first house of the installation, and its owners are the operators", "delete its threads, bots and secrets instead")
		}
		if err := h.q.NoteDeletedHouse(ctx, tx); err != nil {
			return err
		}
		if err := empty(tx); err != nil {
			return err
		}
		if err := h.q.DeletePoliciesOf(ctx, tx, scope.House); err != nil {
			return err
		}
		return h.q.DeletePeople(ctx, tx, scope.House)
	})
}
