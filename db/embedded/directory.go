package embedded

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/arbe-dev/arbe/internal/fault"
)

// logLimit is the size above which a start moves the log away and begins a new one, because PostgreSQL does not rotate
// it.
const logLimit = 10 << 20

// half is the beginning of the names of unfinished files and directories. They get their final names when they are
// complete, so a start after a crash does not use unfinished ones.
const half = "half-"

// directory is a Config.Dir whose lock we hold. It stores data between starts.
//
// It and its files belong to us. Only the cluster in it belongs to the user that PostgreSQL runs as, so that a
// compromised PostgreSQL cannot make us follow its links.
type directory struct {
	path string
	lock *os.File
}

// openDirectory creates the directory if necessary and takes its lock without waiting.
func openDirectory(path string) (*directory, error) {
	if path == "" {
		return nil, fault.New(fault.Invalid, "no directory for the embedded PostgreSQL", "name one in ARBE_DATA_DIR")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, (&directory{path: path}).unusable(err)
	}
	d := &directory{path: path}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, d.unusable(err)
	}
	lock, err := os.OpenFile(d.file("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, d.unusable(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, d.unusable(err)
		}
		return nil, fault.Newf(fault.Precondition, "stop that process, or use another directory (ARBE_DATA_DIR)",
			"the database in %s is already running (%s)", path, holder(lock))
	}
	d.lock = lock
	if err := d.sign(); err != nil {
		d.release()
		return nil, d.unusable(err)
	}
	return d, nil
}

// holder describes the process that holds the lock, from the pid that it wrote.
func holder(lock *os.File) string {
	b, _ := io.ReadAll(io.LimitReader(lock, 20))
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
		return "pid " + strconv.Itoa(pid)
	}
	return "its process has just started"
}

// sign writes our pid into the lock, so that a process that finds the lock taken can name us.
func (d *directory) sign() error {
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	_, err := d.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// release releases the lock. It unlocks before it closes, because a child that is being forked may hold a copy of the
// file a little longer.
func (d *directory) release() {
	_ = syscall.Flock(int(d.lock.Fd()), syscall.LOCK_UN)
	_ = d.lock.Close()
}

func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

// cluster is PostgreSQL's data directory. It exists only when it is complete; see makeCluster.
func (d *directory) cluster() string { return d.file("data") }

// clusterMajor returns the major version of PostgreSQL that created the cluster, or 0 before one exists.
func (d *directory) clusterMajor() (int, error) {
	if _, err := os.Lstat(d.cluster()); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	b, err := os.ReadFile(filepath.Join(d.cluster(), "PG_VERSION"))
	if err != nil {
		return 0, d.unusable(err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fault.Newf(fault.Precondition, "restore it from a backup, or move it away to start with a new one",
			"%s is not a PostgreSQL cluster that arbe can read", d.cluster()).Because(err)
	}
	return major, nil
}

// password returns the superuser's password.
func (d *directory) password() (string, error) {
	b, err := os.ReadFile(d.file("password"))
	if err != nil {
		return "", fault.Newf(fault.Precondition, "restore it from a backup of the directory",
			"the database's password, %s, cannot be read", d.file("password")).Because(err)
	}
	return strings.TrimSpace(string(b)), nil
}

// newPassword creates the password for the cluster that is about to be created.
func (d *directory) newPassword() (string, error) {
	password := rand.Text()
	return password, d.write("password", password+"\n")
}

// port returns the port of the last start, so that the database's URL stays the same, or another one if that is taken.
func (d *directory) port() (int, error) {
	if b, err := os.ReadFile(d.file("port")); err == nil {
		if port, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && portIsFree(port) {
			return port, nil
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fault.New(fault.Unavailable, "no free port on 127.0.0.1", "free some and start again").Because(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	return port, d.write("port", strconv.Itoa(port)+"\n")
}

func portIsFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// write replaces a small file atomically.
func (d *directory) write(name, content string) error {
	f, err := os.CreateTemp(d.path, half+name+"-*")
	if err != nil {
		return d.unusable(err)
	}
	defer os.Remove(f.Name()) // gone already after the rename
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), d.file(name))
	}
	if err != nil {
		return d.unusable(err)
	}
	return syncDirectory(d.path)
}

// discardHalves removes the unfinished files of interrupted starts. If a process is still ending in a directory, the
// next start removes it.
func (d *directory) discardHalves() {
	leftovers, _ := filepath.Glob(d.file(half + "*"))
	for _, path := range leftovers {
		_ = os.RemoveAll(path)
	}
}

// logFile is the log, open for appending, with the position at which this run's part begins.
type logFile struct {
	*os.File
	start int64
}

func (d *directory) openLog() (logFile, error) {
	path := d.file("postgres.log")
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		if err := os.Rename(path, path+".1"); err != nil {
			return logFile{}, d.unusable(err)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return logFile{}, d.unusable(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return logFile{}, d.unusable(err)
	}
	return logFile{f, info.Size()}, nil
}

// tailOf returns the end of a log, beginning no earlier than start, short enough for the cause of an error.
func tailOf(path string, start int64) string {
	const enough = 4 << 10
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		start = max(start, info.Size()-enough)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, start, enough))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// unusable returns the error for a directory that we may not use.
func (d *directory) unusable(cause error) error {
	next := "give this user the directory, or set ARBE_DATA_DIR to another one"
	if errors.Is(cause, syscall.ENOSPC) {
		next = "free some disk space, or set ARBE_DATA_DIR to a directory on another disk"
	}
	return fault.Newf(fault.Precondition, next, "the database directory %s cannot be used", d.path).Because(cause)
}

// syncDirectory makes renames in a directory durable, because syncing the renamed file does not.
func syncDirectory(path string) error {
	f, err := os.Open(path)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return (&directory{path: path}).unusable(err)
	}
	return nil
}
