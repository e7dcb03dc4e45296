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

// placeSecrets writes the files of a command that is about to be launched. The keeper removes them after its end.
func (d *Driver) placeSecrets(ctx context.Context, ref, id string, secrets map[string]string) error {
	secretive, ok := d.provider.(Secretive)
	if !ok {
		return noSecrets()
	}
	if _, err := d.keeper(ctx, ref); err != nil { // this also makes the folders of the keeper
		return err
	}
	r := protocol.Request{Op: protocol.Secrets, ID: id, Secrets: map[string][]byte{}}
	for name, value := range secrets {
		r.Secrets[name] = []byte(value)
	}
	input, err := protocol.EncodeRequest(r)
	if err != nil {
		return fault.From(err)
	}
	if len(input) > MaxInput {
		return fault.New(fault.Invalid, "the secrets of the command are too long", "bind fewer, or shorter ones")
	}
	for attempt := 1; ; attempt++ {
		var out []byte
		var code int
		err := d.patiently(ctx, func(ctx context.Context) (err error) {
			out, code, err = secretive.RunWithSecrets(ctx, ref, input)
			return err
		})
		if err != nil {
			return err
		}
		if reply, ok := protocol.DecodeReply(out); ok {
			return explain(reply, r)
		}
		if attempt == interrupted { // a command kills everything it can
			return unanswered(out, code)
		}
		if err := wait(ctx, shortestPause); err != nil {
			return err
		}
	}
}

var _ = sandbox.SecretFolder == protocol.SecretFolder // the keeper does not import package sandbox
