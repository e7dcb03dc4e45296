package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// directory is a data directory: everything one server keeps on its machine.
//
//	lock          held by the running server
//	secret.key    the key that seals secrets in the database
//	cli.json      how the command line of this machine is logged in
//	database_url  the embedded Postgres' address, while it runs
//	postgres/     the embedded Postgres (package db/embedded)
//	local/        the local sandboxes (package sandbox/local)
type directory struct {
	path string
	lock *os.File
}

// openDirectory makes the directory if need be and takes its lock. A second server on it is a
// [fault.Precondition] that names the first.
func openDirectory(path string) (*directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	unusable := fault.Newf(fault.Precondition, "make it writable, or set ARBE_DATA_DIR to another one", "the data directory %s cannot be used", path)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, unusable.Because(err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unusable.Because(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(lock.Name())
		lock.Close()
		return nil, fault.Newf(fault.Precondition, "use that one, stop it first, or set ARBE_DATA_DIR to another directory",
			"an arbe server is already running on the data directory %s (process %s)", path, strings.TrimSpace(string(holder))).Because(err)
	}
	d := &directory{path: path, lock: lock}
	if err := errors.Join(lock.Truncate(0), writeAt(lock, fmt.Sprintln(os.Getpid()))); err != nil {
		d.close()
		return nil, unusable.Because(err)
	}
	return d, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// close gives the lock back.
func (d *directory) close() { d.lock.Close() }

// join is the path of something in the directory.
func (d *directory) join(name string) string { return filepath.Join(d.path, name) }

// write replaces a file of the directory, whole or not at all, readable by its owner alone.
func (d *directory) write(name string, content []byte) error {
	temporary := d.join("." + name + ".new")
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, d.join(name))
}

// sealer opens the installation's key: the one set, else the directory's, made at the first start.
func (d *directory) sealer(set string) (*secret.Sealer, error) {
	sealer, err := existingSealer(set, d.path)
	if !errors.Is(err, fs.ErrNotExist) {
		return sealer, err
	}
	key, err := secret.NewKey()
	if err != nil {
		return nil, err
	}
	if err := d.write(keyFile, []byte(key+"\n")); err != nil {
		return nil, err
	}
	return secret.NewSealer(key)
}

// keyFile holds the installation's key.
const keyFile = "secret.key"

// existingSealer opens the installation's key, the one set or else that in a directory, without making one. What
// is sealed under another one would be of no use to a server that runs.
func existingSealer(set, dir string) (*secret.Sealer, error) {
	if set == "" {
		text, err := os.ReadFile(filepath.Join(dir, keyFile))
		if err != nil {
			return nil, fault.New(fault.Precondition, "the installation's key cannot be read here",
				"set ARBE_SECRET_KEY, or ARBE_DATA_DIR to the data directory that holds it").Because(err)
		}
		set = string(text)
	}
	return secret.NewSealer(set)
}

// login is what cli.json holds: how the command line of this machine reaches the server, and as whom.
type login struct {
	Host  string `json:"host"`
	Token string `json:"token"`
}

const loginFile = "cli.json"

// readLogin is the login that is there; the zero login when there is none to use.
func (d *directory) readLogin() (l login) {
	if text, err := os.ReadFile(d.join(loginFile)); err == nil {
		_ = json.Unmarshal(text, &l) // a damaged file is replaced
	}
	return l
}

func (d *directory) writeLogin(l login) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return d.write(loginFile, append(text, '\n'))
}

// databaseURLFile holds the embedded Postgres' address while it runs.
const databaseURLFile = "database_url"

// LocalDatabaseURL is the address of the embedded Postgres that runs on a data directory, as the owner of
// the schema; empty when none runs.
func LocalDatabaseURL(dataDir string) string {
	text, err := os.ReadFile(filepath.Join(dataDir, databaseURLFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
