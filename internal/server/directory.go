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
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/secret/kms"
)

// directory is a data directory, with everything that one server keeps on its machine.
//
//	lock          held by the running server
//	installation  the identity of the database that the directory belongs to
//	secret.key    the key that seals secrets in the database
//	cli.json      how the command line of this machine is logged in
//	database_url  the embedded Postgres' address, while it runs
//	postgres/     the embedded Postgres (package db/embedded)
//	blobs/        the bytes of artifacts, unless they are kept elsewhere
//	local/        the local sandboxes (package sandbox/local)
type directory struct {
	path string
	lock *os.File
}

// openDirectory creates the directory if it is missing, and locks it. If a server already runs on it, the error is
// a [fault.Precondition] that names its process.
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
	if err := takeLock(lock); err != nil {
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

// takeLock locks a file. It tries for half a second, because the command line holds the lock for a moment when it checks
// whether a server runs.
func takeLock(f *os.File) (err error) {
	for range 25 {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

func (d *directory) close() { d.lock.Close() }

func (d *directory) join(name string) string { return filepath.Join(d.path, name) }

// write replaces a file in the directory atomically, so that a killed server leaves no half-written file. Only its
// owner may read it, because some files hold keys.
func (d *directory) write(name string, content []byte) error {
	temporary := d.join("." + name + ".new")
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, d.join(name))
}

// sealer returns a sealer with the installation's key: the configured one, or the one in the directory, which the first
// start creates.
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
	return secret.NewSealer(key, kms.Open)
}

// installationFile holds the identity of the directory's database.
const installationFile = "installation"

// installation returns the identity of the directory's database; empty before the first start.
func (d *directory) installation() (string, error) {
	text, err := os.ReadFile(d.join(installationFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// checkDatabase refuses a database that is not the directory's own, because the sandboxes in the directory belong to that
// one. id is the database's identity; empty if it has none.
func (d *directory) checkDatabase(id string) error {
	own, err := d.installation()
	if err != nil || own == "" || own == id {
		return err
	}
	what := "another one"
	if id == "" {
		what = "a new one, or one of an older version"
	}
	return fault.Newf(fault.Precondition,
		"set DATABASE_URL to the directory's own database, or ARBE_DATA_DIR to another directory; if this database shall replace the directory's own, delete "+
			d.join(installationFile)+" and start again: the sandboxes that it does not know are then kept in quarantine",
		"the data directory %s belongs to the database %s, and this database is %s", d.path, own, what)
}

// checkEmbedded refuses to create an embedded Postgres in a directory that belongs to an operator's database. Otherwise
// a start that lacks DATABASE_URL would create an empty installation beside the real one.
func (d *directory) checkEmbedded() error {
	if _, err := os.Stat(d.join(postgresDir)); err == nil {
		return nil
	}
	return d.checkDatabase("")
}

// setDatabase records the identity of the directory's database, unless one is recorded, so that checkDatabase can
// refuse another one later.
func (d *directory) setDatabase(id string) error {
	if own, err := d.installation(); err != nil || own != "" {
		return err
	}
	return d.write(installationFile, []byte(id+"\n"))
}

// postgresDir holds the embedded Postgres.
const postgresDir = "postgres"

// keyFile holds the installation's key.
const keyFile = "secret.key"

// NewSecretKey returns a new key for [Config.SecretKey].
func NewSecretKey() (string, error) { return secret.NewKey() }

// existingSealer returns a sealer with the installation's key: the configured one, or the one in a directory. It creates
// none, because a running server could not open what another key sealed.
func existingSealer(set, dir string) (*secret.Sealer, error) {
	if set == "" {
		text, err := os.ReadFile(filepath.Join(dir, keyFile))
		if err != nil {
			return nil, fault.New(fault.Precondition, "the installation's key cannot be read here",
				"set ARBE_SECRET_KEY, or ARBE_DATA_DIR to the data directory that holds it").Because(err)
		}
		set = string(text)
	}
	return secret.NewSealer(set, kms.Open)
}

// login is the content of cli.json: where the command line of this machine reaches the server, and with which credential.
// URL is the address for browsers, which may be that of a proxy. Host is the one that the server listens on, which always
// works on this machine.
type login struct {
	Host  string `json:"host"`
	URL   string `json:"url"`
	Token string `json:"token"`
}

const loginFile = "cli.json"

// readLogin returns the login in the directory; the zero login if there is none that can be read.
func (d *directory) readLogin() (l login) {
	if text, err := os.ReadFile(d.join(loginFile)); err == nil {
		_ = json.Unmarshal(text, &l) // a damaged file is ignored, because the start replaces it
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

// LocalDatabaseURL returns the URL of the embedded Postgres that runs in a data directory, as the owner of the schema;
// empty if none runs.
func LocalDatabaseURL(dataDir string) string {
	text, err := os.ReadFile(filepath.Join(dataDir, databaseURLFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
