//go:build linux

package local

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

const (
	// refusalsPerSecond is the number of refused connections of a box that are reported in a second. Finding the
	// process that opened a connection takes some milliseconds.
	refusalsPerSecond = 5
	// maxSocketTable limits the bytes that are read of a box's socket table. maxDescriptors limits the descriptors of
	// its processes that are checked for one connection. A box may fill both.
	maxSocketTable, maxDescriptors = 4 << 20, 20_000
)

// OnRefusal sets a function that is called for refused connections of boxes; see [sandbox.Gated].
func (d *Driver) OnRefusal(f func(sandbox.Refusal)) { d.onRefusal.Store(&f) }

// reportRefusal reports a refused connection of a container, unless the container has too many of them.
func (d *Driver) reportRefusal(b *box, c *container, r egress.Refusal) {
	report := d.onRefusal.Load()
	if report == nil || !c.refusals.take(refusalsPerSecond) {
		return
	}
	launch, program := c.speaker(r.From)
	for range 5 {
		if program != "" {
			break
		}
		time.Sleep(20 * time.Millisecond) // a command that began just now may not be registered yet
		launch, program = c.speaker(r.From)
	}
	(*report)(sandbox.Refusal{Refusal: r, Ref: d.ref(b.ID), Launch: launch, Program: program})
}

// speaker returns the launched command whose process opened a connection in the box's network, and the name of that
// process. Both are empty if they cannot be found.
func (c *container) speaker(from net.Addr) (launch, program string) {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return "", ""
	}
	inode := c.socketAt(tcp.Port)
	if inode == "" {
		return "", ""
	}
	socket, looked := "socket:["+inode+"]", 0
	for _, s := range c.commands.known() {
		for _, pid := range s.members() {
			dir := fmt.Sprintf("/proc/%d/fd", pid)
			files, err := os.ReadDir(dir)
			if err != nil {
				continue // it has ended
			}
			for _, f := range files {
				if looked++; looked > maxDescriptors {
					return "", ""
				}
				if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && to == socket {
					name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
					return s.launch, strings.TrimSpace(string(name))
				}
			}
		}
	}
	return "", ""
}

// socketAt returns the inode of the box's connection with a local port; empty if the box has no such connection.
func (c *container) socketAt(port int) string {
	const listening = "0A"
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", c.process.Pid, table))
		if err != nil {
			return ""
		}
		lines := bufio.NewScanner(io.LimitReader(f, maxSocketTable))
		for lines.Scan() {
			// sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode …
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || fields[3] == listening {
				continue
			}
			_, at, _ := strings.Cut(fields[1], ":")
			if n, err := strconv.ParseUint(at, 16, 16); err == nil && int(n) == port {
				f.Close()
				return fields[9]
			}
		}
		f.Close()
	}
	return ""
}

// known returns the commands that may have running processes.
func (l *commands) known() (list []*supervised) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for run := range l.waited {
		if s, ok := run.(*supervised); ok {
			list = append(list, s)
		}
	}
	for s := range l.leaving {
		list = append(list, s)
	}
	return list
}
