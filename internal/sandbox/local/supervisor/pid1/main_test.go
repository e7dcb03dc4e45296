//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// asProcess1 makes this test program process 1 of a namespace.
const asProcess1 = "ARBE_TEST_AS_PROCESS_1"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess1) != "" {
		main()
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for something that must happen.
const patience = 2 * time.Minute

// box is a process 1 in its own process namespace, with the files of its commands. It needs no sandbox.
type box struct {
	t      *testing.T
	dir    string // the directory of its commands
	socket string
	cmd    *exec.Cmd
	ended  func() error // waits for its end
}

// newBox starts a process 1 that has received no Hello.
func newBox(t *testing.T) *box {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a namespace of process ids needs root")
	}
	socket, err := os.MkdirTemp("", "pid1-") // shorter than the test's own, because a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(socket) })
	b := &box{t: t, dir: t.TempDir(), socket: filepath.Join(socket, "s")}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: b.socket}), unix.Listen(fd, 128))
	}
	if err != nil {
		t.Fatal(err)
	}
	listener := os.NewFile(uintptr(fd), "socket")
	defer listener.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	b.cmd = exec.Command("/proc/self/exe")
	b.cmd.Env = []string{asProcess1 + "=1"}
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = listener, null, os.Stderr
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	if err := b.cmd.Start(); errors.Is(err, unix.EPERM) {
		t.Skip("this machine allows no namespace of process ids")
	} else if err != nil {
		t.Fatal(err)
	}
	b.ended = sync.OnceValue(b.cmd.Wait)
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		_ = b.ended()
	})
	return b
}

// dial connects to process 1.
func (b *box) dial() *net.UnixConn {
	b.t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: b.socket})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// greet sends a Hello and checks that process 1 answers. The box outlives the connection for the linger time.
func (b *box) greet(linger time.Duration) *net.UnixConn {
	b.t.Helper()
	c := b.dial()
	b.tell(c, binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Hello}, uint64(linger)))
	b.hear(c, supervisor.Welcome)
	return c
}

// tell sends a message with files.
func (b *box) tell(c *net.UnixConn, message []byte, files ...*os.File) {
	b.t.Helper()
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(message, rights, nil); err != nil {
		b.t.Fatal(err)
	}
}

// hear reads one message of a kind. It returns its value and the file that came with it, if any.
func (b *box) hear(c *net.UnixConn, kind byte) (value uint32, file *os.File) {
	b.t.Helper()
	var text, control [64]byte
	n, controlSize, _, _, err := c.ReadMsgUnix(text[:], control[:])
	if err != nil || n != 6 || text[0] != supervisor.Version || text[1] != kind {
		b.t.Fatalf("process 1 said %q (%v), want a message of kind %q", text[:max(n, 0)], err, kind)
	}
	for _, fd := range receivedFiles(control[:controlSize]) {
		file = os.NewFile(uintptr(fd), "received")
		b.t.Cleanup(func() { file.Close() })
	}
	return binary.LittleEndian.Uint32(text[2:]), file
}

// hangsUp waits until process 1 closes a connection.
func (b *box) hangsUp(c *net.UnixConn) {
	b.t.Helper()
	var text [64]byte
	if n, err := c.Read(text[:]); n > 0 || err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		b.t.Fatalf("process 1 said %q (%v), want the end of the connection", text[:max(n, 0)], err)
	}
}

// running is a command that process 1 has started.
type running struct {
	b       *box
	conn    *net.UnixConn
	control *os.File // releases the stub
	pidfd   *os.File
	stdout  *os.File // the reading end, unless it is recorded
	record  *os.File
}

// program describes a command to start.
type program struct {
	supervisor.Command
	mode  byte
	limit int64 // of the record
	flags byte
}

// shell returns a program that runs a shell line.
func (b *box) shell(line string) program {
	return program{mode: supervisor.Background, Command: supervisor.Command{
		Argv: []string{"sh", "-c", line}, Env: []string{"PATH=/usr/bin:/bin"}, Paths: []string{"/bin/sh"}, Dir: b.dir,
	}}
}

// recorded returns a program whose outputs are recorded together, up to a size limit.
func (b *box) recorded(line string, limit int64, flags byte) program {
	p := b.shell(line)
	p.mode, p.limit, p.flags = supervisor.Recorded, limit, flags|supervisor.Merged
	return p
}

// start makes process 1 start the stub of a program.
func (b *box) start(p program) *running {
	b.t.Helper()
	r := &running{b: b, conn: b.dial()}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	fd, err := unix.MemfdCreate("description", unix.MFD_CLOEXEC)
	if err != nil {
		b.t.Fatal(err)
	}
	description := os.NewFile(uintptr(fd), "description")
	if _, err := description.Write(p.Encode()); err != nil {
		b.t.Fatal(err)
	}
	stdin, keyboard := b.pipe(0)
	stdout, output := b.pipe(unix.O_NONBLOCK)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	r.control = os.NewFile(uintptr(pair[0]), "control")
	b.t.Cleanup(func() { r.control.Close() })
	theirs = append(theirs, description, stdin, output, output, os.NewFile(uintptr(pair[1]), "control"))
	if p.mode == supervisor.Recorded {
		if r.record, err = os.OpenFile(filepath.Join(b.t.TempDir(), "record"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { r.record.Close() })
		entry := make([]byte, supervisor.EntryHeader+24)
		supervisor.PutHeader(entry, supervisor.EntryStart, time.Now().UnixNano())
		if _, err := r.record.Write(entry); err != nil {
			b.t.Fatal(err)
		}
		theirs = append(theirs, r.record, stdout)
		if p.flags&supervisor.Input != 0 {
			theirs = append(theirs, keyboard)
		}
	} else {
		r.stdout = stdout
		b.t.Cleanup(func() { stdout.Close() })
	}
	message := binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Start, p.mode}, uint64(p.limit))
	b.tell(r.conn, append(message, 0, p.flags), theirs...)
	_, r.pidfd = b.hear(r.conn, supervisor.Started)
	if r.record != nil { // keep our record open, because it is sent again
		theirs = append(theirs[:5], theirs[6:]...)
	}
	keyboard.Close()
	return r
}

