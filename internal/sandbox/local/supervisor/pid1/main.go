//go:build linux

// Pid1 is process 1 of a box. It starts the box's commands, reaps them, and ends with the server or a configurable time
// after it. Package supervisor defines its protocol.
//
// It trusts the server and nothing in the box. Commands can neither reach its socket nor read its memory, and it
// ignores signals.
//
// It must be small, because every box runs it: it makes system calls directly, and uses neither os, fmt nor net.
package main

import (
	"encoding/binary"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

func main() {
	runtime.LockOSThread() // see prepareDomains
	s := &server{conns: map[int32]*conn{}, running: map[int]*conn{}, pipes: map[int32]*pipe{}, children: make(chan struct{}, 1)}
	if err := s.prepare(); err != nil {
		exit(1)
	}
	go s.reap()
	s.serve()
}

// startLimit is how long the first Hello may take. Without it, a box whose server was killed right after its start
// would stay forever.
const startLimit = time.Minute

func (s *server) prepare() error {
	// Otherwise commands of the same user could read its memory, its environment and its files through /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	ignoreSignals()
	unix.Umask(0o022)
	// Move the socket away from 0, so that every file received later has a number above 2: a stub replaces the first
	// three.
	var err error
	if s.listener, err = unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3); err != nil {
		return err
	}
	if err := unix.Dup3(1, 0, 0); err != nil { // the null device, so that no other file gets this number
		return err
	}
	if err := unix.SetNonblock(s.listener, true); err != nil {
		return err
	}
	s.prepareDomains()
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	s.alone, s.linger = time.Now(), startLimit
	return s.watch(s.listener)
}

func (s *server) watch(fd int) error {
	return unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// serve handles the server's connections until the box must end.
func (s *server) serve() {
	events := make([]unix.EpollEvent, 16)
	for {
		wait := -1
		if !s.alone.IsZero() {
			left := s.linger - time.Since(s.alone)
			if left <= 0 {
				exit(0)
			}
			wait = int(left/time.Millisecond) + 1 // rounded up, because 0 would not wait
		}
		n, err := unix.EpollWait(s.epoll, events, wait)
		if err != nil && err != unix.EINTR {
			exit(1)
		}
		for _, e := range events[:max(n, 0)] {
			if int(e.Fd) == s.listener {
				s.accept()
			} else if c := s.conns[e.Fd]; c != nil {
				s.receive(c)
			} else {
				s.mu.Lock()
				s.write(s.pipes[e.Fd])
				s.mu.Unlock()
			}
		}
	}
}

func (s *server) accept() {
	for {
		fd, _, err := unix.Accept4(s.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err != nil {
			return
		}
		if s.watch(fd) != nil {
			unix.Close(fd)
			continue
		}
		s.conns[int32(fd)] = &conn{fd: fd}
	}
}

// receive reads one message of a connection.
func (s *server) receive(c *conn) {
	var text [64]byte
	var control [256]byte
	n, controlSize, _, _, err := unix.Recvmsg(c.fd, text[:], control[:], unix.MSG_CMSG_CLOEXEC)
	if err == unix.EAGAIN || err == unix.EINTR {
		return
	}
	files := receivedFiles(control[:max(controlSize, 0)])
	defer func() {
		for _, fd := range files {
			unix.Close(fd)
		}
	}()
	if err != nil || n < 2 || text[0] != supervisor.Version {
		s.hangUp(c)
		return
	}
	groups, flags := 0, byte(0)
	if text[1] == supervisor.Start && n == 13 {
		groups, flags = min(int(text[11]), supervisor.MaxGroups), text[12]
	}
	recorded := supervisor.Files + supervisor.RecordFiles(flags)
	switch {
	case text[1] == supervisor.Hello && n == 10:
		c.hello = true
		s.alone, s.linger = time.Time{}, time.Duration(binary.LittleEndian.Uint64(text[2:]))
		c.send(supervisor.Welcome, 0, -1)
	case text[1] == supervisor.Start && n == 13 && c.pid == 0 && text[2] == supervisor.Recorded && len(files) == recorded+groups:
		c.background = true
		c.record = s.keep(files[supervisor.Files:recorded], int64(binary.LittleEndian.Uint64(text[3:])), flags)
		s.start(c, files, files[recorded:])
		s.dropIfNotStarted(c)
	case text[1] == supervisor.Start && n == 13 && c.pid == 0 && text[2] != supervisor.Recorded && len(files) == supervisor.Files+groups:
		c.background = text[2] == supervisor.Background
		s.start(c, files, files[supervisor.Files:])
	case text[1] == supervisor.Release && n == 10 && len(files) == 1:
		s.release(files[0], int64(binary.LittleEndian.Uint64(text[2:])))
	case text[1] == supervisor.Extend && n == 10 && len(files) == 1:
		s.extend(files[0], int64(binary.LittleEndian.Uint64(text[2:])))
	case text[1] == supervisor.EndInput && n == 2 && len(files) == 1:
		s.endInput(files[0])
	case text[1] == supervisor.Reopen && n == 2 && len(files) == 1:
		s.reopen(c, files[0])
	default:
		s.hangUp(c)
	}
}

// receivedFiles returns the files that came with a message.
func receivedFiles(control []byte) (files []int) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err == nil {
			files = append(files, fds...)
		}
	}
	return files
}

