package sandbox

import (
	"context"
	"io"
	"time"
)

// startOnce runs the script $1 unless it has run since the box started. The start time of process 1 identifies a
// start of the box. Other commands wait up to a minute for the script, and one of them runs it again if it was killed. It
// uses only features of every shell, because an image may have little.
const startOnce = `read -r stat </proc/1/stat || exit 0
script=$1; set -- ${stat##*) }
at=/tmp/.arbe-start-${20} n=0
until mkdir "$at" 2>/dev/null; do
	if [ -e "$at/done" ] || [ $n -ge 600 ]; then exit 0; fi
	if read -r by 2>/dev/null <"$at/by" && [ ! -d "/proc/$by" ]; then rm -rf "$at"; continue; fi
	sleep 0.1; n=$((n+1))
done
echo $$ >"$at/by"
/bin/sh -e -c "$script"; code=$?
if [ $code = 0 ]; then : >"$at/done"; else rm -rf "$at"; fi
exit $code`

// sleeps returns the driver of a box that its provider may put to sleep, which takes seconds to wake; nil for any other. The
// local driver also stops boxes that are idle, but starts them in a moment.
func (p Handle) sleeps() Dialer {
	if bound, ok := p.driver.(Bound); ok && bound.Machine() != "" {
		return nil
	}
	d, dials := p.driver.(Dialer)
	if s, states := p.driver.(Stating); !dials || !states || !s.Guarantees().StopsIdle {
		return nil
	}
	return d
}

// wakeTime limits the command that wakes a box.
const wakeTime = time.Minute

// wake starts a box that is not running.
func (p Handle) wake(ctx context.Context) error {
	_, err := p.Exec(ctx, Command{Argv: []string{"/bin/sh", "-c", ":"}, Stdout: io.Discard, Stderr: io.Discard, Timeout: wakeTime})
	return err
}

func startArgv(r Recipe) []string { return []string{"/bin/sh", "-c", startOnce, "start", r.Start} }
