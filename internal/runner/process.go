package runner

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/harness"
)

// process is the running agent.
type process struct {
	// lines are the lines of its standard output; closed at its end.
	lines chan line
	// exited receives the exit of the agent itself, once. Its children may still run and hold its output open.
	exited chan harness.Exit

	pid   int
	input *input
	out   *os.File
}

type line struct {
	text []byte
	cut  int64
}

// start starts the agent in its own session. The agent dies with the runner.
func start(dir string, environ []string, s harness.Start) (*process, error) {
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	inEnd, in, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, out.Close(), outEnd.Close())
	}
	last := &tail{}
	cmd := exec.Command(s.Argv[0], s.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, environ, inEnd, outEnd, last
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second // a child may hold standard error open
	p := &process{lines: make(chan line), exited: make(chan harness.Exit, 1), out: out}
	err = p.launch(cmd, last)
	inEnd.Close()
	outEnd.Close()
	if err != nil {
		return nil, errors.Join(err, out.Close(), in.Close())
	}
	p.pid, p.input = cmd.Process.Pid, newInput(in)
	p.input.write(s.Input)
	if !s.Open {
		p.input.end()
	}
	go p.readLines(out)
	return p, nil
}

// launch starts the agent, and waits for its end in the background.
func (p *process) launch(cmd *exec.Cmd, last *tail) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the agent dies with the OS thread that started it
		err := cmd.Start()
		if started <- err; err != nil {
			return
		}
		_ = cmd.Wait() // ProcessState says more
		e := harness.Exit{Code: cmd.ProcessState.ExitCode(), Stderr: last.String()}
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			e.Signal = status.Signal()
		}
		p.exited <- e
	}()
	return <-started
}

func (p *process) readLines(out io.Reader) {
	defer close(p.lines)
	_ = harness.ReadLines(out, func(text []byte, cut int64) { // an error is also an end
		p.lines <- line{append([]byte(nil), text...), cut}
	})
}

// abandon stops reading the output, which a child of the agent still holds open.
func (p *process) abandon() {
	_ = p.out.SetReadDeadline(time.Now())
	go func() {
		for range p.lines { // so that the reader ends
		}
	}()
}

// input writes to the agent without blocking, because an agent may stop reading.
type input struct {
	mu     sync.Mutex
	wake   *sync.Cond
	queue  [][]byte
	ended  bool
	broken bool
}

func newInput(to *os.File) *input {
	i := &input{}
	i.wake = sync.NewCond(&i.mu)
	go i.run(to)
	return i
}

func (i *input) run(to *os.File) {
	defer to.Close()
	for {
		i.mu.Lock()
		for len(i.queue) == 0 && !i.ended {
			i.wake.Wait()
		}
		if len(i.queue) == 0 {
			i.mu.Unlock()
			return
		}
		next := i.queue[0]
		i.queue = i.queue[1:]
		i.mu.Unlock()
		if _, err := to.Write(next); err != nil { // the agent has ended, or closed its input
			i.mu.Lock()
			i.broken, i.queue, i.ended = true, nil, true
			i.mu.Unlock()
			return
		}
	}
}

// write queues text. It returns false if the input was already ended.
func (i *input) write(text []byte) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return false
	}
	if len(text) > 0 {
		i.queue = append(i.queue, text)
		i.wake.Signal()
	}
	return true
}

// end closes the input after the queued text.
func (i *input) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	i.wake.Signal()
}

// tail keeps the end of its input.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text = append(t.text, p[max(0, len(p)-maxTail):]...); len(t.text) > 2*maxTail {
		t.text = append([]byte(nil), t.text[len(t.text)-maxTail:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text[max(0, len(t.text)-maxTail):])
}
