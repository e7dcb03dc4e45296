package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/arbe-dev/arbe/internal/fault"
)

// A server that runs on this machine leaves its address and a key in its data directory (cli.json), and a pointer to that
// directory among the user's own files, so that the command line finds it from every directory. A pointer holds no
// credential. A killed server leaves its pointer behind. So the lock on the data directory decides whether a server is
// running, and not a file or a process id. Otherwise a key could go to a program that happens to listen where a server was
// before.

// localServer is the data of cli.json about a server on this machine.
type localServer struct {
	// Host is the address that it listens on, and URL its address for browsers.
	Host  string `json:"host"`
	URL   string `json:"url"`
	Token string `json:"token"`

	dataDir string
	runs    bool
}

// errNoServer reports that no server has ever used a data directory.
var errNoServer = errors.New("no server has been started here")

// serverOf returns the server of a data directory, whether it is running or not. If no server has used the directory, it
// returns [errNoServer]. Unless trusted, it refuses files that other users own or can read, because a directory that somebody
// else prepared must not decide where this user's requests go.
func serverOf(dataDir string, trusted bool) (s localServer, err error) {
	path := filepath.Join(dataDir, "cli.json")
	text, err := readPrivate(path, trusted)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return s, errNoServer
	case err != nil:
		return s, fault.Newf(fault.Forbidden, "run arbe as the user who runs the server, name the server with --host or --profile, or set ARBE_TOKEN",
			"cannot use %s", path).Because(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fault.Newf(fault.Precondition, "run arbe up again: it writes a new file", "%s is damaged", path).Because(err)
	}
	s.dataDir, s.runs = dataDir, isLocked(filepath.Join(dataDir, "lock"))
	return s, nil
}

// isLocked reports whether a process holds the lock of a data directory. It tries a shared lock, so that two commands that
// check at the same time do not take each other for a server.
func isLocked(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close() // releases the lock if Flock got it
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// maxPrivateFile limits how much is read of this program's own files, because something else may be in their place.
const maxPrivateFile = 1 << 20

// readPrivate reads a file that, unless it is trusted, this user owns and nobody else can read or write.
func readPrivate(path string, trusted bool) ([]byte, error) {
	flags := os.O_RDONLY | syscall.O_NONBLOCK // do not block if a pipe is in its place
	if !trusted {
		flags |= syscall.O_NOFOLLOW // a link that somebody else made could lead to another file of this user
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a file")
	case !trusted && (!ok || int(stat.Uid) != os.Geteuid()):
		return nil, errors.New("it belongs to another user")
	case !trusted && info.Mode().Perm()&0o077 != 0:
		return nil, errors.New("other users can read or write it")
	}
	return io.ReadAll(io.LimitReader(f, maxPrivateFile))
}

// writePrivate replaces a file with one that only this user can read. It replaces the file completely or leaves it unchanged.
func writePrivate(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing after the rename
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// pointer is a file that leads to the data directory of a server.
type pointer struct {
	DataDir string `json:"data_dir"`
}

// pointers returns the directory of this user's pointers, or "" if the user has no home.
func (a *app) pointers() string {
	if state := a.getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "arbe", "servers")
	}
	if home := a.getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "arbe", "servers")
	}
	return ""
}

// announce writes a pointer to the server of a data directory, and returns a function that removes it. It ignores errors,
// because the server works without a pointer.
func (a *app) announce(dataDir string) (withdraw func()) {
	dir := a.pointers()
	dataDir, err := filepath.Abs(dataDir)
	if dir == "" || err != nil {
		return func() {}
	}
	a.runningServers() // removes the pointers of servers that were killed
	name := sha256.Sum256([]byte(dataDir))
	path := filepath.Join(dir, hex.EncodeToString(name[:8])+".json")
	text, err := json.Marshal(pointer{dataDir})
	if err == nil {
		err = writePrivate(path, append(text, '\n'))
	}
	if err != nil {
		a.say("arbe commands find this server only from its directory: %v", err)
		return func() {}
	}
	return func() { os.Remove(path) }
}

// runningServers returns this user's running servers on this machine, and removes the pointers to all others.
func (a *app) runningServers() (servers []localServer) {
	dir := a.pointers()
	if dir == "" {
		return nil
	}
	files, _ := os.ReadDir(dir) // without the directory, no pointers exist
	for _, file := range files {
		path := filepath.Join(dir, file.Name())
		text, err := readPrivate(path, false)
		if err != nil || filepath.Ext(path) != ".json" {
			continue
		}
		var to pointer
		if json.Unmarshal(text, &to) != nil || !filepath.IsAbs(to.DataDir) {
			continue
		}
		if s, err := serverOf(to.DataDir, false); err == nil && s.runs {
			servers = append(servers, s)
		} else if !isLocked(filepath.Join(to.DataDir, "lock")) {
			os.Remove(path)
		}
	}
	return servers
}
