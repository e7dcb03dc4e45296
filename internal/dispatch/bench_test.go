//go:build linux

package dispatch_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// BenchmarkFortyCommands measures how long forty commands of one thread take when requested at once: from the server whose
// machine has the thread's sandbox, and alternately from that one and one on another machine. All must succeed.
func BenchmarkFortyCommands(b *testing.B) {
	bench := database(b)
	bench.tune = func(c *dispatch.Config) { c.Limits = dispatch.Limits{Commands: jobs.Limits{ThreadRunning: 8}} }
	bench.driver = newLocal(b, b.TempDir())
	bench.server = bench.serve()
	here := bench.server
	th := bench.thread(sandbox.Recipe{})
	if r := bench.sh(th, "true"); r.ExitCode != 0 {
		b.Fatal(r)
	}
	bench.driver = newLocal(b, b.TempDir())
	there := bench.serve()
	forty := func(servers ...*server) float64 {
		begin := time.Now()
		var asked []string
		for i := range 40 {
			said, err := servers[i%len(servers)].dispatcher.Commands.Run(b.Context(), bench.scope, th, "", entry.Command{Command: fmt.Sprint("echo ", i)})
			if err != nil {
				b.Fatal(detail(err))
			}
			asked = append(asked, said.ID)
		}
		for i, id := range asked {
			if r := bench.result(th, id); r.ExitCode != 0 || r.Output != fmt.Sprintln(i) {
				b.Fatalf("%+v", r)
			}
		}
		return time.Since(begin).Seconds() * 1000
	}
	var one, two []float64
	for b.Loop() {
		one = append(one, forty(here))
		two = append(two, forty(here, there))
	}
	slices.Sort(one)
	slices.Sort(two)
	o, t := one[len(one)/2], two[len(two)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(o, "one-ms")
	b.ReportMetric(t, "two-ms")
	b.ReportMetric(t/o, "two/one")
}
