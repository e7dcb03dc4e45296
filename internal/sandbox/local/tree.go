//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// killTree kills a process with its descendants and everything of their sessions, as far as it can be
// found: for machines where the server may not make control groups. All are stopped before the first
// is killed, so that none has children meanwhile that nobody looks for any more.
func killTree(pid int) {
	stopped := map[int]bool{}
	for grown := true; grown; { // until a look finds nobody new
		grown = false
		for _, p := range descendants(pid) {
			if !stopped[p] {
				_ = unix.Kill(p, unix.SIGSTOP)
				stopped[p], grown = true, true
			}
		}
	}
	for p := range stopped {
		_ = unix.Kill(p, unix.SIGKILL)
	}
}

// descendants lists a process, its descendants, and whoever shares a session with it.
func descendants(pid int) []int {
	type process struct{ parent, session int }
	table := map[int]process{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state parent group session …": the name may hold anything, parentheses too.
		var id, parent, group, session int
		var state string
		_, _ = fmt.Sscan(string(text), &id)
		rest := string(text)[strings.LastIndexByte(string(text), ')')+1:]
		if n, _ := fmt.Sscan(rest, &state, &parent, &group, &session); n == 4 && state != "Z" {
			table[id] = process{parent, session}
		}
	}
	belongs := map[int]bool{pid: true}
	for grown := true; grown; {
		grown = false
		for id, p := range table {
			if !belongs[id] && (belongs[p.parent] || p.session == pid) {
				belongs[id], grown = true, true
			}
		}
	}
	var list []int
	for id := range belongs {
		list = append(list, id)
	}
	return list
}
