package dbtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// prefix is the beginning of the name of a Postgres's directory. The id of the process that made it follows.
const prefix = "arbe-dbtest-"

// memory is where Linux mounts a file system in memory, and leastFree how many bytes must be free there.
const memory, leastFree = "/dev/shm", 1 << 30

// inMemory returns the directory in memory for the files of a Postgres, or "" if there is none with enough room. Each
// test makes and drops a database of hundreds of files, which is slow on a disk's file system.
func inMemory() string {
	if hasRoom(memory) {
		return memory
	}
	return ""
}

// hasRoom reports whether a directory has at least leastFree bytes free.
func hasRoom(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && int64(st.Bavail)*int64(st.Bsize) >= leastFree
}

// removeAbandoned removes the directories of test processes that were killed. They would hold memory until the machine
// restarts.
func removeAbandoned(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, prefix+"*"))
	for _, dir := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		if id, err := strconv.Atoi(pid); err == nil && unix.Kill(id, 0) == unix.ESRCH {
			os.RemoveAll(dir)
		}
	}
}
