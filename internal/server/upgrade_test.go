package server_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// olderCommit is the variable with the commit from which the test upgrades, or "before" for the version before. olderDir is the
// variable with the directory that keeps its program. make upgrade-test sets both: building a program takes too long for
// make test.
const olderCommit, olderDir = "ARBE_TEST_OLDER", "ARBE_TEST_OLDER_DIR"

// Servers of this version and of an older one work on one database at the same time, as in a rolling upgrade: the older
// server runs, the newer version migrates, both serve, and the older one ends. Nothing that was said through either is lost.
func TestARollingUpgrade(t *testing.T) {
	t.Parallel()
	program := buildOlder(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Text: "the answer to " + r.Asked(), HoldHeaders: r.Seen == 0}
	})
	older := settings(t)
	older.DatabaseURL = dbtest.Empty(t)
	var err error
	if older.SecretKey, err = secret.NewKey(); err != nil {
		t.Fatal(err)
	}
	hosts := "ARBE_MODEL_PRIVATE_HOSTS=" + strings.TrimPrefix(models.URL, "http://")
	command := exec.Command(program, "serve")
	command.Env = []string{hosts}
	old := startProgram(t, older, command)
	u := &upgrade{T: t, old: client(t, older), house: homeOf(t, older)}
	if _, err := u.old.Models.SetModelEndpoint(t.Context(), &arbev1.SetModelEndpointRequest{HouseId: u.house, Name: "scripted", BaseUrl: models.URL + "/v1", Key: "sk-0123456789"}); err != nil {
		t.Fatal(err)
	}
	if _, err := u.old.Models.SetDefaultModel(t.Context(), &arbev1.SetDefaultModelRequest{HouseId: u.house, Model: "scripted/one"}); err != nil {
		t.Fatal(err)
	}
	u.thread = newThread(t, u.old)
	u.says(u.old, "before the upgrade")
	// A turn that the older server has begun, and will not end: its model's answer is held.
	held := u.says(u.old, "@arbe who ends this turn?")
	if _, err := models.Await(ctx, 1); err != nil {
		t.Fatal(err)
	}

	newer := settings(t)
	newer.DatabaseURL, newer.SecretKey = older.DatabaseURL, older.SecretKey
	if err := server.Migrate(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	u.says(u.old, "after the migration, through the older server")
	command = exec.Command(os.Args[0])
	command.Env = []string{asServer + "=1", hosts}
	startProgram(t, newer, command)
	u.new = client(t, newer)

	for _, way := range []struct{ to, from *arbe.Client }{{u.old, u.new}, {u.new, u.old}} {
		said := u.says(way.to, "through one server, read through the other")
		awaitEntry(t, way.from, u.thread, said.Id)
		thread := newThread(t, way.to)
		u.answers(way.to, way.from, thread, "a question")
		command := run(t, way.to, thread, "echo ran")
		if r := decode[entry.CommandResult](t, awaitEntry(t, way.from, thread, command.ResultId)); r.Output != "ran\n" {
			t.Errorf("the command prints %q %s", r.Output, r.Error)
		}
	}
	if err := old.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	u.answered(u.new, u.thread, held.Id) // the newer server asks the model again
	old.Wait()
	u.says(u.new, "after the upgrade")
	u.hasAll(u.new)
}

// upgrade is a rolling upgrade, with clients of its servers.
type upgrade struct {
	*testing.T
	old, new      *arbe.Client
	house, thread string
	said          []string // the ids of what was said in the thread
}

func (u *upgrade) says(through *arbe.Client, text string) *arbev1.Entry {
	u.Helper()
	said := say(u, through, u.thread, text)
	u.said = append(u.said, said.Id)
	return said
}

// answers asks the bot through one server, and waits for the answer through the other.
func (u *upgrade) answers(to, from *arbe.Client, thread, question string) {
	u.Helper()
	u.answered(from, thread, say(u, to, thread, "@arbe "+question).Id)
}

func (u *upgrade) answered(through *arbe.Client, thread, question string) {
	u.Helper()
	await(u.T, through, thread, func(event *arbev1.TailResponse) bool {
		if event.GetEntry().GetType() != "chat" {
			return false
		}
		c := decode[entry.Chat](u.T, event.GetEntry())
		return c.Turn != nil && strings.HasPrefix(c.Text, "the answer to ") && c.ReplyTo == question
	})
}

// hasAll checks that the thread has everything that was said, once and in order.
func (u *upgrade) hasAll(through *arbe.Client) {
	u.Helper()
	list, err := through.Entries.List(u.Context(), &arbev1.ListRequest{ThreadId: u.thread, Limit: 1000})
	if err != nil {
		u.Fatal(err)
	}
	var has []string
	for _, e := range list.Entries {
		if e.Type == "chat" && decode[entry.Chat](u.T, e).Turn == nil {
			has = append(has, e.Id)
		}
	}
	if strings.Join(has, " ") != strings.Join(u.said, " ") {
		u.Errorf("the thread has %q, and these were said: %q", has, u.said)
	}
}

// buildOlder returns the path of the older version's program. It builds the program if no earlier test has.
func buildOlder(t *testing.T) string {
	t.Helper()
	commit, keep := os.Getenv(olderCommit), os.Getenv(olderDir)
	switch {
	case commit == "" || keep == "":
		t.Skip("it builds a program of an older version: run make upgrade-test")
	case commit == "before":
		commit = dbtest.OlderCommit(t)
	}
	id, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--verify", commit+"^{commit}").Output()
	if err != nil {
		t.Skipf("the history does not reach %s: fetch more of it", commit)
	}
	commit = strings.TrimSpace(string(id))
	program := filepath.Join(keep, commit, "arbe")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	t.Logf("building the program of %s", commit)
	source := t.TempDir()
	archive := filepath.Join(source, "source.tar")
	execute(t, "git", "-C", "../..", "archive", "--output="+archive, commit)
	execute(t, "tar", "-C", source, "-xf", archive)
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", program, "./cmd/arbe")
	build.Dir = source
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", commit, err, said)
	}
	return program
}
