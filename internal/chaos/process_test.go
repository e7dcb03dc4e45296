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

// process is a child that does not outlive this program, however that ends.
type process struct {
	*os.Process
	exited chan struct{}
	// meant says that we ended it.
	meant atomic.Bool
}

func spawn(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// To Linux the parent is the thread that forked, so it must live as long as the child.
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

// kill is kill -9; it returns when the process is gone.
func (p *process) kill() {
	p.meant.Store(true)
	p.Kill()
	<-p.exited
}

// resident is how much memory a process has, in bytes.
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
