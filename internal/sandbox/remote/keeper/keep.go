//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// Its inherited files: the locked lock file of the record, and a pipe for the reply.
const lockDescriptor, replyDescriptor = 3, 4

// Numbers of prctl.
const prSetDumpable, prSetChildSubreaper = 4, 36

// writer is a sender of input. Each has positions of its own, so that several may write to one terminal.
type writer struct {
	id    string
	taken int64 // bytes of its input that were taken
}

// kept is the command that this process stays with.
type kept struct {
	record *recorder
	pid    int
	begun  begun

	outputs []*output
	ended   chan struct{} // closed when the command has ended and its end is recorded
	idle    chan struct{} // closed when no process that it started is running

	answering sync.RWMutex // held for reading while a request is answered

	mu       sync.Mutex // guards what follows
	hasEnded bool
	asked    time.Time // when the first request to end it came

	inputMu sync.Mutex // guards what follows
	input   *os.File   // nil if there is none, or it has ended
	writers []*writer  // of the input
	// terminal is the terminal of the command, nil if it has none. It does not change.
	terminal *os.File
}

// keep stays with a command until none of its processes is left.
func keep() {
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(20) // a box may have many of these
	syscall.CloseOnExec(lockDescriptor)
	syscall.CloseOnExec(replyDescriptor)
	syscall.Umask(0o022)
	// Other commands must not read this process, because it has the command's environment. It adopts orphans, so that nothing
	// the command starts can hide. It must not dump a core into the working tree.
	for option, value := range map[uintptr]uintptr{prSetDumpable: 0, prSetChildSubreaper: 1} {
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, option, value, 0)
	}
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})

	replies := os.NewFile(replyDescriptor, "reply")
	say := func(reply protocol.Reply) {
		_ = json.NewEncoder(replies).Encode(reply) // if the caller was killed, nobody reads it
		replies.Close()
	}
	text, err := io.ReadAll(os.Stdin)
	var request protocol.Request
	if err == nil {
		request, err = protocol.DecodeRequest(text)
	}
	if err != nil {
		say(protocol.Reply{Reason: protocol.BadRequest, Detail: err.Error()})
		return
	}
	k, reply := begin(request)
	clear(text)
	if reply.Reason != "" {
		_ = os.RemoveAll(recordOf(request.ID)) // nothing has run
	}
	say(reply)
	if k == nil {
		return
	}
	k.reap()
}

// begin starts the command. k is nil if it could not be started.
func begin(r protocol.Request) (k *kept, reply protocol.Reply) {
	dir := r.Dir
	if !filepath.IsAbs(dir) {
		dir = "/workspace/" + dir
	}
	if err := os.Chdir(dir); err != nil {
		return nil, protocol.Reply{Reason: protocol.NoDirectory, Detail: err.Error()}
	}
	record := recordOf(r.ID)
	k = &kept{
		record: newRecorder(record, r.Complete), begun: begun{time.Now().UnixNano(), oomKills()},
		ended: make(chan struct{}), idle: make(chan struct{}),
	}
	std, reply := k.streams(r)
	if reply.Reason != "" {
		return nil, reply
	}
	socket, err := listen(filepath.Join(record, controlFile))
	if madeRoom(err) {
		socket, err = listen(filepath.Join(record, controlFile))
	}
	if err != nil {
		return nil, failed(err)
	}
	if err := writeJSON(filepath.Join(record, begunFile), k.begun); err != nil {
		return nil, failed(err)
	}
	env := environment(r.Env)
	files := make([]uintptr, len(std))
	for i, f := range std {
		files[i] = f.Fd()
	}
	k.pid, err = start(lookup(r.Argv[0], env), r.Argv, &syscall.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: k.terminal != nil}})
	for _, f := range std {
		f.Close() // a terminal's side is here three times
	}
	if err != nil {
		return nil, k.notStarted(r, err)
	}
	for _, o := range k.outputs {
		go o.pump()
	}
	go k.serve(socket)
	return k, protocol.Reply{}
}

