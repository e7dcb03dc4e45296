package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/secret/kms"
)

// directory is a data directory: everything that one server keeps on its machine.
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
	// made lists the directories that openDirectory created: path itself, then its parents.
	made []string
}

// openDirectory creates the directory if it is missing, and locks it. If a server already runs on it, it returns a
// [fault.Precondition] that names the server's process.
func openDirectory(path string) (*directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	d := &directory{path: path}
	for p := path; p != filepath.Dir(p); p = filepath.Dir(p) {
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		d.made = append(d.made, p)
	}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	if err := errors.Join(d.lock.Truncate(0), writeAt(d.lock, fmt.Sprintln(os.Getpid()))); err != nil {
		d.close()
		return nil, d.unusable(err)
	}
	return d, nil
}

func (d *directory) unusable(err error) error {
	return fault.Newf(fault.Precondition, "make it writable, or set ARBE_DATA_DIR to another one", "the data directory %s cannot be used", d.path).Because(err)
}

// acquire takes the directory's lock.
func (d *directory) acquire() (err error) {
	// Retry if another start removes the lock together with its directory in the meantime; see close. A lock on the removed
	// file would not keep out a third start.
	for locked := false; !locked; {
		if err := os.MkdirAll(d.path, 0o700); err != nil {
			d.removeMade()
			return d.unusable(err)
		}
		d.lock, err = os.OpenFile(d.join(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			d.removeMade()
			return d.unusable(err)
		}
		if err := takeLock(d.lock); err != nil {
			holder, _ := os.ReadFile(d.lock.Name())
			d.lock.Close()
			return fault.Newf(fault.Precondition, "use that one, stop it first, or set ARBE_DATA_DIR to another directory",
				"an arbe server is already running on the data directory %s (process %s)", d.path, strings.TrimSpace(string(holder))).Because(err)
		}
		if locked = d.isCurrent(); !locked {
			d.lock.Close()
		}
	}
	return nil
}

// isCurrent reports whether the locked file is still the one at the lock's path.
func (d *directory) isCurrent() bool {
	mine, err := d.lock.Stat()
	current, currentErr := os.Stat(d.lock.Name())
	return err == nil && currentErr == nil && os.SameFile(mine, current)
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

// lockFile is held by the running server.
const lockFile = "lock"

// close unlocks the directory. If openDirectory created the directory and it is still empty, as after a start that failed
// early, close removes it.
func (d *directory) close() {
	defer d.lock.Close() // after the removal, so that no other server starts on it in between
	files, err := os.ReadDir(d.path)
	if err == nil && len(files) == 1 && len(d.made) > 0 && os.Remove(d.lock.Name()) == nil {
		d.removeMade()
	}
}

// removeMade removes the directories that openDirectory created, if they are empty.
func (d *directory) removeMade() {
	for _, path := range d.made {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}

func (d *directory) join(name string) string { return filepath.Join(d.path, name) }

// write replaces a file in the directory atomically, so that neither a killed server nor a power cut leaves a half-written
// file. When it returns, the file is on the disk, because the database may contain what only a key in the file opens. Only
// the user of the server may read it.
func (d *directory) write(name string, content []byte) error {
	temporary := d.join("." + name + ".new")
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, d.join(name)); err != nil {
		return err
	}
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// sealer returns a sealer with the installation's key: the configured key, the key in the directory, or, for the first
// start, a new key. The first use of Seal writes a new key to the directory. So if the database refuses the start, no
// useless key is left behind.
func (d *directory) sealer(set string) (*installationSealer, error) {
	sealer, err := existingSealer(set, d.path)
	if !errors.Is(err, fs.ErrNotExist) {
		return &installationSealer{Sealer: sealer, keep: func() error { return nil }}, err
	}
	key, err := secret.NewKey()
	if err != nil {
		return nil, err
	}
	if sealer, err = secret.NewSealer(key, kms.Open); err != nil {
		return nil, err
	}
	return &installationSealer{Sealer: sealer, keep: sync.OnceValue(func() error { return d.write(keyFile, []byte(key+"\n")) })}, nil
}

// installationSealer is a sealer that writes its key to the data directory when it first seals something, or earlier.
type installationSealer struct {
	*secret.Sealer
	keep func() error
}

// Seal implements [db.Sealer].
func (s *installationSealer) Seal(value []byte) ([]byte, error) {
	if err := s.keep(); err != nil {
		return nil, err
	}
	return s.Sealer.Seal(value)
}

// installationFile holds the identity of the directory's database.
const installationFile = "installation"

// installation returns the identity of the directory's database, or "" before the first start.
func (d *directory) installation() (string, error) {
	text, err := os.ReadFile(d.join(installationFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// checkDatabase refuses a database that is not the directory's own, because the sandboxes in the directory belong to the
// directory's database. id is the identity of the database, or "" for a new database.
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
		"set DATABASE_URL to the directory's own database, or ARBE_DATA_DIR to another directory; to replace the directory's own with this one, delete "+
			d.join(installationFile)+" and start again: the sandboxes that it does not know are then quarantined",
		"the data directory %s belongs to the database %s, and this database is %s", d.path, own, what)
}

// checkEmbedded refuses to create an embedded Postgres in a directory that belongs to an operator's database. Otherwise,
// a start without DATABASE_URL would create an empty installation beside the real one.
func (d *directory) checkEmbedded() error {
	if _, err := os.Stat(d.join(postgresDir)); err == nil {
		return nil
	}
	return d.checkDatabase("")
}

// setDatabase records the identity of the directory's database, unless an identity is already recorded. checkDatabase can
// then refuse another database later.
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

// existingSealer returns a sealer with the installation's key: the configured key, or the key in a directory. It never
// creates a key, because a running server could not open what another key sealed.
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

// login is the content of cli.json: the server's addresses and the credential for the command line of this machine. URL is
// the address for browsers, which may be a proxy's. Host is the address that the server listens on, which always works on
// this machine.
type login struct {
	Host  string `json:"host"`
	URL   string `json:"url"`
	Token string `json:"token"`
}

const loginFile = "cli.json"

// readLogin returns the login in the directory, or the zero login if it cannot be read.
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

// LocalDatabaseURL returns the URL of the embedded Postgres that runs in a data directory, as the owner of the schema. It
// returns "" if no Postgres runs there.
func LocalDatabaseURL(dataDir string) string {
	text, err := os.ReadFile(filepath.Join(dataDir, databaseURLFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
