//go:build linux

package main

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// server is the state of process 1.
type server struct {
	epoll, listener int
	ruleset         int          // for Landlock; negative if the kernel does not support it
	shared          *sharedForks // starts commands in the shared domain; nil without Landlock
	buffer          []byte       // holds one description at a time

	conns  map[int32]*conn
	linger time.Duration // how long the box outlives its server
	alone  time.Time     // since when no server has been connected; zero while one is

	mu       sync.Mutex
	running  map[int]*conn   // commands, by process id
	pipes    map[int32]*pipe // recorded outputs
	entry    []byte          // holds one entry at a time
	children chan struct{}   // holds a token when there is a child to wait for
}

// conn is a connection from the server.
type conn struct {
	fd         int
	hello      bool
	background bool
	pid        int     // the running command that was started through it
	record     *record // of its output; nil if there is none
	closed     bool
}

// send sends an answer. A server that does not read its answers loses them, because process 1 must not wait: it serves
// all commands of the box.
func (c *conn) send(kind byte, value uint32, fd int) {
	text := binary.LittleEndian.AppendUint32([]byte{supervisor.Version, kind}, value)
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_ = unix.Sendmsg(c.fd, text, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}