// pipe makes a pipe. Its reading end has a flag. The command's end always blocks.
func (b *box) pipe(flag int) (reads, writes *os.File) {
	b.t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		b.t.Fatal(err)
	}
	if err := unix.SetNonblock(p[0], flag != 0); err != nil {
		b.t.Fatal(err)
	}
	return os.NewFile(uintptr(p[0]), "reads"), os.NewFile(uintptr(p[1]), "writes")
}

// run starts a program and releases its stub.
func (b *box) run(p program) *running {
	b.t.Helper()
	r := b.start(p)
	if failed := r.release(); failed != nil {
		b.t.Fatalf("it failed with %+v", *failed)
	}
	return r
}

// release lets a stub become its program. It returns the failure, or nil.
func (r *running) release() *supervisor.Failure {
	r.b.t.Helper()
	if _, err := r.control.Write([]byte{0}); err != nil {
		r.b.t.Fatal(err)
	}
	said, err := io.ReadAll(r.control)
	if err != nil {
		r.b.t.Fatal(err)
	}
	if string(said) == string(rune(supervisor.Ready)) {
		return nil
	}
	failed, ok := supervisor.DecodeFailure(bytes.TrimPrefix(said, []byte{supervisor.Ready}))
	if !ok {
		r.b.t.Fatalf("the stub said %q", said)
	}
	return &failed
}

// exits waits for the end of a command and returns its status.
func (r *running) exits() unix.WaitStatus {
	r.b.t.Helper()
	status, _ := r.b.hear(r.conn, supervisor.Exited)
	return unix.WaitStatus(status)
}

// isGone waits until the command's process has ended, whether or not process 1 reports it.
func (r *running) isGone() {
	r.b.t.Helper()
	if !r.ends(patience) {
		r.b.t.Fatal("the command still runs")
	}
}

// ends reports whether the command's process ends within a time.
func (r *running) ends(within time.Duration) bool {
	r.b.t.Helper()
	for deadline := time.Now().Add(within); ; {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.pidfd.Fd()), Events: unix.POLLIN}}, int(left.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR): // a signal of Go's scheduler
		case err != nil:
			r.b.t.Fatal(err)
		case n > 0 || left == 0:
			return n > 0
		}
	}
}

// until waits until something is true.
func (b *box) until(what string, is func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("it does not happen that %s", what)
		}
	}
}

// children returns the states of the children of process 1, by their process ids.
func (b *box) children() map[int]string {
	b.t.Helper()
	found := map[int]string{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The fields follow the name of the program, which may contain anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if fields[1] == strconv.Itoa(b.cmd.Process.Pid) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			found[pid] = fields[0]
		}
	}
	return found
}

func (b *box) exists(name string) bool {
	_, err := os.Stat(filepath.Join(b.dir, name))
	return err == nil
}

func (b *box) touch(name string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// recording is the decoded content of a record.
type recording struct {
	kinds   string // of its entries, without repetitions
	output  string // the recorded output
	dropped uint64 // bytes of output that are in a hole
	exited  bool
	status  unix.WaitStatus
	total   uint64 // bytes of output, according to its last entry
}

// read reads a record from its beginning.
func (r *running) read() (got recording) {
	r.b.t.Helper()
	text, err := os.ReadFile(r.record.Name())
	if err != nil {
		r.b.t.Fatal(err)
	}
	for len(text) > 0 {
		if text[0] == 0 { // a hole ends where a mark begins
			text = bytes.TrimLeft(text, "\x00")
			continue
		}
		kind, _, content, size := supervisor.DecodeEntry(text)
		if size == 0 {
			r.b.t.Fatalf("the record ends with %d bytes that are no entry", len(text))
		}
		switch kind {
		case supervisor.EntryStdout, supervisor.EntryStderr:
			got.output += string(content)
		case supervisor.EntryMark:
			got.dropped = binary.LittleEndian.Uint64(content) - uint64(len(got.output))
		case supervisor.EntryExit:
			got.exited, got.status, got.total = true, unix.WaitStatus(binary.LittleEndian.Uint32(content)), binary.LittleEndian.Uint64(content[4:])
		}
		if !strings.HasSuffix(got.kinds, string(rune(kind))) {
			got.kinds += string(rune(kind))
		}
		text = text[size:]
	}
	return got
}

// position sends process 1 a message with a position in the record.
func (r *running) position(kind byte, at int64) {
	r.b.t.Helper()
	r.b.tell(r.b.dial(), binary.LittleEndian.AppendUint64([]byte{supervisor.Version, kind}, uint64(at)), r.record)
}

func (r *running) size() int64 {
	r.b.t.Helper()
	info, err := r.record.Stat()
	if err != nil {
		r.b.t.Fatal(err)
	}
	return info.Size()
}

func (s recording) String() string {
	return fmt.Sprintf("entries %q, %d bytes of output, %d dropped, exited %v with %d after %d bytes", s.kinds, len(s.output), s.dropped, s.exited, s.status, s.total)
}
