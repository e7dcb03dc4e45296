package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// die makes a thread's row look as if its server never came back: a run is in progress, but its sandbox is gone and nobody
// follows it.
const die = `with made as (insert into sandboxes (house_id, environment_id, provider, provider_ref, status)
	select t.house_id, e.id, 'local', 'gone', 'dead' from threads t join environments e on e.house_id = t.house_id where t.id = $1 limit 1 returning id),
	bot as (select a.id from agents a join members m on m.agent_id = a.id join threads t on t.house_id = m.house_id where t.id = $1 and a.runtime = 'pi' limit 1)
	update threads set agent_id = bot.id, status = 'running', run_epoch = run_epoch + 1, run_started_at = now() - interval '1 hour',
	heartbeat_at = now() - interval '30 minutes', sandbox_id = made.id from made, bot where threads.id = $1`

// thread prune ends the runs that have died, and says why. With --dry-run it only says so.
func TestPruneEndsADeadRun(t *testing.T) {
	t.Parallel()
	server := startUp(t)
	thread := server.arbe(t, "thread", "create", "--name", "It dies", "-q")
	server.arbe(t, "thread", "create", "--name", "It has no run", "-q")
	if said := server.arbe(t, "thread", "prune"); said != "" {
		t.Errorf("without a run, it says %q", said)
	}
	url, err := os.ReadFile(filepath.Join(server.dataDir, "database_url"))
	if err != nil {
		t.Fatal(err)
	}
	owner, err := pgx.Connect(t.Context(), strings.TrimSpace(string(url)))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(context.WithoutCancel(t.Context()))
	status := func() (now string) {
		if err := owner.QueryRow(t.Context(), "select status from threads where id = $1", thread).Scan(&now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	const finds = " running failed the run was lost: its sandbox is gone"
	for attempt := 1; ; attempt++ { // the server may find it by itself, in between
		if _, err := owner.Exec(t.Context(), die, thread); err != nil {
			t.Fatal(err)
		}
		would := strings.Join(strings.Fields(server.arbe(t, "thread", "prune", "--dry-run")), " ")
		still := status()
		does := strings.Join(strings.Fields(server.arbe(t, "thread", "prune")), " ")
		if strings.HasSuffix(would, thread+finds) && still == "running" && strings.HasSuffix(does, thread+finds) {
			break
		} else if attempt == 5 {
			t.Fatalf("with --dry-run, it says %q, and the thread is %s then; without, it says %q", would, still, does)
		}
	}
	if now := status(); now != "failed" {
		t.Errorf("the thread is %s", now)
	}
	if said, err := server.command("thread", "diagnose", thread).CombinedOutput(); err == nil || !strings.Contains(string(said), "its sandbox is gone") {
		t.Errorf("then it is diagnosed as %q", said)
	}
	if said := server.arbe(t, "thread", "prune"); said != "" {
		t.Errorf("once the run has ended, it says %q", said)
	}
}
