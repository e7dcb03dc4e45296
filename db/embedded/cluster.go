package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/internal/fault"
)

// statusLine is where postmaster.pid reports whether connections are accepted, counted from 0
// (LOCK_FILE_LINE_PM_STATUS in PostgreSQL's pidfile.h).
const statusLine = 7

// makeCluster creates the cluster in another directory and moves it to its place when it is complete, so that a crash
// leaves nothing that a later start would mistake for a cluster.
func makeCluster(ctx context.Context, dir *directory, bin binaries, who account, fast bool) error {
	work, err := os.MkdirTemp(dir.path, half+"cluster-*")
	if err != nil {
		return dir.unusable(err)
	}
	defer os.RemoveAll(work)
	password, err := dir.newPassword()
	if err != nil {
		return err
	}
	// initdb accepts a password only in a file, which it must be able to read as its own user.
	secret := filepath.Join(work, "password")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		return dir.unusable(err)
	}
	if err := errors.Join(who.own(work), who.own(secret)); err != nil {
		return dir.unusable(err)
	}
	// C.UTF-8 is preferred, because it knows the case of every letter and sorts the same everywhere. Older systems have
	// only C.
	output, err := initdb(ctx, work, bin, who, fast, "C.UTF-8")
	if err != nil && strings.Contains(output, "invalid locale name") {
		output, err = initdb(ctx, work, bin, who, fast, "C")
	}
	if err != nil {
		return initdbFailed(ctx, dir, bin, who, output, err)
	}
	if err := os.Rename(filepath.Join(work, "data"), dir.cluster()); err != nil {
		return dir.unusable(err)
	}
	return syncDirectory(dir.path)
}

// initdb creates work/data with work/password as the superuser's password, and returns its output.
func initdb(ctx context.Context, work string, bin binaries, who account, fast bool, locale string) (string, error) {
	parent, err := os.Open(work)
	if err != nil {
		return "", err
	}
	defer parent.Close()
	cmd := who.initdb(bin, parent, fast, locale)
	// A file and not a pipe, because a grandchild that survives must not delay the wait for initdb.
	log, err := os.CreateTemp(filepath.Dir(work), half+"log-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := spawn(cmd, syscall.SIGKILL)
	if err != nil {
		return "", err
	}
	select {
	case <-proc.exited:
		return tailOf(log.Name(), 0), proc.end()
	case <-ctx.Done():
		proc.killGroup()
		return "", ctx.Err()
	}
}

// initdb returns the command that creates a cluster in a folder.
func (a account) initdb(bin binaries, parent *os.File, fast bool, locale string) *exec.Cmd {
	auth := "scram-sha-256"
	if fast {
		auth = "md5" // because scram computes thousands of hashes for each connection
	}
	cmd := a.commandIn(bin.path("initdb"), parent, func(parent string) []string {
		return []string{
			"-D", filepath.Join(parent, "data"),
			"--pwfile", filepath.Join(parent, "password"),
			"--username", superuser,
			"--auth", auth,
			"--encoding", "UTF8",
			"--locale", locale,
			"--data-checksums",
			"--no-instructions",
		}
	})
	if fast {
		cmd.Args = append(cmd.Args, "--no-sync")
	}
	return cmd
}

func initdbFailed(ctx context.Context, dir *directory, bin binaries, who account, output string, err error) error {
	_, ran := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return fault.From(ctx.Err())
	case !ran:
		return who.cannotRun(bin, err)
	case strings.Contains(output, "No space left on device"):
		return dir.unusable(syscall.ENOSPC)
	}
	return fault.Newf(fault.Precondition, "correct what its output says, or name other binaries in "+binariesSetting,
		"PostgreSQL %s in %s could not create a cluster", bin.version, bin.dir).Because(fmt.Errorf("%w\n%s", err, output))
}

// postmasterReady reports whether the PostgreSQL with this pid accepts connections. It reads the status file, because
// refused connections would fill the log, and another server could answer on the port.
func (d *directory) postmasterReady(pid int) bool {
	file := d.postmasterFile()
	return file.pid == pid && file.status == "ready"
}

// postmasterFile is the content of postmaster.pid; the zero value if there is none.
type postmasterFile struct {
	pid    int
	status string
}

func (d *directory) postmasterFile() postmasterFile {
	b, err := os.ReadFile(filepath.Join(d.cluster(), "postmaster.pid"))
	if err != nil {
		return postmasterFile{}
	}
	lines := bytes.Split(b, []byte("\n"))
	var file postmasterFile
	_, _ = fmt.Sscan(string(lines[0]), &file.pid)
	if len(lines) > statusLine {
		file.status = string(bytes.TrimSpace(lines[statusLine]))
	}
	return file
}

// ensureDatabase checks that the database accepts our connection, and creates it if it is missing, as after the first
// start and after a crash during it.
func ensureDatabase(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err == nil {
		return conn.Close(ctx)
	}
	switch sqlState(err) {
	case pgerrcode.InvalidCatalogName:
		return createDatabase(ctx, url)
	case pgerrcode.InvalidPassword:
		return fault.New(fault.Precondition, "the database refuses the password kept beside it",
			"restore the file `password` from a backup of the database directory").Because(err)
	}
	return unreachable(err)
}

func createDatabase(ctx context.Context, url string) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return unreachable(err)
	}
	cfg.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return unreachable(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{database}.Sanitize()); err != nil {
		return unreachable(err)
	}
	return nil
}

func unreachable(cause error) error {
	return fault.New(fault.Unavailable, "PostgreSQL started but refuses our connection",
		"start again; if it stays, read postgres.log in the database directory").Because(cause)
}

func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}
