package dbtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// prefix is the beginning of the name of a directory in memory. The id of the process that made it follows. It is short,
// because tests make sockets there, and Linux limits their paths to 107 bytes.
const prefix = "arbe-"

// memory is where Linux mounts a file system in memory.
const memory = "/dev/shm"

// The bytes that must be free in memory for the files of a Postgres, and for those of all tests.
const (
	roomOfPostgres = 1 << 30
	roomOfTests    = 8 << 30
)

// inMemory returns the directory in memory for the files of a Postgres, or "" if there is none with enough room. Each
// test makes and drops a database of hundreds of files, which is slow on a disk's file system.
func inMemory() string {
	if hasRoom(memory, roomOfPostgres) {
		return memory
	}
	return ""
}

// TempDir makes a directory for the temporary files of tests, in memory if there is room for them, and else on the disk.
// Tests make and delete very many small files, which some file systems are slow at: ext4 without a journal compares each
// new file with all that were deleted in the last seconds. remove deletes it. If its process is killed before, [Launch]
// deletes it from memory later.
func TempDir() (dir string, remove func(), err error) {
	parent := ""
	if hasRoom(memory, roomOfTests) {
		parent = memory
	}
	if dir, err = os.MkdirTemp(parent, fmt.Sprintf("%s%d-", prefix, os.Getpid())); err != nil {
		return "", nil, err
	}
	// Other users may make files there, as in /tmp, because some tests start programs as them.
	return dir, func() { os.RemoveAll(dir) }, os.Chmod(dir, 0o777|os.ModeSticky)
}

// hasRoom reports whether a directory has at least this many bytes free.
func hasRoom(dir string, bytes int64) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && int64(st.Bavail)*int64(st.Bsize) >= bytes
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
