//go:build linux

package local

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// This file is the server's side of package supervisor.

// socketName is the supervisor's socket in a container's directory, which only the server may enter.
const socketName = "supervisor"

func openDoor(dir string) (*door, error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return &door{dir: f}, err
}

func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dir.Close()
	d.dir = nil
}

// use calls do with a short path of the socket, because a path may have only 107 characters.
func (d *door) use(do func(path string) error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.dir == nil {
		return os.ErrClosed
	}
	return do(fmt.Sprintf("/proc/self/fd/%d/%s", d.dir.Fd(), socketName))
}

// listen creates the socket for process 1.
func (d *door) listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), socketName)
	err = d.use(func(path string) error { return unix.Bind(fd, &unix.SockaddrUnix{Name: path}) })
	if err := errors.Join(err, unix.Listen(fd, 1024)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// connect connects to process 1. Until settled is called, the connection ends after a limit, or when ctx ends.
func (d *door) connect(ctx context.Context, limit time.Duration) (c *net.UnixConn, settled func(), err error) {
	err = d.use(func(path string) (err error) {
		c, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: path})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Now().Add(limit)) // fails only for a closed connection, as below
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return c, func() {
		if stop() {
			_ = c.SetDeadline(time.Time{})
		}
	}, nil
}

// greet opens the connection that tells process 1 that the server is running.
func (d *door) greet(ctx context.Context, linger time.Duration) (*net.UnixConn, error) {
	c, settled, err := d.connect(ctx, patience)
	if err != nil {
		return nil, err
	}
	defer settled()
	_, err = c.Write(binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Hello}, uint64(linger)))
	if err == nil {
		_, _, _, err = hear(c, supervisor.Welcome)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("process 1 does not answer: %w", err)
	}
	return c, nil
}

// hear reads one message and checks that it is of one of the given kinds.
func hear(c *net.UnixConn, kinds ...byte) (kind byte, value uint32, files []int, err error) {
	var text [64]byte
	var control [64]byte
	n, controlSize, _, _, err := c.ReadMsgUnix(text[:], control[:])
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return 0, 0, nil, err
	}
	messages, _ := unix.ParseSocketControlMessage(control[:controlSize]) // no message means no file
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		files = append(files, fds...)
	}
	for _, want := range kinds {
		if n == 6 && text[0] == supervisor.Version && text[1] == want {
			return want, binary.LittleEndian.Uint32(text[2:]), files, nil
		}
	}
	// Otherwise they would stay open in the server.
	for _, fd := range files {
		unix.Close(fd)
	}
	return 0, 0, nil, fmt.Errorf("process 1 said %q", text[:n])
}

// executions numbers control groups; series distinguishes them from those of earlier servers, because a box that
// survived its server still has them.
var (
	executions atomic.Uint64
	series     = strings.ToLower(rand.Text()[:8])
)

// startPatience is the time limit for process 1 to create a stub, and for the stub to become the command. Both take less
// than a millisecond on an idle machine, but something in the box may have stopped the stub. stubPatience is when that is
// looked at for the first time, and stubEach is how often from then on.
const (
	startPatience = 10 * time.Second
	stubPatience  = time.Second
	stubEach      = stubPatience / 10
)

// fate determines what happens to a command when its server is gone.
type fate struct {
	background bool       // it continues
	record     *recording // its output is recorded; implies background
}

