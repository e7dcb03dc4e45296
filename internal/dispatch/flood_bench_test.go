//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// BenchmarkCommandBesideFlood measures how long a command of one house takes, from being asked for to its result: alone,
// and beside commands of another house that print as fast as they can, without end or again and again as much as an
// artifact holds. It also reports how fast such a command is read when its house is alone.
func BenchmarkCommandBesideFlood(b *testing.B) {
	for _, c := range []struct {
		name, line string
		commands   int
	}{
		{"endless", "yes", 1},
		{"endless", "yes", 4},
		{"kept", fmt.Sprintf("yes | head -c %d", maxArtifact), 4},
	} {
		b.Run(fmt.Sprintf("%s/%d", c.name, c.commands), func(b *testing.B) { besideFlood(b, c.line, c.commands) })
	}
}

func besideFlood(b *testing.B, line string, commands int) {
	const printed, asked = 256 << 20, 25
	victim := database(b)
	victim.driver = newLocal(b, b.TempDir())
	victim.server = victim.serve()
	flooder := victim.another()
	from, at := flooder.thread(sandbox.Recipe{}), victim.thread(sandbox.Recipe{})
	flooder.sh(from, "true")
	victim.sh(at, "true")
	var alone, beside []time.Duration
	var speed []float64
	ask := func(to *[]time.Duration) {
		for range asked {
			began := time.Now()
			if r := victim.sh(at, "true"); r.ExitCode != 0 {
				b.Fatalf("%+v", r)
			}
			*to = append(*to, time.Since(began))
		}
	}
	for b.Loop() {
		ask(&alone)
		time.Sleep(time.Second) // so that the other commands have ended
		began := time.Now()
		flooder.sh(from, fmt.Sprintf("yes | head -c %d", printed))
		speed = append(speed, float64(printed>>20)/time.Since(began).Seconds())
		ctx, stop := context.WithCancel(b.Context())
		var floods sync.WaitGroup
		for range commands {
			floods.Go(func() {
				for ctx.Err() == nil {
					id := flooder.askFor(from, "", entry.Command{Command: line})
					stop := context.AfterFunc(ctx, func() {
						_ = flooder.dispatcher.Commands.Cancel(b.Context(), flooder.scope, from, id, command.Interrupt) // it may have ended
					})
					flooder.result(from, id)
					stop()
				}
			})
		}
		time.Sleep(time.Second) // until no command can run further ahead of its reader
		ask(&beside)
		stop()
		floods.Wait()
	}
	report(b, alone, "alone")
	report(b, beside, "beside")
	b.ReportMetric(float64(beside[len(beside)/2])/float64(alone[len(alone)/2]), "beside/alone")
	slices.Sort(speed)
	b.ReportMetric(speed[len(speed)/2], "MiB/s-flood")
	b.ReportMetric(0, "ns/op")
}
