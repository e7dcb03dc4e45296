package sandbox

import (
	"context"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// startOnce runs the script $1 unless it has run since the box started. The start time of process 1 identifies a
// start of the box. Other commands wait up to a minute for the script. It uses only features of every shell, because
// an image may have little.
const startOnce = `read -r stat </proc/1/stat || exit 0
script=$1; set -- ${stat##*) }
at=/tmp/.arbe-start-${20}
if mkdir "$at" 2>/dev/null; then
	/bin/sh -e -c "$script"; code=$?
	if [ $code = 0 ]; then : >"$at/done"; else rmdir "$at"; fi
	exit $code
fi
n=0; while [ -d "$at" ] && [ ! -e "$at/done" ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done`

func startArgv(r Recipe) []string { return []string{"/bin/sh", "-c", startOnce, "start", r.Start} }

// start runs the start script of a box, unless it has run since the box started.
func (r *Resolver) start(ctx context.Context, p Handle) error {
	if p.recipe.Start == "" {
		return nil
	}
	var received secret.Received
	if len(p.recipe.Secrets) > 0 {
		var err error
		if received, err = r.builds.secrets.Receive(ctx, p.House, p.recipe.Secrets); err != nil {
			return err
		}
	}
	var out tail
	redacted := received.Redactor.Stream(func(b []byte) { _, _ = out.Write(b) }) // never fails
	result, err := p.Exec(ctx, Command{Argv: startArgv(p.recipe), Dir: p.recipe.directory(), Stdout: redacted, Merged: true, Env: received.Env, Timeout: r.builds.preparation.stepTime})
	redacted.Flush()
	if err == nil && result.ExitCode != 0 {
		err = fault.Newf(fault.Precondition, "correct the environment's start script, then run the command again",
			"the start script failed with exit code %d\n%s", result.ExitCode, out.String())
	}
	return err
}
