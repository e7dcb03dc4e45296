//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// environment returns the environment of a command: the box's, and the given variables.
func environment(given map[string]string) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	all := map[string]string{
		"PATH": path, "HOME": "/home/agent", "USER": "agent", "LOGNAME": "agent", "LANG": "C.UTF-8", "TERM": "xterm-256color",
	}
	for name, value := range given {
		all[name] = value
	}
	var list []string
	for name, value := range all {
		list = append(list, name+"="+value)
	}
	return list
}

// lookup returns the files that may be the program, in the order in which execvp tries them.
func lookup(program string, env []string) []string {
	if strings.Contains(program, "/") {
		return []string{program}
	}
	var paths []string
	for _, pair := range env {
		if list, ok := strings.CutPrefix(pair, "PATH="); ok {
			for _, dir := range filepath.SplitList(list) {
				paths = append(paths, filepath.Join("/", dir, program))
			}
		}
	}
	return paths
}

// start starts the first of the files that is a program. If none is, it returns the most informative error: a file that
// cannot be executed says more than one that is missing.
func start(files []string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	err = syscall.ENOENT
	for _, file := range files {
		pid, failed := syscall.ForkExec(file, argv, attr)
		switch {
		case failed == nil:
			return pid, nil
		case errors.Is(failed, syscall.ENOENT), errors.Is(failed, syscall.ENOTDIR):
		case errors.Is(failed, syscall.EACCES):
			err = failed
		default:
			return 0, failed
		}
	}
	return 0, err
}

// shellCode returns the exit code and message of a shell for a program that could not be started. ok is false if a shell
// would have no code for it.
func shellCode(err error) (code int, words string, ok bool) {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return 127, "command not found", true
	case errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return 0, "", false
	}
	return 126, "cannot be executed", true
}
