//go:build linux

package local

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// grace is how long output is waited for after a command has ended while something it started still
// holds its output open.
const grace = 100 * time.Millisecond

// pipes connect a command's standard streams with a [sandbox.Command]'s.
type pipes struct {
	inside  streams  // what the command gets
	stdin   *os.File // our end of its input; nil when it has none
	outputs [2]*output
}

// openPipes makes the pipes. The command never gets a file of the server's: what it holds, it can read,
// write and keep.
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
	for i, sink := range []io.Writer{cmd.Stdout, cmd.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.inside[i+1] = w
		p.outputs[i] = &output{pipe: r, sink: sink, delivered: make(chan struct{})}
	}
	return p, nil
}

// pump begins to move bytes. It is called when the command runs: until then, anything on the pipes
// comes from the runtime and is not the command's.
func (p *pipes) pump(cmd sandbox.Command) {
	if p.stdin != nil {
		go func() {
			_, _ = io.Copy(p.stdin, cmd.Stdin) // a command that does not read its input is no error
			p.stdin.Close()
		}()
	}
	for _, o := range p.outputs {
		go o.pump()
	}
}

// drain returns when everything the command itself wrote has been delivered. What a process in the
// background writes later is read and dropped, until the last one has closed the pipe: so that it
// neither blocks nor dies of it.
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

// close releases what is not in use any more.
func (p *pipes) close() {
	p.inside.Close()
	if p.stdin != nil {
		p.stdin.Close()
	}
	for _, o := range p.outputs {
		if o != nil && !o.pumping {
			o.pipe.Close()
		}
	}
}

// output is one output of a command.
type output struct {
	pipe      *os.File
	sink      io.Writer     // nil drops
	delivered chan struct{} // closed when the sink gets nothing more
	pumping   bool          // the pump owns the pipe, and closes it
	once      sync.Once

	// What was delivered, valid when delivered is closed: how much, and how it began.
	total int
	head  [512]byte
}

// pump moves the output until its end, in three stages: to the sink until the pipe ends or the read
// deadline passes; then what is in the pipe at that moment, which includes all that the command wrote
// before it ended; then to nowhere.
func (o *output) pump() {
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
	if o.total < len(o.head) {
		copy(o.head[o.total:], data)
	}
	o.total += len(data)
	if o.sink == nil || len(data) == 0 {
		return
	}
	if _, err := o.sink.Write(data); err != nil {
		o.sink = nil
	}
}

func (o *output) finish() { o.once.Do(func() { close(o.delivered) }) }

// buffered is how many bytes are in the pipe.
func (o *output) buffered() (n int) {
	raw, err := o.pipe.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}
