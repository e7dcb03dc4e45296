package sandbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience is how long a test waits for an event.
const patience = 3 * time.Minute

// bench is a database with one house, and one server's resolver on it.
type bench struct {
	*dbtest.Database
	t       *testing.T
	owner   *pgx.Conn
	log     *stream.Log
	threads *thread.Threads
	scope   db.Scope
	cloud   *cloud
	boxes   *sandbox.Resolver
	// artifacts keeps the trees of benches with real boxes; nil for others.
	artifacts *artifact.Artifacts
	drivers   map[string]sandbox.Driver
}

func (b *bench) driver(name string) sandbox.Driver { return b.drivers[name] }

// setup returns a bench whose environments are built in a cloud.
func setup(t *testing.T) *bench {
	t.Helper()
	c := newCloud(t)
	return setupWith(t, c, map[string]sandbox.Driver{"cloud": c})
}

func setupWith(t *testing.T, c *cloud, drivers map[string]sandbox.Driver, repoRoots ...string) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10), t: t, cloud: c, drivers: drivers}
	b.owner = b.Owner(t)
	b.scope = b.house()
	var err error
	if b.log, err = stream.Open(t.Context(), b.DB, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.log.Close)
	b.threads = thread.New(b.DB, b.log)
	if c == nil {
		b.artifacts = artifact.New(artifact.Config{DB: b.DB, Blobs: blob.InPostgres(b.DB), Logger: slog.New(slog.DiscardHandler)})
	}
	b.boxes = b.server(drivers, repoRoots...)
	return b
}

// server returns another server's resolver on the database.
func (b *bench) server(drivers map[string]sandbox.Driver, repoRoots ...string) *sandbox.Resolver {
	return sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Drivers: drivers, RepoRoots: repoRoots, Logger: slog.New(slog.DiscardHandler),
		Artifacts: b.artifacts, SaveAfter: time.Nanosecond,
	})
}

// installation returns a resolver that labels its boxes with an installation.
func (b *bench) installation(id string) *sandbox.Resolver {
	return sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Drivers: map[string]sandbox.Driver{"cloud": b.cloud},
		Installation: id, Logger: slog.New(slog.DiscardHandler),
	})
}

// house makes a house with its owner, and returns the owner's scope.
func (b *bench) house() (s db.Scope) {
	b.t.Helper()
	err := b.owner.QueryRow(b.t.Context(), `
		with h as (insert into houses (name) values ('Home') returning id),
		     a as (insert into agents (kind, name) values ('human', 'Ada') returning id)
		insert into members (house_id, agent_id, role) select h.id, a.id, 'owner' from h, a returning house_id, agent_id::text`).
		Scan(&s.House, &s.Agent)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) environment(recipe sandbox.Recipe) string {
	b.t.Helper()
	if recipe.Driver == "" {
		recipe.Driver = "cloud"
	}
	env, err := b.boxes.CreateEnvironment(b.t.Context(), b.scope, "an environment", recipe)
	if err != nil {
		b.t.Fatal(err)
	}
	return env.ID
}

func (b *bench) thread(environment string) string {
	b.t.Helper()
	th, err := b.threads.Create(b.t.Context(), b.scope, thread.Draft{Environment: environment})
	if err != nil {
		b.t.Fatal(err)
	}
	return th.ID
}

// ran is the result of a command.
type ran struct {
	box    sandbox.Sandbox
	output string
	sandbox.Result
	err error
}

// try runs a shell command in a thread's sandbox.
func (b *bench) try(thread, line string) ran {
	return tryOn(b.t.Context(), b, b.boxes, thread, "", line)
}

func tryOn(ctx context.Context, b *bench, boxes *sandbox.Resolver, thread, environment, line string) (r ran) {
	var out bytes.Buffer
	r.box, r.Result, r.err = execOn(ctx, boxes, b.scope, thread, environment, sandbox.Command{Argv: []string{"/bin/sh", "-c", line}, Stdout: &out})
	r.output = out.String()
	return r
}

