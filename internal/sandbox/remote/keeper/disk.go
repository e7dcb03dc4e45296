//go:build linux

package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// inboxName returns the path of a file in the inbox.
func inboxName(name string) string { return filepath.Join(protocol.Inbox, filepath.Base(name)) }

// decodeJSON reads a file that [writeJSON] wrote.
func decodeJSON(name string, value any) error {
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, value)
	}
	return err
}

// writeJSON writes a file so that it appears completely or not at all.
func writeJSON(name string, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		if err = os.WriteFile(name+".new", text, 0o600); madeRoom(err) {
			err = os.WriteFile(name+".new", text, 0o600)
		}
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	return err
}

// failed returns the reply for a system error.
func failed(err error) protocol.Reply {
	reply := protocol.Reply{Reason: protocol.Failed, Detail: err.Error()}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		reply.Errno = int(errno)
	}
	return reply
}

// The reserve is room that is given up when the disk is full, so that the end of a command is recorded and others can be
// launched, which may delete files. It has several files, because the disk may have run out of those. They are random, because
// a file system may store others in less room than they take up later.
const (
	reserve      = protocol.Root + "/reserve"
	reserveFiles = 16
	reserveSize  = 256 << 10 // of each file
	// reserveBeyond is how much room must be left for making a reserve.
	reserveBeyond = 16 << 20
)

// keepReserve makes the reserve unless it is there, or little room is left.
func keepReserve() {
	file := func(i int) string { return filepath.Join(reserve, strconv.Itoa(i)) }
	if _, err := os.Lstat(file(reserveFiles - 1)); err == nil {
		return // the last one is there
	}
	var disk syscall.Statfs_t
	if syscall.Statfs(protocol.Root, &disk) != nil || int64(disk.Bavail)*disk.Bsize <= reserveBeyond {
		return
	}
	content := make([]byte, reserveSize)
	rand.Read(content)
	err := os.MkdirAll(reserve, 0o700)
	for i := 0; i < reserveFiles && err == nil; i++ {
		err = os.WriteFile(file(i), content, 0o600)
	}
	if err != nil { // there is less room than the disk says
		_ = os.RemoveAll(reserve) // the next launch tries again
	}
}

// madeRoom reports whether something that failed with err is worth another attempt: the disk was full, and the reserve was given
// up.
func madeRoom(err error) bool {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return false
	}
	return os.RemoveAll(reserve) == nil // also if another process has just given it up
}
