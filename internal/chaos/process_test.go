//go:build linux

package chaos

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// process is a child process that does not outlive this one, however this one ends.
type process struct {
	*os.Process
	exited chan struct{}
	// meant says that the test ended it.
	meant atomic.Bool
}

func spawn(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// For Linux the parent is the thread that forked, so that thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.Process = cmd.Process
		started <- err
		if err == nil {
			cmd.Wait()
			close(p.exited)
		}
	}()
	return p, <-started
}

// kill sends SIGKILL and returns when the process is gone.
func (p *process) kill() {
	p.meant.Store(true)
	p.Kill()
	<-p.exited
}

// resident returns the resident memory of a process in bytes.
func (p *process) resident(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
