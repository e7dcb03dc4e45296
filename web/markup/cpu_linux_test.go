package markup

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// cpuTime returns how long the processor worked for f. Other work on the machine does not change it.
func cpuTime(t testing.TB, f func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := func() time.Duration {
		const thread = 1 // RUSAGE_THREAD
		var u syscall.Rusage
		if err := syscall.Getrusage(thread, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := spent()
	f()
	return spent() - before
}
