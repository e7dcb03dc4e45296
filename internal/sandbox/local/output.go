//go:build linux

package local

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// grace is how long to wait for output after a command has ended, if a process that it started still holds the output
// open.
const grace = 100 * time.Millisecond

// pipes connect the standard streams of a command to those of a [sandbox.Command].
type pipes struct {
	inside  streams   // the command's ends
	stdin   *os.File  // our end of its input; nil if it has none
	outputs []*output // one if standard output and error are merged
}

// openPipes creates the pipes. The command never gets a file of the server, because it could read, write and keep it.
func openPipes(cmd sandbox.Command) (p *pipes, err error) {
	p = &pipes{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if cmd.Stdin == nil {
		p.inside[0], err = os.Open(os.DevNull)
	} else {
		p.inside[0], p.stdin, err = os.Pipe()
	}
	if err != nil {
		return nil, err
	}
	sinks := []io.Writer{cmd.Stdout, cmd.Stderr}
	if cmd.Merged {
		sinks = sinks[:1]
	}
	for i, sink := range sinks {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.inside[i+1] = w
		p.outputs = append(p.outputs, &output{pipe: r, sink: sink, delivered: make(chan struct{})})
	}
	if cmd.Merged {
		p.inside[2], err = duplicate(p.inside[1])
	}
	return p, err
}

// duplicate duplicates a file, so that each copy can be closed.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// pump starts to move bytes. Call it when the command runs, because before that, anything on the pipes comes from the
// runtime.
func (p *pipes) pump(cmd sandbox.Command) {
	if p.stdin != nil {
		go func() {
			_, _ = io.Copy(p.stdin, cmd.Stdin) // a command need not read its input
			p.stdin.Close()
		}()
	}
	for _, o := range p.outputs {
		go o.pump()
	}
}

// drain returns when everything that the command itself wrote has been delivered. Later output of background processes
// is read and dropped until the last one closes the pipe, so that they neither block nor die.
func (p *pipes) drain() {
	deadline := time.Now().Add(grace)
	for _, o := range p.outputs {
		_ = o.pipe.SetReadDeadline(deadline)
	}
	for _, o := range p.outputs {
		<-o.delivered
		o.pumping = true
	}
}

// mostDropping is the maximum number of outputs of ended commands that a box may hold open. Each uses a file descriptor
// of the server.
const mostDropping = 256

// dropping are the outputs of a box's ended commands that background processes hold open.
type dropping struct {
	mu   sync.Mutex
	list []*output
}

// add adds the outputs of a drained command. If there are too many, the oldest is closed, and its writers get a broken
// pipe.
func (d *dropping) add(outputs ...*output) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = slices.DeleteFunc(append(d.list, outputs...), func(o *output) bool { return o.over.Load() })
	for len(d.list) > mostDropping {
		d.list[0].pipe.Close()
		d.list = slices.Delete(d.list, 0, 1)
	}
}

// close closes the files that are no longer in use.
func (p *pipes) close() {
	p.inside.Close()
	if p.stdin != nil {
		p.stdin.Close()
	}
	for _, o := range p.outputs {
		if !o.pumping {
			o.pipe.Close()
		}
	}
}

// output is one output of a command.
type output struct {
	pipe      *os.File
	sink      io.Writer     // nil drops the output
	delivered chan struct{} // closed when the sink gets nothing more
	pumping   bool          // the pump owns and closes the pipe
	once      sync.Once
	over      atomic.Bool // the pump has ended
}

// pump moves the output until its end, in three stages. First it delivers to the sink until the pipe ends or the read
// deadline passes. Then it delivers what is in the pipe at that moment, which includes everything that the command
// wrote before it ended. Then it drops the rest.
func (o *output) pump() {
	defer o.over.Store(true)
	defer o.pipe.Close()
	defer o.finish()
	buffer := make([]byte, 32<<10)
	for {
		n, err := o.pipe.Read(buffer)
		o.deliver(buffer[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return
		}
	}
	_ = o.pipe.SetReadDeadline(time.Time{})
	for left := o.buffered(); left > 0; {
		n, err := o.pipe.Read(buffer[:min(left, len(buffer))])
		o.deliver(buffer[:n])
		if left -= n; err != nil {
			return
		}
	}
	o.finish()
	_, _ = io.Copy(io.Discard, o.pipe)
}

func (o *output) deliver(data []byte) {
	if o.sink == nil || len(data) == 0 {
		return
	}
	if _, err := o.sink.Write(data); err != nil {
		// The pump continues without the sink. Otherwise the command would block.
		o.sink = nil
	}
}

func (o *output) finish() { o.once.Do(func() { close(o.delivered) }) }

// buffered returns how many bytes are in the pipe.
func (o *output) buffered() (n int) {
	raw, err := o.pipe.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}
