package rpc_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// BenchmarkRunCommand measures how long a caller of RunCommand waits, over HTTP and with an API key, until the request is
// authorized and the command is in the log and queued.
func BenchmarkRunCommand(b *testing.B) {
	w := setup(b)
	made, err := w.ada.Threads.CreateThread(b.Context(), &arbev1.CreateThreadRequest{HouseId: w.ada.house.Id})
	must(b, err)
	var took []float64
	for b.Loop() {
		begin := time.Now()
		_, err := w.ada.Threads.RunCommand(b.Context(), &arbev1.RunCommandRequest{ThreadId: made.Thread.Id, Id: fmt.Sprint("c", len(took)), What: &arbev1.RunCommandRequest_Command{Command: "true"}})
		must(b, err)
		took = append(took, float64(time.Since(begin).Microseconds()))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-µs")
	b.ReportMetric(took[len(took)*99/100], "p99-µs")
	b.ReportMetric(0, "ns/op") // it would repeat the number above
}
