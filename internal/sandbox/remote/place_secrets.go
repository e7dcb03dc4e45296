package remote

import (
	"context"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

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