// supervise starts a command. When it returns without an error, the command runs within its limits.
//
// If ctx ends before the command is released, supervise ends everything that it has started. Later, ctx has no effect,
// because a command that may have run must count as started.
func (c *container) supervise(ctx context.Context, g cgroups, cmd sandbox.Command, as fate, std streams) (_ *supervised, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := &supervised{c: c, cgroups: g, secrets: slices.Collect(maps.Keys(cmd.Secrets)), recorded: as.record != nil, done: make(chan struct{})}
	if as.record != nil {
		s.input, s.launch = as.record.input, as.record.launch
	}
	defer func() {
		if err != nil {
			s.discard()
			if ctx.Err() != nil {
				err = ctx.Err()
			}
		}
	}()
	var groups []*os.File
	if c.cgroup != "" {
		s.group = fmt.Sprintf("%s/exec-%s-%d", c.cgroup, series, executions.Add(1))
		if err := g.add(s.group); err != nil {
			return nil, err
		}
		if groups, err = g.entrances(c.cgroup, s.group); err != nil {
			return nil, err
		}
	}
	err = s.makeStub(ctx, c.stub(cmd), as, std, groups)
	for _, f := range groups {
		f.Close()
	}
	if err != nil {
		return nil, err
	}
	if c.cgroup != "" {
		if err := g.enter(s.pid, s.group); err != nil {
			return nil, &startFailure{noRoom, err} // killed meanwhile
		}
	}
	if as.record != nil {
		p, err := readProcess(s.pid)
		if err != nil {
			return nil, &startFailure{noRoom, err} // killed meanwhile
		}
		s.started = p.started
		l := launched{pid: s.pid, started: p.started}
		if c.cgroup != "" {
			l.ooms = g.oomKills(c.cgroup)
		}
		// Before the command runs, so that a later server finds its process.
		if err := as.record.begun(l); err != nil {
			return nil, err
		}
	}
	// Otherwise the first commands could use up the inotify instances of all boxes.
	if c.limited != nil {
		select {
		case <-c.limited:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.release(); err != nil {
		return nil, err
	}
	s.closePidfd()
	return s, nil
}

// makeStub makes process 1 start a stub, which enters the groups.
func (s *supervised) makeStub(ctx context.Context, stub supervisor.Command, as fate, std streams, groups []*os.File) (err error) {
	var settled func()
	if s.conn, settled, err = s.c.door.connect(ctx, startPatience); err != nil {
		return err
	}
	defer settled()
	description, err := inMemory(stub.Encode())
	if err != nil {
		return err
	}
	defer description.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	// Otherwise the file would have no deadlines, which hearStub needs.
	if err := unix.SetNonblock(pair[0], true); err != nil {
		unix.Close(pair[0])
		return err
	}
	s.control = os.NewFile(uintptr(pair[0]), "control")

	files := []int{int(description.Fd()), int(std[0].Fd()), int(std[1].Fd()), int(std[2].Fd()), int(theirs.Fd())}
	become, flags := byte(supervisor.Foreground), byte(0)
	switch {
	case as.record != nil:
		become, flags = supervisor.Recorded, as.record.flags
		files = append(files, as.record.descriptors()...)
	case as.background:
		become = supervisor.Background
	}
	for _, f := range groups {
		files = append(files, int(f.Fd()))
	}
	message := binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Start, become}, sandbox.RecordSize)
	message = append(message, byte(len(groups)), flags)
	if _, _, err := s.conn.WriteMsgUnix(message, unix.UnixRights(files...), nil); err != nil {
		return err
	}
	kind, value, pidfds, err := hear(s.conn, supervisor.Started, supervisor.Failed)
	if err != nil {
		return err
	}
	if kind == supervisor.Failed {
		return &startFailure{noRoom, syscall.Errno(value)}
	}
	if len(pidfds) != 1 {
		return errors.New("process 1 started a command without saying which")
	}
	s.pidfd = pidfds[0]
	s.pid, err = pidOf(s.pidfd)
	go s.wait()
	return err
}

// pidOf returns the process id of a pidfd on this machine. The caller must keep the process from ending, or accept that
// the id may belong to nobody.
func pidOf(pidfd int) (int, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(info)) {
		if id, ok := strings.CutPrefix(line, "Pid:"); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(id)); err == nil && pid > 0 {
				return pid, nil
			}
		}
	}
	return 0, &startFailure{noRoom, errors.New("the stub was killed")}
}

// wait waits for the report of the command's end.
func (s *supervised) wait() {
	defer close(s.done)
	_, value, _, err := hear(s.conn, supervisor.Exited)
	s.status, s.reported = syscall.WaitStatus(value), err == nil
}

