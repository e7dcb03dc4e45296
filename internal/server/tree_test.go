package server_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/server"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// deleting is a server whose only sandbox is being deleted. The tests kill this server. Locks on rows of its database hold it
// up at the point where a test kills it.
type deleting struct {
	t       *testing.T
	cfg     server.Config
	server  *exec.Cmd
	owner   *pgx.Conn // the owner of the database, whose connection takes the locks
	gate    string    // a file that the setup of a sandbox waits for; every sandbox sees it
	thread  string
	sandbox string
}

func newDeleting(t *testing.T) *deleting {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root's sandboxes outlive a killed server")
	}
	cfg := settings(t)
	cfg.Local.Grace, cfg.DatabaseURL = 2*time.Minute, dbtest.Migrated(t)
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	shown := filepath.Join(filepath.Dir(cfg.DataDir), "shown")
	if err := os.Mkdir(shown, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.SecretKey, cfg.Local.ReadOnly = key, []string{shown}
	d := &deleting{t: t, cfg: cfg, gate: filepath.Join(shown, "go"), server: startProcess(t, cfg)}
	if d.owner, err = pgx.Connect(t.Context(), cfg.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.owner.Close(context.Background()) })
	d.open()

	c := d.client()
	homes, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	house := homes.Houses[0].Id
	slow := "echo waiting; until test -e " + d.gate + "; do sleep 0.02; done"
	env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: house, Name: "slow", Config: &arbev1.EnvironmentConfig{Setup: slow}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house, EnvironmentId: env.Environment.Id})
	if err != nil {
		t.Fatal(err)
	}
	d.thread = made.Thread.Id
	if got := output(t, cfg, d.thread, "echo new > new"); got != "" {
		t.Fatalf("the command prints %q", got)
	}
	d.sandbox = d.on()
	return d
}

func (d *deleting) client() *arbe.Client { return client(d.t, d.cfg) }

// open lets setups pass, and close makes them wait.
func (d *deleting) open() {
	d.t.Helper()
	if err := os.WriteFile(d.gate, nil, 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *deleting) close() {
	d.t.Helper()
	if err := os.Remove(d.gate); err != nil {
		d.t.Fatal(err)
	}
}

// on returns the sandbox of the thread.
func (d *deleting) on() string {
	d.t.Helper()
	got, err := d.client().Threads.GetThread(d.t.Context(), &arbev1.GetThreadRequest{Id: d.thread})
	if err != nil {
		d.t.Fatal(err)
	}
	return got.Thread.SandboxId
}

// request asks for the deletion of the sandbox, and does not wait for it.
func (d *deleting) request() {
	c := d.client()
	go func() {
		_, _ = c.Sandboxes.DestroySandbox(context.Background(), &arbev1.DestroySandboxRequest{Id: d.sandbox}) // the server dies meanwhile
	}()
}

// until waits until a query of the database is true.
func (d *deleting) until(query string, args ...any) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 3*time.Minute)
	defer cancel()
	for done := false; !done; time.Sleep(10 * time.Millisecond) {
		if err := d.owner.QueryRow(ctx, query, args...).Scan(&done); err != nil {
			d.t.Fatal(err)
		}
	}
}

// killedAt asks for the deletion while a statement locks rows, and kills the server when it waits for them.
func (d *deleting) killedAt(lock string) {
	d.t.Helper()
	tx, err := d.owner.Begin(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(d.t.Context(), lock); err != nil {
		d.t.Fatal(err)
	}
	d.request()
	d.until("select exists (select from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid)))")
	d.kill()
}

func (d *deleting) kill() {
	d.t.Helper()
	if err := d.server.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	d.server.Wait()
}

func (d *deleting) restart() {
	d.t.Helper()
	d.server = startProcess(d.t, d.cfg)
}

// boxes returns the names of the sandboxes on the machine's disk.
func (d *deleting) boxes() (names []string) {
	d.t.Helper()
	list, err := os.ReadDir(filepath.Join(d.cfg.DataDir, "local", "boxes"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// The server is killed in the middle of deleting a sandbox, and again while it creates the replacement. Whatever came first,
// the thread gets its files back, once.
func TestFilesOutliveAServerThatIsKilledWhileTheirSandboxIsDeleted(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]func(d *deleting){
		"while the files are saved": func(d *deleting) {
			d.killedAt("lock table artifacts in exclusive mode")
		},
		"when they are saved, and the sandbox still counts as live": func(d *deleting) {
			d.killedAt("select from sandboxes for no key update")
			var saved bool
			err := d.owner.QueryRow(d.t.Context(), "select saved_at is not null from sandbox_trees where sandbox_id = $1", d.sandbox).Scan(&saved)
			if err != nil || !saved {
				d.t.Errorf("the files were not saved when the server was killed (%v)", err)
			}
		},
		"when the sandbox counts as dead": func(d *deleting) {
			d.request()
			d.until("select status = 'dead' from sandboxes where id = $1", d.sandbox)
			d.kill()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeleting(t)
			killed(d)
			d.restart()
			if _, err := d.client().Sandboxes.DestroySandbox(t.Context(), &arbev1.DestroySandboxRequest{Id: d.sandbox}); err != nil {
				t.Fatal(err)
			}
			if left := d.boxes(); len(left) > 0 {
				t.Errorf("the deleted sandbox left %v", left)
			}

			d.close()
			command := run(t, d.client(), d.thread, "cat new")
			var said strings.Builder
			await(t, d.client(), d.thread, func(event *arbev1.TailResponse) bool {
				said.Write(event.GetDelta().GetData())
				return strings.Contains(said.String(), "waiting\n")
			})
			if got := d.on(); got != d.sandbox {
				t.Errorf("the thread moved to %s, which is not ready", got)
			}
			d.kill()
			d.open()
			d.restart()
			result := decode[entry.CommandResult](t, awaitEntry(t, d.client(), d.thread, command.ResultId))
			if result.ExitCode != 0 || result.Output != "new\n" {
				t.Errorf("the result is %+v", result)
			}
			if next := d.on(); next == d.sandbox || len(d.boxes()) != 1 || d.boxes()[0] != next {
				t.Errorf("the thread is on %s, and there are %v", next, d.boxes())
			}
			list, err := d.client().Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: d.thread, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			var resumed []entry.SandboxResumed
			for _, e := range list.Entries {
				if e.Type == (entry.SandboxResumed{}).Type() {
					resumed = append(resumed, decode[entry.SandboxResumed](t, e))
				}
			}
			if len(resumed) != 1 || resumed[0].PreviousSandboxID != d.sandbox || len(resumed[0].Tree) != 1 || resumed[0].Tree[0].Problem != "" || resumed[0].Tree[0].Files != 1 {
				t.Errorf("the log says of replacements: %+v", resumed)
			}
		})
	}
}
