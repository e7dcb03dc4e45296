//go:build !linux

package markup

import (
	"testing"
	"time"
)

// cpuTime returns how long f took.
func cpuTime(t testing.TB, f func()) time.Duration {
	t.Helper()
	start := time.Now()
	f()
	return time.Since(start)
}
