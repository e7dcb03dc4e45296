//go:build linux

package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// inotifyPerUser is the number of inotify instances that the machine allows one user in all user namespaces together.
// All boxes belong to one user, so one of them could otherwise use up the instances of all.
var inotifyPerUser = sync.OnceValue(func() int {
	text, _ := os.ReadFile("/proc/sys/user/max_inotify_instances")
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		n = 128 // the kernel's default
	}
	return n
})

// boxInotify returns the number of inotify instances of one box.
func boxInotify() int { return max(8, inotifyPerUser()/8) }

// limitInotify gives the user namespace of a process its own limit for inotify instances. nsenter enters the namespace,
// because only a process inside can set the limit, and no OCI runtime does.
func limitInotify(ctx context.Context, pid int) error {
	const write = `echo "$0" > /proc/sys/user/max_inotify_instances`
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args := []string{"--user", "--target", strconv.Itoa(pid)}
	if !asRoot() { // an ordinary user already is root inside, and may not change to it
		args = append(args, "--preserve-credentials")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(args, "/bin/sh", "-c", write, strconv.Itoa(boxInotify()))...)
	cmd.Env = []string{"PATH=" + hostPath}
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nsenter: %w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}
