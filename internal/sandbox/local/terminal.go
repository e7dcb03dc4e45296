//go:build linux

package local

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// A terminal is a pseudo-terminal of the box's own /dev/pts. The command has one side of it. The other side is both the
// output that process 1 records and the input that the server writes. Process 1 holds the other side while the command
// runs, and passes it to a later server.

var _ sandbox.Terminals = (*Driver)(nil)

// terminal is a new terminal.
type terminal struct {
	inside      streams  // the command's side
	side, input *os.File // the other side, twice; non-blocking
}

func (t terminal) close() {
	t.inside.Close()
	streams{t.side, t.input}.Close()
}

// newTerminal creates a terminal in the box. It acts as the box's user, who then owns the terminal.
func (c *container) newTerminal(like sandbox.Terminal) (t terminal, err error) {
	err = c.asAgent(func() (err error) {
		t.side, err = c.open(c.root, "dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err == nil {
			t.inside[0], err = peerOf(t.side)
		}
		return err
	})
	if err == nil {
		err = errors.Join(resize(t.side, like.TerminalSize), expectUTF8(t.inside[0]))
	}
	for i := 1; i < len(t.inside) && err == nil; i++ {
		t.inside[i], err = duplicate(t.inside[0])
	}
	if err == nil {
		t.input, err = again(t.side)
	}
	if err != nil {
		t.close()
	}
	return t, err
}

// peerOf unlocks a new terminal and opens the other side. It uses no path, because the box controls where paths lead.
func peerOf(side *os.File) (inside *os.File, err error) {
	return inside, control(side, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			return errno
		}
		inside = os.NewFile(peer, "terminal")
		return nil
	})
}

// expectUTF8 makes a terminal erase whole characters.
func expectUTF8(inside *os.File) error {
	return control(inside, func(fd int) error {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		mode.Iflag |= unix.IUTF8
		return unix.IoctlSetTermios(fd, unix.TCSETS, mode)
	})
}

// control calls do with the descriptor of a file, which stays non-blocking.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(failed, err)
}

// again duplicates a file, which stays non-blocking.
func again(f *os.File) (other *os.File, err error) {
	return other, control(f, func(fd int) error {
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			other = os.NewFile(uintptr(copied), f.Name())
		}
		return err
	})
}

func isTerminal(f *os.File) bool {
	return control(f, func(fd int) error {
		_, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	}) == nil
}

func resize(side *os.File, size sandbox.TerminalSize) error {
	return control(side, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
	})
}

// terminalOf opens the terminal of a launched command that is running. It returns nil if the command has none. The
// caller must close it.
func (b *box) terminalOf(ctx context.Context, record *os.File, l launched) *os.File {
	if s := b.launchedCommand(l); s != nil && s.input != nil {
		if !isTerminal(s.input) {
			return nil
		}
		side, _ := again(s.input) // fails if the command has just ended
		return side
	}
	b.mu.RLock()
	running := b.running
	b.mu.RUnlock()
	if running == nil || running.door == nil {
		return nil
	}
	conn, settled, err := running.door.connect(ctx, patience)
	if err != nil {
		return nil
	}
	defer conn.Close()
	defer settled()
	if _, _, err := conn.WriteMsgUnix([]byte{supervisor.Version, supervisor.Reopen}, unix.UnixRights(int(record.Fd())), nil); err != nil {
		return nil
	}
	_, _, files, err := hear(conn, supervisor.Reopened)
	if err != nil || len(files) != 1 {
		return nil
	}
	side := os.NewFile(uintptr(files[0]), "terminal")
	if !isTerminal(side) {
		side.Close()
		return nil
	}
	return side
}

// runningLaunch opens the record of a launched command, or returns nil if it does not run.
func (d *Driver) runningLaunch(ref, id string) (b *box, record *os.File, l launched, err error) {
	b, name, err := d.findLaunch(ref, id)
	if err != nil {
		return nil, nil, l, err
	}
	record, err = os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return b, nil, l, nil
	}
	if err != nil {
		return nil, nil, l, err
	}
	if began, ok := readLaunched(record); ok && began.runs() {
		return b, record, began, nil
	}
	record.Close()
	return b, nil, l, nil
}

// Resize changes the size of the terminal of a launched command.
func (d *Driver) Resize(ctx context.Context, ref, id string, size sandbox.TerminalSize) error {
	b, record, l, err := d.runningLaunch(ref, id)
	if err != nil {
		return readable(ctx, err, "the terminal could not be resized")
	}
	gone := fault.New(fault.Precondition, "the command has no terminal, or has ended", "run it again")
	if record == nil {
		return gone
	}
	defer record.Close()
	side := b.terminalOf(ctx, record, l)
	if side == nil {
		return gone
	}
	defer side.Close()
	if err := resize(side, size); err != nil {
		return readable(ctx, err, "the terminal could not be resized")
	}
	return nil
}

// HangUp sends SIGHUP to the process group of a launched command.
func (d *Driver) HangUp(ctx context.Context, ref, id string) error {
	_, record, l, err := d.runningLaunch(ref, id)
	if err != nil {
		return readable(ctx, err, "the command could not be told that its terminal is gone")
	}
	if record == nil {
		return nil
	}
	defer record.Close()
	// Also continue it, because a stopped process handles no signal. An error means that it has ended.
	_ = unix.Kill(-l.pid, unix.SIGHUP)
	_ = unix.Kill(-l.pid, unix.SIGCONT)
	return nil
}
