//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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
		err = os.WriteFile(name+".new", text, 0o600)
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
