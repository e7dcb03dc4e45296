//go:build linux

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// place moves a file from the inbox to its destination. It writes the file under another name in the same directory and
// renames it, so that it appears completely or not at all.
func place(r protocol.Request) protocol.Reply {
	defer drop(r)
	defer sweepInbox()
	if err := placeFile(r); err != nil {
		return fileFailed(err)
	}
	return protocol.Reply{}
}

func placeFile(r protocol.Request) (err error) {
	dir := filepath.Dir(r.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if info, err := os.Lstat(r.Path); err == nil && info.IsDir() {
		return syscall.EISDIR
	}
	name := filepath.Join(dir, ".arbe-"+rand.Text())
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(name)
		}
	}()
	for i := range r.Pieces {
		if err = appendFile(file, pieceOf(r.Parcel, i)); err != nil {
			break
		}
	}
	if err = errors.Join(err, file.Chmod(os.FileMode(r.Mode).Perm()), file.Close()); err != nil {
		return err
	}
	return os.Rename(name, r.Path)
}

func appendFile(to *os.File, name string) error {
	from, err := os.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(to, from)
	return err
}

func pieceOf(parcel string, i int) string { return fmt.Sprintf("%s.%d", inboxName(parcel), i) }

// drop removes the pieces of a file from the inbox.
func drop(r protocol.Request) {
	for i := range r.Pieces {
		_ = os.Remove(pieceOf(r.Parcel, i)) // it may not have arrived
	}
}

// abandoned is the age at which a piece in the inbox is taken to belong to a server that was killed.
const abandoned = 24 * time.Hour

func sweepInbox() {
	entries, err := os.ReadDir(protocol.Inbox)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > abandoned {
			_ = os.Remove(inboxName(e.Name()))
		}
	}
}

// File systems of the kernel. Their files look regular, but reading one asks the kernel.
const procMagic, sysfsMagic = 0x9fa0, 0x62656572

// fetch reads a part of a file.
func fetch(r protocol.Request) protocol.Reply {
	// Do not block: a pipe in place of the file must not hold the reply.
	file, err := os.OpenFile(r.Path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return fileFailed(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fileFailed(err)
	}
	var system syscall.Statfs_t
	if err := syscall.Fstatfs(int(file.Fd()), &system); err != nil {
		return fileFailed(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || system.Type == procMagic || system.Type == sysfsMagic {
		return protocol.Reply{Reason: protocol.NotRegular}
	}
	reply := protocol.Reply{Identity: fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)}
	if r.Identity != "" && r.Identity != reply.Identity {
		return protocol.Reply{Reason: protocol.Changed}
	}
	reply.Data = make([]byte, r.Most)
	n, err := io.ReadFull(io.NewSectionReader(file, r.Position, 1<<62), reply.Data)
	reply.Data = reply.Data[:n]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		reply.Last = true
	} else if err != nil {
		return fileFailed(err)
	}
	return reply
}

// fileFailed returns the reply for a file error.
func fileFailed(err error) protocol.Reply {
	reply := failed(err)
	reply.Reason = protocol.FileError
	return reply
}
