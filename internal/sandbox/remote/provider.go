package remote

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Provider creates boxes, runs short programs in them, and deletes them. Its methods are safe for concurrent use, also on the
// same box. If a box is gone, Run and Quarantine fail with [fault.NotFound]. Temporary failures are a [fault.Unavailable], and
// the driver retries them. Errors are [*fault.Error]s written for people.
//
// Otherwise, the promises are those of [sandbox.Driver].
type Provider interface {
	// Create creates a box that is ready for Run. The Spec's ID is valid.
	Create(ctx context.Context, spec sandbox.Spec) (ref string, err error)

	// Run runs a program of the box as the box's user, with an input of at most [MaxInput] bytes. It returns the program's
	// output, which is text, and its exit code. It starts a box that is stopped or in quarantine. It takes less than [MaxRun],
	// unless it has to start the box. If ctx ends, Run returns at once, and the program may run on.
	Run(ctx context.Context, ref string, argv []string, input []byte) (output []byte, exitCode int, err error)

	// Asleep reports whether a box is stopped, or sleeps so deeply that what ran in it has ended. It starts nothing.
	Asleep(ctx context.Context, ref string) (bool, error)
	Probe(ctx context.Context, ref string) (sandbox.Liveness, error)
	Destroy(ctx context.Context, ref string) error
	Quarantine(ctx context.Context, ref string) (place string, err error)
	List(ctx context.Context, want sandbox.Labels) ([]sandbox.Box, error)
	Close(ctx context.Context) error

	// Guarantees states what the provider adds to what this package guarantees.
	Guarantees() sandbox.Guarantees
}

// Putter is a [Provider] with its own way to write files, because its Run is slow with a large input.
type Putter interface {
	Provider

	// Put writes a file of at most [MaxInput] bytes as the box's user, and replaces an existing one. Its directory exists.
	Put(ctx context.Context, ref, path string, content []byte) error
}

// Resting is a [Provider] that may pause or stop a box in which processes run. KeepAwake is that of [sandbox.Resting].
type Resting interface {
	Provider

	KeepAwake(ctx context.Context, ref string, least time.Duration) error
}

// Metered is a [Provider] that says which of its boxes run, and what that costs. Meter is that of [sandbox.Metered].
type Metered interface {
	Provider

	Meter(ctx context.Context, ref string) (sandbox.Meter, error)
}

// Near is a [Provider] whose boxes can be reached by some servers only, or have no network.
type Near interface {
	Provider

	// Machine implements [sandbox.Bound], and Offline implements [sandbox.Offline].
	Machine() string
	Offline() bool
}
