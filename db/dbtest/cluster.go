package dbtest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/secret"
)

// shared is the cluster of this process.
var shared struct {
	once     sync.Once
	err      error
	url      string
	template string
	sealer   *secret.Sealer
	stop     func()
	database atomic.Int64

	mu   sync.Mutex
	conn *pgx.Conn // of the superuser; see execute
}

// makeDatabase makes a database from a template and returns its name. An empty template is the migrated one.
func makeDatabase(template string) (name string, err error) {
	shared.once.Do(func() { shared.err = start() })
	if shared.err != nil {
		return "", fmt.Errorf("no Postgres to test with: %w", shared.err)
	}
	name = fmt.Sprintf("arbe_test_%d_%d", os.Getpid(), shared.database.Add(1))
	// The files are copied, because the other strategy writes each page of the catalogs to the WAL.
	return name, execute("create database " + name + " strategy file_copy template " + cmp.Or(template, shared.template))
}

// start finds or starts the Postgres and makes the migrated template.
func start() error {
	ctx := context.Background()
	var err error
	if shared.sealer, err = newSealer(); err != nil {
		return err
	}
	if shared.url = os.Getenv("ARBE_TEST_DATABASE_URL"); shared.url == "" {
		if shared.url, shared.stop, err = Launch(ctx); err != nil {
			return err
		}
	}
	return makeTemplate(ctx, shared.url)
}

// makeTemplate makes the migrated template, unless another test process on this Postgres has made it. The template
// gets its name only when it is complete.
func makeTemplate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext('arbe.dbtest'))"); err != nil {
		return err
	}
	shared.template = "arbe_template_" + db.SchemaDigest()[:16]
	var exists bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", shared.template).Scan(&exists); err != nil || exists {
		return err
	}
	for _, statement := range []string{"drop database if exists arbe_template_new with (force)", "create database arbe_template_new"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if _, err := db.Migrate(ctx, withDatabase(url, "arbe_template_new"), shared.sealer); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "alter database arbe_template_new rename to "+shared.template)
	return err
}

// Launch starts a Postgres for tests and returns the URL of its superuser. It does not wait for the disk, and keeps
// its files in memory if there is room. remove stops it and deletes its files.
func Launch(ctx context.Context) (url string, remove func(), err error) {
	removeAbandoned(memory)
	return launch(ctx, inMemory(), true)
}

// launch starts a Postgres in a new directory below parent; empty is the temporary directory.
func launch(ctx context.Context, parent string, fast bool) (url string, remove func(), err error) {
	dir, err := os.MkdirTemp(parent, fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		return "", nil, err
	}
	// Everyone may enter the directory, because Postgres may run as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", nil, err
	}
	server, err := embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "postgres"), Fast: fast, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return server.URL(), func() { server.Stop(context.WithoutCancel(ctx)); os.RemoveAll(dir) }, nil
}

func newSealer() (*secret.Sealer, error) {
	key, err := secret.NewKey()
	if err != nil {
		return nil, err
	}
	return secret.NewSealer(key, nil)
}

// execute runs a statement of the cluster's superuser. One connection at a time is enough, because Postgres copies
// one template at a time anyway.
func execute(statement string) error {
	ctx := context.Background()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.conn == nil || shared.conn.IsClosed() {
		var err error
		if shared.conn, err = pgx.Connect(ctx, shared.url); err != nil {
			return err
		}
	}
	_, err := shared.conn.Exec(ctx, statement)
	return err
}

func withDatabase(raw, name string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err) // ARBE_TEST_DATABASE_URL is a URL
	}
	u.Path = "/" + name
	return u.String()
}