// release lets the stub become the command, and returns when it has.
func (s *supervised) release() error {
	_, err := s.control.Write([]byte{0})
	var said []byte
	if err == nil || errors.Is(err, unix.EPIPE) {
		said, err = hearStub(s.control, s.stopped)
	}
	s.control.Close()
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		err = nil // it was killed before it read
	}
	if err != nil {
		return &startFailure{noRoom, fmt.Errorf("the stub did not become the command: %w", err)}
	}
	ready := len(said) > 0 && said[0] == supervisor.Ready
	if ready {
		said = said[1:]
	}
	if failed, ok := supervisor.DecodeFailure(said); ok {
		return &startFailure{stubReason(failed), fmt.Errorf("step %d: %w", failed.Step, syscall.Errno(failed.Errno))}
	}
	if !ready {
		return &startFailure{noRoom, errors.New("the stub was killed")}
	}
	return nil
}

// stubSocket is the server's end of a stub's control socket.
type stubSocket interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// hearStub returns what a released stub says until it has become the command or has ended. It gives up a stub that is
// stopped. Other stubs get more time, because the machine may be busy: a stub that was given up too early may have become
// the command, which would run twice.
func hearStub(c stubSocket, stopped func() bool) (said []byte, _ error) {
	limit := time.Now().Add(startPatience)
	patience, last := stubPatience, false
	for {
		_ = c.SetReadDeadline(time.Now().Add(patience)) // fails only for a closed socket, as below
		text, err := io.ReadAll(io.LimitReader(c, int64(1+supervisor.FailureSize-len(said))))
		said = append(said, text...)
		if last || !errors.Is(err, os.ErrDeadlineExceeded) {
			return said, err
		}
		// Read once more in any case. If this process did not run for a while, what came in time is not read yet.
		patience, last = stubEach, stopped() || !time.Now().Before(limit)
	}
}

// stopped reports whether a signal has stopped the process.
func (s *supervised) stopped() bool {
	p, err := readProcess(s.pid)
	return err == nil && p.state == "T"
}

// discard ends a command that was only partly started. It kills the stub first, because the stub may not be in its
// control group yet. If the stub had already become the command, the processes that it started are in that group.
func (s *supervised) discard() {
	if s.group != "" && s.pid != 0 {
		_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0) // an error means that it has ended
		select {
		case <-s.done:
		case <-time.After(dying):
		}
	}
	s.closePidfd()
	if s.pid != 0 {
		s.kill()
	}
	if s.control != nil {
		s.control.Close()
	}
	if s.conn != nil {
		s.conn.Close()
	}
	s.forget()
}

func (s *supervised) closePidfd() {
	if s.pidfd != 0 {
		unix.Close(s.pidfd)
		s.pidfd = 0
	}
}

func (s *supervised) ended() <-chan struct{} { return s.done }

// exitCode returns the command's exit code in a shell's form. Without a report, the box has ended, and the command was
// therefore killed.
func (s *supervised) exitCode() int {
	if !s.reported {
		return 128 + int(unix.SIGKILL)
	}
	return exitCodeOf(s.status)
}

// killedByOthers reports whether the command was killed, but not by the server.
func (s *supervised) killedByOthers() bool {
	return s.reported && s.status.Signaled() && s.status.Signal() == unix.SIGKILL && !s.killedFor.Load()
}

// kill ends everything the command started.
func (s *supervised) kill() {
	s.killedFor.Store(true)
	if s.group != "" {
		_ = s.cgroups.kill(s.group, killLimit) // a process that survives is stuck in the kernel
		return
	}
	awaitDeath(killTree(s.pid, processes, signalProcess))
}

// forget removes the command's control group. If background processes are still in it, it is removed when they have
// ended, or with the box.
func (s *supervised) forget() {
	if s.group != "" {
		_ = s.cgroups.drop(s.group)
	}
}

func (s *supervised) close() { s.conn.Close() }
