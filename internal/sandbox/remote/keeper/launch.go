//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// beginWithin is how long a launch waits for another launch of the same command.
const beginWithin = 10 * time.Second

// launch starts a command, unless it was launched before and not forgotten.
func launch(r protocol.Request) protocol.Reply {
	if r.ID == "" || len(r.Argv) == 0 {
		return protocol.Reply{Reason: protocol.BadRequest}
	}
	if r.Secret && !isLocked(holdingOf(r.ID)) {
		if _, err := os.Stat(recordOf(r.ID)); err != nil { // it was not launched before
			return protocol.Reply{Reason: protocol.SecretsLost}
		}
	}
	keepReserve()
	for deadline := time.Now().Add(beginWithin); ; time.Sleep(5 * time.Millisecond) {
		lock, err := claim(r.ID)
		if madeRoom(err) {
			lock, err = claim(r.ID)
		}
		if err == nil {
			defer lock.Close()
			return spawn(r, lock)
		}
		if !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
			return failed(err)
		}
		dir := recordOf(r.ID)
		_, err = os.Stat(filepath.Join(dir, begunFile))
		switch {
		case err == nil:
			return protocol.Reply{}
		case !locked(dir):
			// The process that should have begun it was killed first, so the command never ran.
			if _, err := os.Stat(filepath.Join(dir, begunFile)); err != nil {
				forget(r.ID)
			}
		case time.Now().After(deadline):
			return protocol.Reply{Reason: protocol.NoRoom, Detail: "another launch of it is taking too long"}
		}
	}
}

// claim creates the record of a command together with its lock. Of several concurrent calls, one succeeds.
func claim(id string) (lock *os.File, err error) {
	dir := filepath.Join(protocol.Records, fmt.Sprintf(".new-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err == nil {
			err = os.Rename(dir, recordOf(id))
		}
		if err != nil {
			lock.Close()
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
	}
	return lock, err
}

// spawn starts the process that stays with a command and returns its reply.
func spawn(r protocol.Request, lock *os.File) protocol.Reply {
	text, err := protocol.EncodeRequest(r)
	if err != nil {
		return failed(err)
	}
	reply, err := func() (reply protocol.Reply, err error) {
		program, err := os.Executable()
		if err != nil {
			return reply, err
		}
		request, requests, err := os.Pipe()
		if err != nil {
			return reply, err
		}
		defer requests.Close()
		defer request.Close()
		replies, answers, err := os.Pipe()
		if err != nil {
			return reply, err
		}
		defer replies.Close()
		defer answers.Close()
		cmd := exec.Command(program, keepArgument)
		cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
		cmd.Stdin, cmd.ExtraFiles = request, []*os.File{lock, answers}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return reply, err
		}
		request.Close()
		answers.Close()
		_, err = requests.Write(text)
		requests.Close()
		if err != nil {
			return reply, err
		}
		return reply, json.NewDecoder(replies).Decode(&reply)
	}()
	if err != nil { // it was killed or could not be started: unless it had begun, nothing ran
		if _, missing := os.Stat(filepath.Join(recordOf(r.ID), begunFile)); missing == nil {
			return protocol.Reply{}
		}
		forget(r.ID)
		return protocol.Reply{Reason: protocol.NoRoom, Detail: err.Error()}
	}
	return reply
}

// controlled is a request to the process that stays with a command.
type controlled struct {
	protocol.Request
	Payload []byte `json:"payload,omitempty"`
}

// ask sends a request to the process that stays with a command. If there is none, the command has ended and there is nothing
// to do, except to report that nothing reads its input.
func ask(r protocol.Request) protocol.Reply {
	reply := protocol.Reply{}
	conn, err := dial(filepath.Join(recordOf(r.ID), controlFile))
	if err == nil {
		defer conn.Close()
		if err = json.NewEncoder(conn).Encode(controlled{r, r.Data}); err == nil {
			err = json.NewDecoder(conn).Decode(&reply)
		}
	}
	if err != nil && r.Op == protocol.Input {
		return protocol.Reply{Reason: protocol.NoInput, Detail: err.Error()}
	}
	return reply
}

// askTerminal sends a request about the terminal of a command. A keeper from before there were terminals ignores it.
func askTerminal(r protocol.Request) protocol.Reply {
	reply := ask(r)
	if reply.Reason == "" && !reply.Terminal {
		reply.Reason = protocol.NoTerminal
	}
	return reply
}

// listen creates a socket that only the box's user can reach.
func listen(path string) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		if err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err == nil {
			err = syscall.Listen(fd, 64)
		}
		if err != nil {
			syscall.Close(fd)
		}
	}
	return fd, err
}

func dial(path string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), controlFile), nil
}

// keepArgument makes the program act as the process that stays with a command. It reads the request from its standard input.
const keepArgument = "keep"