// hangUp closes a connection and ends its foreground command.
func (s *server) hangUp(c *conn) {
	s.mu.Lock()
	pid := c.pid
	c.closed = true
	s.mu.Unlock()
	if pid != 0 && !c.background {
		_ = unix.Kill(-pid, unix.SIGKILL) // the first process group of its session
		_ = unix.Kill(pid, unix.SIGKILL)  // because the stub may not have begun its session
	}
	delete(s.conns, int32(c.fd))
	unix.Close(c.fd)
	if !c.hello {
		return
	}
	for _, other := range s.conns {
		if other.hello {
			return
		}
	}
	s.alone = time.Now()
}

// start starts a command in control groups, and answers.
func (s *server) start(c *conn, files, groups []int) {
	text, ok := s.description(files[0])
	defer clear(text) // it may hold secrets
	var d supervisor.Decoded
	if ok {
		d, ok = supervisor.Decode(text)
	}
	if !ok {
		s.hangUp(c)
		return
	}
	ruleset := -1
	if d.Own {
		ruleset = s.ruleset
	}
	st := newStub(d, stubFiles{stdin: files[1], stdout: files[2], stderr: files[3], control: files[4], ruleset: ruleset, groups: groups})
	// The lock is held from the fork on, so that a command that ends at once is not reaped before it is in s.running.
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, errno := s.fork(st, d.Own)
	runtime.KeepAlive(text)
	if errno != 0 {
		c.send(supervisor.Failed, uint32(errno), -1)
		return
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		c.send(supervisor.Failed, uint32(err.(syscall.Errno)), -1)
	} else {
		c.pid, s.running[pid] = pid, c
		c.send(supervisor.Started, 0, pidfd)
		unix.Close(pidfd)
	}
	select {
	case s.children <- struct{}{}:
	default:
	}
}

// description reads a command's description. It reuses the buffer unless that is too small or much too large, so that
// one large description does not take up memory for the life of the box.
func (s *server) description(fd int) ([]byte, bool) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Size > supervisor.MaxDescription {
		return nil, false
	}
	if int64(len(s.buffer)) < st.Size || int64(len(s.buffer)) > st.Size+(1<<20) {
		s.buffer = make([]byte, st.Size+4096)
	}
	text := s.buffer[:st.Size]
	for read := 0; read < len(text); {
		n, err := unix.Pread(fd, text[read:], int64(read))
		if n <= 0 || err != nil {
			return nil, false
		}
		read += n
	}
	return text, true
}

// reap waits for every process of the box that has no other parent, and reports those that are commands.
func (s *server) reap() {
	for {
		var status unix.WaitStatus
		var info unix.Siginfo
		// Wait without reaping, and reap under the lock, because the process keeps its id until then. Otherwise a
		// new command could get the id before the end of this one is recorded.
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.ECHILD {
			<-s.children
			continue
		}
		if err != nil {
			continue
		}
		s.mu.Lock()
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		sync := -1
		if c := s.running[pid]; err == nil && pid > 0 && c != nil {
			sync = s.ended(c, status)
		}
		s.mu.Unlock()
		if sync >= 0 {
			_ = unix.Fsync(sync) // without the lock, because it may take long
			unix.Close(sync)
		}
	}
}

// ended reports that a command has ended. It returns a file to sync; negative for none. Callers hold s.mu.
func (s *server) ended(c *conn, status unix.WaitStatus) (sync int) {
	delete(s.running, c.pid)
	s.finish(c.record, uint32(status))
	sync = -1
	if c.pid = 0; !c.closed {
		c.send(supervisor.Exited, uint32(status), -1)
	} else { // sync it, because nobody may read it for a long time, and the machine may lose power
		sync = c.record.duplicate()
	}
	c.record.close()
	return sync
}
