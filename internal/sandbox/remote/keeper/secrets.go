//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// The files of secrets are written by a process that has a right which commands do not have: its group. It leaves another
// process, the guard, which removes them when the command has ended, whether or not a server runs then.
//
// What each command holds is in a file of its name, locked while its guard runs. The guard also holds a shared lock on the
// folder, so that process 1 finds out when there is no guard any more, as after "kill -9 -1", and removes everything.

// tmpfsMagic is the kind of a file system in memory.
const tmpfsMagic = 0x01021994

// mostNames limits the names of one command, in bytes.
const mostNames = 64 << 10

// unlaunched is how long a guard waits for its command to be launched.
const unlaunched = 2 * time.Minute

// placeSecrets writes the files of a command and leaves a guard.
func placeSecrets(r protocol.Request) protocol.Reply {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	folder, err := openSecrets()
	if err != nil {
		return protocol.Reply{Reason: protocol.NoSecrets, Detail: err.Error()}
	}
	defer folder.Close()
	unlock, err := lockHoldings()
	if madeRoom(err) {
		unlock, err = lockHoldings()
	}
	if err != nil {
		return failed(err)
	}
	defer unlock()
	names := make([]string, 0, len(r.Secrets))
	for name := range r.Secrets {
		names = append(names, name)
	}
	err = leaveGuard(r.ID, names, folder)
	if madeRoom(err) {
		err = leaveGuard(r.ID, names, folder)
	}
	if err != nil {
		return failed(err)
	}
	held := heldNames(r.ID)
	for name, value := range r.Secrets {
		if err := placeSecret(name, value, held); err != nil {
			_ = os.Remove(holdingOf(r.ID)) // so the guard removes those that were written
			return failed(err)
		}
	}
	return protocol.Reply{}
}

// openSecrets opens the folder with a shared lock, if it is one in memory.
func openSecrets() (*os.File, error) {
	folder, err := os.Open(protocol.SecretFolder)
	if err != nil {
		return nil, err
	}
	var system syscall.Statfs_t
	if err = syscall.Fstatfs(int(folder.Fd()), &system); err == nil && system.Type != tmpfsMagic {
		err = errors.New("it is not in memory")
	}
	if err == nil {
		err = syscall.Flock(int(folder.Fd()), syscall.LOCK_SH)
	}
	if err != nil {
		folder.Close()
		return nil, err
	}
	return folder, nil
}

// lockHoldings waits for the other processes that change files.
func lockHoldings() (unlock func(), err error) {
	if err := os.MkdirAll(holdings, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(holdings, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		lock.Close()
		return nil, err
	}
	return func() { lock.Close() }, nil
}

// leaveGuard starts the guard of a command, unless there is one. It passes the locks on.
func leaveGuard(id string, names []string, folder *os.File) error {
	holding, err := os.OpenFile(holdingOf(id), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer holding.Close()
	if err := syscall.Flock(int(holding.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil // an earlier attempt has left it
	} else if err != nil {
		return err
	}
	text, err := json.Marshal(names)
	if err == nil {
		err = holding.Truncate(0)
	}
	if err == nil {
		_, err = holding.WriteAt(text, 0)
	}
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, guardArgument, id)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.ExtraFiles = []*os.File{holding, folder}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// heldNames returns the names of the files that running commands hold, other than one.
func heldNames(except string) map[string]bool {
	held := map[string]bool{}
	entries, _ := os.ReadDir(holdings) // without holdings nothing is held
	for _, e := range entries {
		path := holdingOf(e.Name())
		if e.Name() == except || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if !isLocked(path) { // its guard was killed
			_ = os.Remove(path)
			continue
		}
		var names []string
		if decodeJSON(path, &names) == nil {
			for _, name := range names {
				held[name] = true
			}
		}
	}
	return held
}

// placeSecret writes a file, so that it appears completely or not at all.
func placeSecret(name string, value []byte, held map[string]bool) error {
	path := filepath.Join(protocol.SecretFolder, filepath.Base(name))
	if had, err := os.ReadFile(path); err == nil && held[name] && bytes.Equal(had, value) {
		return nil
	}
	file, err := os.CreateTemp(protocol.SecretFolder, ".")
	if err != nil {
		return err
	}
	_, err = file.Write(value)
	if err = errors.Join(err, file.Chmod(0o400), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // it is removed with the others otherwise
	}
	return err
}

// guardArgument makes the program the guard of a command. It inherits the locks.
const guardArgument = "guard"

// guard removes the files of a command when nothing needs them any more.
func guard(id string) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20) // a box may have many of these
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	awaitEnd(id)
	unlock, err := lockHoldings()
	if err != nil {
		return // process 1 removes them
	}
	defer unlock()
	text := make([]byte, mostNames)
	n, _ := os.NewFile(lockDescriptor, "holding").ReadAt(text, 0) // the file may have no name any more
	var names []string
	_ = json.Unmarshal(text[:n], &names) // if a command has changed it, process 1 removes the files
	held := heldNames(id)
	for _, name := range names {
		if !held[name] {
			_ = os.Remove(filepath.Join(protocol.SecretFolder, filepath.Base(name)))
		}
	}
	_ = os.Remove(holdingOf(id))
}

// awaitEnd waits until a command has ended or was forgotten, or has not been launched for long.
func awaitEnd(id string) {
	record := recordOf(id)
	launching := watch(protocol.Records)
	for deadline := time.Now().Add(unlaunched); ; launching.wait(200 * time.Millisecond) {
		_, err := os.Stat(record)
		if err == nil {
			break
		}
		if _, err := os.Stat(holdingOf(id)); err != nil || time.Now().After(deadline) { // forget removes it
			launching.close()
			return
		}
	}
	launching.close()
	changes := watchFor(syscall.IN_MOVED_TO|syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF, record)
	defer changes.close()
	for {
		over := !locked(record)
		_, err := os.Stat(filepath.Join(record, endedFile))
		if err == nil || over {
			return
		}
		changes.wait(time.Second) // a lock's release sends no notification
	}
}

// sweepSecrets removes all files if no guard is left. It is for process 1, which owns the folder.
func sweepSecrets() {
	folder, err := os.Open(protocol.SecretFolder)
	if err != nil {
		return // this box has none
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil || len(names) == 0 || syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return
	}
	slices.Sort(names)
	for _, name := range names {
		_ = os.Remove(filepath.Join(protocol.SecretFolder, name)) // the next end of a process tries again
	}
}
