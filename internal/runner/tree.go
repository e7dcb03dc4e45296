package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of every orphaned descendant, so killTree can reach all of them. It also makes
// this process's environment, which has the token, unreadable for other processes of its user.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// killTree kills every descendant of this process, and every process with mark in its environment: those may be left
// from an agent that was killed with an earlier runner. It returns when none is left, or after three seconds. It does
// not reap agent, which the goroutine that started it reaps.
func killTree(agent int, mark string) {
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left := false
		for _, p := range descendants(os.Getpid(), mark) {
			if p.zombie {
				if p.parent == os.Getpid() && p.pid != agent {
					_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
				}
				continue
			}
			left = true
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		if !left || time.Now().After(end) {
			return
		}
	}
}

// listed is a process as listed in /proc.
type listed struct {
	pid, parent int
	zombie      bool
}

// descendants returns the processes below root, those with mark in their environment, and the processes below these.
func descendants(root int, mark string) (found []listed) {
	all := processes()
	below := map[int]bool{root: true}
	if mark != "" {
		for _, p := range all {
			if environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "environ")); err == nil && p.pid != root &&
				slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(pair []byte) bool { return string(pair) == mark }) {
				below[p.pid] = true
			}
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if below[p.parent] && !below[p.pid] {
				below[p.pid], grown = true, true
			}
		}
	}
	for _, p := range all {
		if below[p.pid] && p.pid != root {
			found = append(found, p)
		}
	}
	return found
}

func processes() (all []listed) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", name.Name(), "stat"))
		if err != nil {
			continue
		}
		// The name may contain anything, so the fields begin after the last parenthesis.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		parent, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			continue
		}
		all = append(all, listed{pid, parent, fields[0][0] == 'Z' || fields[0][0] == 'X'})
	}
	return all
}