// notStarted records, as a shell reports it, that the command could not be started, or returns the reason.
func (k *kept) notStarted(r protocol.Request, err error) protocol.Reply {
	code, words, ok := shellCode(err)
	switch {
	case !ok && errors.Is(err, syscall.E2BIG):
		return protocol.Reply{Reason: protocol.TooLong, Detail: err.Error()}
	case !ok:
		return protocol.Reply{Reason: protocol.NoRoom, Detail: err.Error()}
	}
	kind := byte('e')
	if r.Merged {
		kind = 'o'
	}
	k.record.write(kind, fmt.Appendf(nil, "%s: %s\n", r.Argv[0], words))
	if err := k.record.end(code, false); err != nil {
		return failed(err)
	}
	return protocol.Reply{}
}

// streams returns the command's ends of its input and outputs.
func (k *kept) streams(r protocol.Request) (std [3]*os.File, reply protocol.Reply) {
	if r.Terminal == nil {
		std, err := k.pipes(r)
		if err != nil {
			return std, failed(err)
		}
		return std, reply
	}
	inside, err := k.openTerminal(*r.Terminal)
	if err != nil {
		return std, protocol.Reply{Reason: protocol.NoTerminal, Detail: err.Error()}
	}
	return [3]*os.File{inside, inside, inside}, reply
}

// pipes creates the pipes of the command and returns its ends of them.
func (k *kept) pipes(r protocol.Request) (std [3]*os.File, err error) {
	if r.Input {
		std[0], k.input, err = os.Pipe()
	} else {
		std[0], err = os.Open(os.DevNull)
	}
	if err != nil {
		return std, err
	}
	for i, kind := range []byte{'o', 'e'} {
		if r.Merged && i == 1 {
			fd, err := syscall.Dup(int(std[1].Fd()))
			if err != nil {
				return std, err
			}
			syscall.CloseOnExec(fd)
			std[2] = os.NewFile(uintptr(fd), "|1")
			break
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			return std, err
		}
		std[i+1] = writer
		k.outputs = append(k.outputs, &output{pipe: reader, kind: kind, to: k.record, recorded: make(chan struct{})})
	}
	return std, nil
}

// reap waits for the command and all of its descendants. It returns when none is left.
func (k *kept) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // there are no children
			close(k.idle)
			<-k.ended
			k.awaitAnswers()
			return
		case pid == k.pid && (status.Exited() || status.Signaled()):
			go k.finish(status)
		}
	}
}

// grace is how long a command's output stays open after its end while a process that it left behind holds it.
const grace = 100 * time.Millisecond

// finish records the end of the command.
func (k *kept) finish(status syscall.WaitStatus) {
	k.mu.Lock()
	k.hasEnded = true
	k.mu.Unlock()
	k.inputMu.Lock()
	k.closeInput()
	k.inputMu.Unlock()
	k.record.finish()
	for _, o := range k.outputs {
		_ = o.pipe.SetReadDeadline(time.Now().Add(grace))
	}
	for _, o := range k.outputs {
		<-o.recorded
	}
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	_ = k.record.end(code, oomKills() > k.begun.OOMKills) // fails if it was forgotten, or on a full disk: then its end is unknown
	close(k.ended)
}

func (k *kept) closeInput() {
	if k.input != nil {
		k.input.Close()
		k.input = nil
	}
}

// output is one output of the command.
type output struct {
	pipe     *os.File
	kind     byte
	to       *recorder
	recorded chan struct{} // closed when everything that the command wrote is recorded
	once     sync.Once
}

// pump records the output until its end. Once the command has ended, pump records what is in the pipe at that moment and
// drops later output of background processes, so that they neither block nor die.
func (o *output) pump() {
	defer o.pipe.Close()
	defer o.done()
	buffer := make([]byte, 64<<10)
	for {
		n, err := o.pipe.Read(buffer)
		if n > 0 {
			o.to.write(o.kind, buffer[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return
		}
	}
	_ = o.pipe.SetReadDeadline(time.Time{})
	for left := buffered(o.pipe); left > 0; {
		n, err := o.pipe.Read(buffer[:min(left, len(buffer))])
		if n > 0 {
			o.to.write(o.kind, buffer[:n])
		}
		if left -= n; err != nil {
			return
		}
	}
	o.done()
	_, _ = io.Copy(io.Discard, o.pipe)
}

func (o *output) done() { o.once.Do(func() { close(o.recorded) }) }

// buffered returns the number of bytes in a pipe.
func buffered(pipe *os.File) (n int) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		var size int32
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCINQ, uintptr(unsafe.Pointer(&size))); errno == 0 {
			n = int(size)
		}
	})
	return n
}

