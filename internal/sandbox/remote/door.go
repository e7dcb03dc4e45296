package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// This file carries connections of boxes to the server's doors. A keeper in the box listens on an address of the box's own
// loopback, and passes what programs send there over its output. Nothing else listens in a box, and nothing is dialled here, so
// programs reach the doors and nothing else. See [protocol.Door].

// Relayed is a [Provider] with boxes whose network does not reach the server.
type Relayed interface {
	Provider

	// Relays reports whether the driver carries a box's connections to the server's doors. If so, it also returns the labels of
	// the box, of which only those are set that nobody but this server can choose. The answer never changes.
	Relays(ctx context.Context, ref string) (relays bool, of sandbox.Labels, err error)
}

// Streaming is a [Relayed] provider that can run a program whose input and output last.
type Streaming interface {
	Relayed

	// Door runs the keeper of a box with the argument [protocol.Door], so that no command of the box can end it, and returns its
	// output and input. Close ends the keeper. Door starts no box: if the box is stopped, the error is a [fault.Unavailable].
	Door(ctx context.Context, ref string) (io.ReadWriteCloser, error)

	// Hold keeps this server from stopping a box that is idle until release is called.
	Hold(ctx context.Context, ref string) (release func(), err error)

	// Running returns the boxes of this server's installation that run. Doors of others are not opened before their next use.
	Running(ctx context.Context) (refs []string, err error)
}

const (
	// doorWithin limits how long a command waits for the door before it starts without.
	doorWithin = 15 * time.Second
	// doorLook is the pause between two looks for running boxes without a door.
	doorLook = 5 * time.Second
	// doorRest is the pause before a door is tried again that could not be opened, or that another server holds.
	doorRest = 15 * time.Second
	// doorUnused is how long a door is kept open without commands, if that keeps the box awake.
	doorUnused = 2 * time.Minute
)

// OnDoor makes the driver pass connections of boxes to take, with the labels of the box; see [sandbox.Relaying].
func (d *Driver) OnDoor(take func(conn net.Conn, from sandbox.Labels)) {
	d.doors.mu.Lock()
	defer d.doors.mu.Unlock()
	d.doors.take = take
	if streaming, ok := d.provider.(Streaming); ok {
		d.doors.work.Go(func() { d.attendRunning(streaming) })
	}
}

// Relay returns where programs in a box reach the server's doors; see [sandbox.Relaying].
func (d *Driver) Relay(ctx context.Context, ref string) (origin string, err error) {
	var r relays
	err = d.patiently(ctx, func(ctx context.Context) (err error) {
		r, err = d.relayed(ctx, ref)
		return err
	})
	if err != nil || !r.relays {
		return "", err
	}
	return protocol.DoorOrigin, nil
}

// relayed reports whether the driver carries a box's connections.
func (d *Driver) relayed(ctx context.Context, ref string) (r relays, err error) {
	provider, ok := d.provider.(Relayed)
	d.doors.mu.Lock()
	r, known := d.doors.relays[ref]
	none := !ok || d.doors.take == nil
	d.doors.mu.Unlock()
	if known || none {
		return r, nil
	}
	if r.relays, r.of, err = provider.Relays(ctx, ref); err != nil {
		return relays{}, err
	}
	d.doors.mu.Lock()
	defer d.doors.mu.Unlock()
	d.doors.relays[ref] = r
	return r, nil
}

// doorless marks the requests with which a door is held open.
type doorless struct{}

// attendDoor opens the door of a box before a request, if the request is about a command. A command that is about to start waits
// for it, because its first act may be to ask the server. The caller calls done after the request.
func (d *Driver) attendDoor(ctx context.Context, ref string, op protocol.Op) (done func()) {
	done = func() {}
	starts := op == protocol.Launch
	if !starts && op != protocol.Follow || ctx.Value(doorless{}) != nil {
		return done
	}
	r, err := d.relayed(ctx, ref)
	if err != nil || !r.relays { // the request itself finds out what is wrong
		return done
	}
	if !starts {
		d.openDoor(ref, r.of, false)
		return done
	}
	streaming, streams := d.provider.(Streaming)
	if streams { // the door would not survive a stop of the box
		if release, err := streaming.Hold(ctx, ref); err == nil {
			done = release
		}
	}
	limited, cancel := context.WithTimeout(ctx, doorWithin)
	defer cancel()
	for {
		one, had := d.openDoor(ref, r.of, true)
		if one == nil || !waitFor(limited, one.tried) || !had || !streams {
			return done
		}
		// The box may have been stopped just now, and the end of the door's stream may not have arrived.
		if asleep, err := streaming.Asleep(limited, ref); err != nil || !asleep {
			return done
		}
		one.cancel()
		if !waitFor(limited, one.gone) {
			return done
		}
	}
}

// waitFor waits until a channel is closed, and reports whether that was before the end of ctx.
func waitFor(ctx context.Context, closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	case <-ctx.Done():
		return false
	}
}