// execOn runs a command in a thread's sandbox.
func execOn(ctx context.Context, boxes *sandbox.Resolver, scope db.Scope, thread, environment string, cmd sandbox.Command) (box sandbox.Sandbox, result sandbox.Result, err error) {
	err = boxes.Use(ctx, scope, thread, environment, func(p sandbox.Handle) (err error) {
		box = p.Sandbox
		if cmd.Timeout, err = p.Timeout(cmd.Timeout); err == nil {
			result, err = p.Exec(ctx, cmd)
		}
		return err
	})
	return box, result, err
}

// sh runs a shell command that must succeed, and returns the sandbox and the output.
func (b *bench) sh(thread, line string) (sandbox.Sandbox, string) {
	b.t.Helper()
	r := b.try(thread, line)
	if r.err != nil || r.ExitCode != 0 {
		b.t.Fatalf("%s: exit code %d, %s", line, r.ExitCode, detail(r.err))
	}
	return r.box, r.output
}

// logged returns the payloads of one kind in a thread's log.
func logged[P entry.Payload](b *bench, thread string) (list []P) {
	b.t.Helper()
	entries, _, err := b.log.Read(b.t.Context(), stream.Ref{House: b.scope.House, Name: "arbe-thread-" + thread}, stream.Range{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		if p, ok := entry.As[P](e); ok {
			list = append(list, p)
		}
	}
	return list
}

// on returns the id of a thread's sandbox.
func (b *bench) on(thread string) string {
	b.t.Helper()
	th, err := b.threads.Get(b.t.Context(), b.scope, thread)
	if err != nil {
		b.t.Fatal(err)
	}
	return th.Sandbox
}

// share puts a thread on another thread's sandbox, like a task that works on its parent's tree.
func (b *bench) share(thread, with string) {
	b.t.Helper()
	b.exec("update threads set sandbox_id = (select sandbox_id from threads where id = $2) where id = $1", thread, with)
}

func (b *bench) exec(statement string, args ...any) {
	b.t.Helper()
	if _, err := b.owner.Exec(b.t.Context(), statement, args...); err != nil {
		b.t.Fatal(err)
	}
}

// rows returns the number of sandboxes in the database.
func (b *bench) rows() (n int) {
	b.t.Helper()
	if err := b.owner.QueryRow(b.t.Context(), "select count(*) from sandboxes").Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// status returns a sandbox's status in the database.
func (b *bench) status(id string) sandbox.Status {
	b.t.Helper()
	box, err := b.boxes.Sandbox(b.t.Context(), b.scope, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return box.Status
}

// deleteThread deletes a thread, and returns its sandboxes.
func (b *bench) deleteThread(id string) (boxes []string) {
	b.t.Helper()
	err := b.DB.In(b.t.Context(), b.scope, func(tx pgx.Tx) (err error) {
		boxes, err = b.threads.DeleteTx(b.t.Context(), tx, id)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return boxes
}

// diagnosed returns the steps of a diagnosis by name, and in order as "name result".
func diagnosed(ctx context.Context, t *testing.T, b *bench, boxes *sandbox.Resolver, env string, each ...func(sandbox.Check)) (by map[string]sandbox.Check, order []string) {
	t.Helper()
	by = map[string]sandbox.Check{}
	err := boxes.Diagnose(ctx, b.scope, env, false, func(c sandbox.Check) error {
		by[c.Name] = c
		order = append(order, c.Name+" "+string(c.Result))
		for _, f := range each {
			f(c)
		}
		return nil
	})
	if err != nil {
		t.Errorf("the diagnosis says %s", detail(err))
	}
	return by, order
}

func detail(err error) string {
	if err == nil {
		return "no error"
	}
	return fault.From(err).Detail()
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if got := fault.CodeOf(err); got != want {
		t.Errorf("the error is %q (%s), want %q", got, detail(err), want)
	}
}

// receive waits for one value.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal("it did not come")
	}
	return v
}