// serve answers requests about the command.
func (k *kept) serve(socket int) {
	for {
		fd, _, err := syscall.Accept4(socket, syscall.SOCK_CLOEXEC)
		if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.ECONNABORTED) {
			continue
		}
		if err != nil {
			return
		}
		go func() {
			conn := os.NewFile(uintptr(fd), controlFile)
			defer conn.Close()
			var r controlled
			if json.NewDecoder(conn).Decode(&r) != nil {
				return
			}
			k.answering.RLock()
			defer k.answering.RUnlock()
			_ = json.NewEncoder(conn).Encode(k.answer(r)) // if the caller was killed, nobody reads it
		}()
	}
}

// awaitAnswers waits until requests in progress are answered. A request may have ended the command, such as the last line of its
// input.
func (k *kept) awaitAnswers() {
	answered := make(chan struct{})
	go func() {
		k.answering.Lock()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(time.Second): // a caller does not read
	}
}

// answer answers one request about the command.
func (k *kept) answer(r controlled) protocol.Reply {
	switch r.Op {
	case protocol.Release:
		k.record.release(r.Position)
	case protocol.Extend:
		k.record.extend(r.Position)
	case protocol.Interrupt:
		k.signal(syscall.SIGINT)
	case protocol.HangUp:
		k.signal(syscall.SIGHUP, syscall.SIGCONT) // a stopped process does not handle SIGHUP
	case protocol.Resize:
		return k.resize(r.Terminal)
	case protocol.Input:
		return k.take(r)
	case protocol.End:
		return k.end(r)
	}
	return protocol.Reply{}
}

// take writes input to the command. If the request is a repetition, it skips what it wrote before.
func (k *kept) take(r controlled) protocol.Reply {
	k.inputMu.Lock()
	defer k.inputMu.Unlock()
	if r.Writer != "" && k.terminal == nil {
		return protocol.Reply{Reason: protocol.NoInput}
	}
	w := k.writerOf(r.Writer)
	end := r.Position + int64(len(r.Payload))
	if r.Position > w.taken || k.input == nil && (w.taken < end || !r.Last) {
		return protocol.Reply{Reason: protocol.NoInput}
	}
	if rest := r.Payload[min(w.taken-r.Position, int64(len(r.Payload))):]; len(rest) > 0 {
		_ = k.input.SetWriteDeadline(time.Now().Add(r.Wait))
		n, err := k.input.Write(rest)
		w.taken += int64(n)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return protocol.Reply{Reason: protocol.NoInput, Detail: err.Error(), Accepted: w.taken}
		}
	}
	if r.Last && w.taken >= end {
		k.closeInput()
	}
	return protocol.Reply{Accepted: w.taken, Terminal: k.terminal != nil}
}

// end ends the command and all of its processes. The reply is Pending if that takes longer than the request waits.
func (k *kept) end(r controlled) protocol.Reply {
	deadline := time.Now().Add(r.Wait)
	k.mu.Lock()
	running, first := !k.hasEnded, k.asked.IsZero()
	if first {
		k.asked = time.Now()
	}
	until := k.asked.Add(r.Patience)
	k.mu.Unlock()
	if running && r.Patience > 0 {
		if first {
			// SIGCONT as well, because a stopped process does not handle SIGTERM.
			for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
				signalAll(descendants(), signal)
			}
		}
		limit := until
		if deadline.Before(limit) {
			limit = deadline
		}
		select {
		case <-k.ended:
		case <-time.After(time.Until(limit)):
			if until.After(limit) {
				return protocol.Reply{Pending: true}
			}
		}
	}
	for time.Now().Before(deadline) {
		signalAll(descendants(), syscall.SIGKILL)
		select {
		case <-k.idle:
			<-k.ended
			return protocol.Reply{}
		case <-time.After(2 * time.Millisecond):
		}
	}
	return protocol.Reply{Pending: true}
}
