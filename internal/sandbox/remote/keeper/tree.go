//go:build linux

package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// descendants returns the running descendants of this process. None can hide, because orphans become its children.
func descendants() []int {
	children := map[int][]int{}
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, name := range names {
		pid := atoi(name.Name())
		if pid == 0 {
			continue
		}
		if parent, running := parentOf(pid); running {
			children[parent] = append(children[parent], pid)
		}
	}
	var all []int
	for next := children[os.Getpid()]; len(next) > 0; {
		var below []int
		for _, pid := range next {
			all = append(all, pid)
			below = append(below, children[pid]...)
		}
		next = below
	}
	return all
}

// parentOf returns the parent of a process. running is false if it has ended.
func parentOf(pid int) (parent int, running bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 || fields[0] == "Z" || fields[0] == "X" {
		return atoi(second(fields)), false
	}
	return atoi(fields[1]), true
}

func second(fields []string) string {
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// atoi parses a number. It returns 0 for anything else.
func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// signalAll sends a signal to processes, ignoring those that have ended.
func signalAll(pids []int, signal syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, signal)
	}
}

// oomKills returns how often the kernel killed a process because the box was out of memory, if the box reveals it.
func oomKills() int {
	for _, name := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if number, ok := strings.CutPrefix(line, "oom_kill "); ok {
				return atoi(strings.TrimSpace(number))
			}
		}
	}
	return 0
}