// openDoor returns the door of a box, and whether there was one. Otherwise it opens one, and with start it starts a stopped box
// for that. It returns nil after Close.
func (d *Driver) openDoor(ref string, of sandbox.Labels, start bool) (one *door, had bool) {
	d.doors.mu.Lock()
	defer d.doors.mu.Unlock()
	one, had = d.doors.open[ref]
	if !had {
		if d.closed.Err() != nil {
			return nil, false
		}
		ctx, cancel := context.WithCancel(context.WithValue(d.closed, doorless{}, true))
		one = &door{ref: ref, of: of, tried: make(chan struct{}), gone: make(chan struct{}), cancel: cancel}
		d.doors.open[ref] = one
		d.doors.work.Go(func() { d.keepDoor(ctx, one, start) })
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.used = time.Now()
	return one, had
}

// keepDoor opens a door and keeps it open until the box or the driver ends.
func (d *Driver) keepDoor(ctx context.Context, one *door, start bool) {
	tried := sync.OnceFunc(func() { close(one.tried) })
	defer one.cancel()
	err := d.serveDoor(ctx, one, start, tried)
	tried()
	if errors.Is(err, errNoDoor) {
		_ = wait(ctx, doorRest) // its error means that the driver is closed
	}
	d.doors.mu.Lock()
	defer d.doors.mu.Unlock()
	delete(d.doors.open, one.ref)
	close(one.gone)
}

// errNoDoor means that a door cannot be opened now.
var errNoDoor = errors.New("the door of the sandbox cannot be opened")

// serveDoor opens a door, reports that, and passes its connections on until it ends.
func (d *Driver) serveDoor(ctx context.Context, one *door, start bool, opened func()) error {
	stream, err := d.streamDoor(ctx, one.ref, start)
	if err != nil {
		return errors.Join(errNoDoor, err)
	}
	end := sync.OnceFunc(func() { stream.Close() })
	defer end()
	defer context.AfterFunc(ctx, end)()
	hello := make([]byte, len(protocol.Connected))
	if _, err := io.ReadFull(stream, hello); err != nil || string(hello) != protocol.Connected {
		return errors.Join(errNoDoor, err)
	}
	d.doors.mu.Lock()
	take := d.doors.take
	d.doors.mu.Unlock()
	link := protocol.NewLink(stream, func(c *protocol.Conn) { go take(&doorConn{c}, one.of) })
	opened()
	beat := time.NewTicker(protocol.DoorSilence / 4)
	defer beat.Stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-beat.C:
				if d.unneeded(one) || link.Alive() != nil {
					end()
					return
				}
			case <-ended:
				return
			}
		}
	}()
	return link.Run()
}

// unneeded reports whether a door only keeps a box awake that nobody uses.
func (d *Driver) unneeded(one *door) bool {
	if _, ok := d.provider.(Streaming); ok {
		return false
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	return time.Since(one.used) > doorUnused
}

// streamDoor runs the keeper of a door.
func (d *Driver) streamDoor(ctx context.Context, ref string, start bool) (io.ReadWriteCloser, error) {
	streaming, ok := d.provider.(Streaming)
	if !ok {
		return d.execDoor(ctx, ref)
	}
	stream, err := streaming.Door(ctx, ref)
	if err == nil || !start || fault.CodeOf(err) != fault.Unavailable {
		return stream, err
	}
	if _, _, err := d.run(ctx, ref, []string{"/bin/sh", "-c", ":"}, nil); err != nil {
		return nil, err
	}
	return streaming.Door(ctx, ref)
}

// execDoor runs the keeper of a door as a command, which every provider can. A command of the box may kill it. Then the door is
// opened again with the next request.
func (d *Driver) execDoor(ctx context.Context, ref string) (io.ReadWriteCloser, error) {
	keeper, err := d.keeper(ctx, ref)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	input, feed := io.Pipe()
	output, print := io.Pipe()
	go func() {
		defer cancel()
		_, err := d.Exec(running, ref, sandbox.Command{Argv: []string{keeper, protocol.Door}, Dir: "/", Stdin: input, Stdout: print})
		print.CloseWithError(err) // a nil error means the end
		input.CloseWithError(io.ErrClosedPipe)
	}()
	return &conn{feed: feed, output: output, end: sync.OnceFunc(func() {
		cancel()
		output.CloseWithError(net.ErrClosed)
		feed.CloseWithError(net.ErrClosed)
	})}, nil
}

// attendRunning opens the doors of running boxes, in which commands of an earlier server may run, until the driver is closed.
func (d *Driver) attendRunning(p Streaming) {
	for {
		refs, err := p.Running(d.closed)
		if err != nil { // the next look may succeed
			refs = nil
		}
		for _, ref := range refs {
			if r, err := d.relayed(d.closed, ref); err == nil && r.relays {
				d.openDoor(ref, r.of, false)
			}
		}
		if wait(d.closed, doorLook) != nil {
			return
		}
	}
}

// closeDoor ends the door of a box that is gone.
func (d *Driver) closeDoor(ref string) {
	d.doors.mu.Lock()
	defer d.doors.mu.Unlock()
	delete(d.doors.relays, ref)
	if one, ok := d.doors.open[ref]; ok {
		one.cancel()
	}
}

// doorConn is a connection from inside a box.
type doorConn struct{ *protocol.Conn }

// LocalAddr returns the address in the box to which a program has connected.
func (c *doorConn) LocalAddr() net.Addr {
	return &net.TCPAddr{IP: net.IP(protocol.DoorAddress[:]), Port: protocol.DoorPort}
}

// RemoteAddr returns the box's loopback. The port of the program is not known.
func (c *doorConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
