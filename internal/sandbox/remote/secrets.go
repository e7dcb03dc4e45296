package remote

import (
	"context"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// Secretive is a [Provider] whose boxes have [sandbox.SecretFolder], as [protocol.SecretFolder] says.
type Secretive interface {
	Provider

	// RunWithSecrets runs the keeper of a box without arguments, as Run does, but with the group [protocol.SecretGroup], which no
	// command has. No command can change that keeper.
	RunWithSecrets(ctx context.Context, ref string, input []byte) (output []byte, exitCode int, err error)
}

// validSecret is the form of the name of a secret's file. Names with a dot at the beginning are for files that are being written.
var validSecret = lazyregexp.New(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$`)

func checkSecrets(secrets map[string]string) error {
	for name := range secrets {
		if !validSecret.MatchString(name) {
			return fault.Newf(fault.Invalid, "use letters, digits, ., - and _, and no dot at the beginning", "%q is not a name for a file of a secret", name)
		}
	}
	return nil
}

func noSecrets() *fault.Error {
	return fault.New(fault.Precondition, "commands of this sandbox cannot receive secrets as files",
		"bind the secret as an environment variable; or, if the sandbox is from before an upgrade of the server, replace it")
}

var _ = sandbox.SecretFolder == protocol.SecretFolder // the keeper does not import package sandbox
