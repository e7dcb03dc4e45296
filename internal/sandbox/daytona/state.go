package daytona

import (
	"errors"

	api "github.com/daytonaio/daytona/libs/api-client-go"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// validRef matches Daytona's ids. It also keeps a ref from altering the path of a request.
var validRef = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)

// livenessOf returns the liveness that a box's state implies. A state that this driver does not know, because Daytona added
// it later, is [sandbox.Unknown].
func livenessOf(box *api.Sandbox) sandbox.Liveness {
	if box.GetDesiredState() == api.SANDBOXDESIREDSTATE_DESTROYED {
		return sandbox.Gone
	}
	switch box.GetState() {
	case api.SANDBOXSTATE_DESTROYED, api.SANDBOXSTATE_DESTROYING, api.SANDBOXSTATE_BUILD_FAILED:
		return sandbox.Gone
	case api.SANDBOXSTATE_ERROR:
		if box.GetRecoverable() {
			return sandbox.Unknown
		}
		return sandbox.Gone
	case api.SANDBOXSTATE_UNKNOWN, api.SANDBOXSTATE_UNKNOWN_DEFAULT_OPEN_API, "":
		return sandbox.Unknown
	}
	return sandbox.Live
}

// broken reports whether a box has failed: it exists, but can only be deleted.
func broken(box *api.Sandbox) bool {
	return box.GetState() == api.SANDBOXSTATE_ERROR || box.GetState() == api.SANDBOXSTATE_BUILD_FAILED
}

// stopped reports whether a box is stopped and has its files.
func stopped(box *api.Sandbox) bool {
	return box.GetState() == api.SANDBOXSTATE_STOPPED || box.GetState() == api.SANDBOXSTATE_ARCHIVED
}

// failure returns why a box will not run; nil if it may.
func failure(box *api.Sandbox) error {
	reason := errors.New(string(box.GetState()) + ": " + box.GetErrorReason())
	switch {
	case box.GetState() == api.SANDBOXSTATE_BUILD_FAILED:
		return fault.New(fault.Precondition, "Daytona could not build the environment's image", "correct the image; Daytona shows the log of the build").Because(reason)
	case box.GetState() == api.SANDBOXSTATE_ERROR:
		return fault.New(fault.Precondition, "the sandbox failed at Daytona", "delete the sandbox and run the command again").Because(reason)
	case livenessOf(box) == sandbox.Gone:
		return fault.New(fault.NotFound, "the sandbox no longer exists at Daytona", "run the command again: the thread gets a new sandbox").Because(reason)
	}
	return nil
}
