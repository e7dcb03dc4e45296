package sandbox

import (
	"context"
	"errors"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// PlaceFiles writes the files of a thread's messages to its sandbox, for programs that run there. It builds and wakes none, and
// does nothing if this server does not reach it. What is too large to wait for is written afterwards.
func (r *Resolver) PlaceFiles(ctx context.Context, scope db.Scope, threadID string) error {
	th, err := r.threads.Get(ctx, scope, threadID)
	if err != nil || th.Sandbox == "" {
		return err
	}
	p, err := r.Handle(ctx, scope, th.Sandbox)
	if _, elsewhere := errors.AsType[*OtherMachineError](err); elsewhere || fault.CodeOf(err) == fault.NotFound {
		return nil
	} else if err != nil {
		return err
	}
	_, err = r.files.place(ctx, placing{scope, threadID, p})
	return err
}
