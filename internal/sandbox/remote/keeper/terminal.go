//go:build linux

package main

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// A command with a terminal has one side of a pseudo-terminal. The process that stays with the command has the other side: what
// it reads there is the command's output, and what it writes is the command's input. So the terminal lives as long as the
// command, whatever happens to a server.

// mostWriters limits the writers whose positions are remembered. A writer is only forgotten when this many others have written
// after it.
const mostWriters = 64

// writerOf returns a writer. Callers hold k.inputMu.
func (k *kept) writerOf(id string) *writer {
	for i, w := range k.writers {
		if w.id == id {
			k.writers = append(append(k.writers[:i:i], k.writers[i+1:]...), w) // the last one has written last
			return w
		}
	}
	w := &writer{id: id}
	if k.writers = append(k.writers, w); len(k.writers) > mostWriters {
		k.writers = k.writers[1:]
	}
	return w
}

// openTerminal opens the terminal of the command and returns its side of it.
func (k *kept) openTerminal(size protocol.Size) (inside *os.File, err error) {
	// If it is non-blocking, reading and writing can have deadlines.
	fd, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	side := os.NewFile(uintptr(fd), "/dev/ptmx")
	input, err := duplicate(fd)
	if err != nil {
		return nil, err
	}
	var unlocked, number int32
	if err := errors.Join(ioctl(fd, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked)), ioctl(fd, syscall.TIOCGPTN, unsafe.Pointer(&number)), setSize(fd, size)); err != nil {
		return nil, err
	}
	if inside, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		return nil, err
	}
	k.terminal, k.input = side, input
	k.outputs = []*output{{pipe: side, kind: 'o', to: k.record, recorded: make(chan struct{})}}
	return inside, eraseCharacters(int(inside.Fd()))
}

// duplicate returns a file with another descriptor of a terminal.
func duplicate(fd int) (*os.File, error) {
	other, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 3)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(other, "/dev/ptmx"), nil
}

// eraseCharacters makes a terminal erase whole characters of UTF-8 instead of bytes.
func eraseCharacters(fd int) error {
	var mode syscall.Termios
	if err := ioctl(fd, syscall.TCGETS, unsafe.Pointer(&mode)); err != nil {
		return err
	}
	mode.Iflag |= syscall.IUTF8
	return ioctl(fd, syscall.TCSETS, unsafe.Pointer(&mode))
}

// setSize changes the size of a terminal. The kernel signals the programs in it.
func setSize(fd int, size protocol.Size) error {
	window := struct{ rows, columns, width, height uint16 }{rows: size.Rows, columns: size.Columns}
	return ioctl(fd, syscall.TIOCSWINSZ, unsafe.Pointer(&window))
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// resize changes the size of the command's terminal.
func (k *kept) resize(size *protocol.Size) protocol.Reply {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.terminal == nil || k.hasEnded || size == nil {
		return protocol.Reply{Reason: protocol.NoTerminal}
	}
	raw, err := k.terminal.SyscallConn()
	if err == nil {
		failed := raw.Control(func(fd uintptr) { err = setSize(int(fd), *size) })
		err = errors.Join(failed, err)
	}
	if err != nil { // its programs have closed it
		return protocol.Reply{Reason: protocol.NoTerminal, Detail: err.Error()}
	}
	return protocol.Reply{Terminal: true}
}

// signal sends signals to the command's process group, unless it has ended.
func (k *kept) signal(signals ...syscall.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range signals {
		if !k.hasEnded {
			_ = syscall.Kill(-k.pid, s) // the first process group of its session; an error means that it has ended
		}
	}
}
