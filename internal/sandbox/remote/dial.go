package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// surelyAwake is how long after a run a box is certainly awake, because no provider stops a box so soon.
const surelyAwake = 10 * time.Second

// Asleep asks the provider, unless the box has run something just now.
func (d *Driver) Asleep(ctx context.Context, ref string) (bool, error) {
	d.mu.Lock()
	ran := d.ran[ref]
	d.mu.Unlock()
	if time.Since(ran) < surelyAwake {
		return false, nil
	}
	var asleep bool
	err := d.patiently(ctx, func(ctx context.Context) (err error) {
		asleep, err = d.provider.Asleep(ctx, ref)
		return err
	})
	return asleep, err
}

// awake notes that a box has just run something.
func (d *Driver) awake(ref string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ran[ref] = time.Now()
}

// Dial connects to a port of a box; see [sandbox.Dialer]. It runs the keeper there, which forwards the connection through its
// input and output. Each piece sent takes a run of the provider, so Dial works with every provider and is fast with none.
func (d *Driver) Dial(ctx context.Context, ref string, port uint16) (sandbox.Conn, error) {
	keeper, err := d.keeper(ctx, ref)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)() // applies until the connection is made
	input, feed := io.Pipe()
	output, print := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		result, err := d.Exec(running, ref, sandbox.Command{Argv: []string{keeper, protocol.Dial, strconv.Itoa(int(port))}, Dir: "/", Stdin: input, Stdout: print})
		if err == nil && result.ExitCode == protocol.NobodyListens {
			err = sandbox.ErrNobodyListens
		} else if err == nil && result.ExitCode != 0 {
			err = fault.New(fault.Unavailable, "the connection to the sandbox broke off", "connect again")
		}
		ended <- err
		print.CloseWithError(err) // a nil error means the end
		input.CloseWithError(io.ErrClosedPipe)
		cancel()
	}()
	if _, err := io.ReadFull(output, make([]byte, len(protocol.Connected))); err != nil {
		cancel()
		feed.Close()
		if failed := <-ended; failed != nil {
			err = failed
		}
		if errors.Is(err, io.EOF) {
			err = sandbox.ErrNobodyListens
		}
		return nil, err
	}
	return &conn{feed: feed, output: output, port: int(port), end: sync.OnceFunc(func() {
		cancel()
		output.CloseWithError(net.ErrClosed)
		feed.CloseWithError(net.ErrClosed)
	})}, nil
}

// conn is a connection that a keeper forwards. It has no deadlines.
type conn struct {
	feed   *io.PipeWriter
	output *io.PipeReader
	port   int
	end    func()
}

func (c *conn) Read(p []byte) (int, error)  { return c.output.Read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.feed.Write(p) }
func (c *conn) CloseWrite() error           { return c.feed.Close() }
func (c *conn) Close() error                { c.end(); return nil }

func (c *conn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (c *conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.port} }

func (c *conn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *conn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *conn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
