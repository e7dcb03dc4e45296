package server_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// As docs/operating.md says about backups, four things recreate the installation on a new machine: the database, the bytes of
// artifacts, the secret key and the settings, all copied while the server runs.
func TestABackupMakesTheInstallationOnANewMachine(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"pg_dump", "pg_restore", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	old := served(t)
	old.BlobStore, old.SaveAfter = "directory", 50*time.Millisecond
	start(t, old)
	c := client(t, old)
	thread := newThread(t, c)
	said := say(t, c, thread, "before the backup")
	if got := output(t, old, thread, "echo kept > file; echo ran"); got != "ran\n" {
		t.Fatalf("the command prints %q", got)
	}
	lost := sandboxOf(t, c, thread)
	awaitSaved(t, c, lost)
	put, err := c.PutArtifact(t.Context(), &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: thread}, Label: "file"}, strings.NewReader("bytes of the artifact"))
	if err != nil {
		t.Fatal(err)
	}
	house := homeOf(t, old)
	if _, err := c.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "SOME_KEY", Value: []byte("value")}); err != nil {
		t.Fatal(err)
	}

	// Copy the database first, so that the copy may have unused bytes but never lacks any.
	dump := filepath.Join(t.TempDir(), "arbe.dump")
	execute(t, "pg_dump", "--format=custom", "--no-owner", "--file="+dump, old.DatabaseURL)
	restored := settings(t)
	restored.BlobStore, restored.MachineGone = "directory", time.Second
	if err := os.MkdirAll(restored.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	execute(t, "cp", "-a", filepath.Join(old.DataDir, "blobs"), filepath.Join(old.DataDir, "secret.key"), restored.DataDir)
	say(t, c, thread, "after the backup")

	restored.DatabaseURL = anotherPostgres(t)
	owner, err := pgx.Connect(t.Context(), restored.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = owner.Exec(t.Context(), "create role arbe_app nologin")
	owner.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	execute(t, "pg_restore", "--no-owner", "--exit-on-error", "--dbname="+restored.DatabaseURL, dump)
	start(t, restored)

	c = client(t, restored)
	for _, f := range server.Examine(t.Context(), restored, func(string) string { return "" }) {
		if f.Status == server.Problem {
			t.Errorf("arbe doctor says of %s: %s → %s", f.Part, f.Says, f.Next)
		}
	}
	list, err := c.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if got := list.String(); !strings.Contains(got, said.Id) || strings.Contains(got, "after the backup") {
		t.Errorf("the log has %s", got)
	}
	bytes, err := c.OpenArtifact(t.Context(), put.Id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer bytes.Close()
	if text, err := io.ReadAll(bytes); err != nil || string(text) != "bytes of the artifact" {
		t.Errorf("the artifact has %q (%v)", text, err)
	}
	// Rotation opens every secret of the house, and seals it again.
	if _, err := c.Secrets.RotateSecretKey(t.Context(), &arbev1.RotateSecretKeyRequest{HouseId: house}); err != nil {
		t.Errorf("the secrets cannot be opened: %v", err)
	}
	// The sandbox was on the old machine. The thread's next command gets another one, with the files that were saved.
	if got := output(t, restored, thread, "cat file; echo more >>file; cat file"); got != "kept\nkept\nmore\n" {
		t.Errorf("the command prints %q", got)
	}
	if now := sandboxOf(t, c, thread); now == lost || now == "" {
		t.Errorf("the thread is on the sandbox %q, and was on %q", now, lost)
	}
	if list, err = c.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread, Limit: 100}); err != nil {
		t.Fatal(err)
	}
	var resumed []entry.SandboxResumed
	for _, e := range list.Entries {
		if e.Type == (entry.SandboxResumed{}).Type() {
			resumed = append(resumed, decode[entry.SandboxResumed](t, e))
		}
	}
	if len(resumed) != 1 || resumed[0].PreviousSandboxID != lost || len(resumed[0].Tree) != 1 || resumed[0].Tree[0].Problem != "" || resumed[0].Tree[0].Files != 1 {
		t.Errorf("the log says of the replacement: %+v", resumed)
	}
}

// sandboxOf returns the sandbox of a thread.
func sandboxOf(t *testing.T, c *arbe.Client, thread string) string {
	t.Helper()
	got, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
	if err != nil {
		t.Fatal(err)
	}
	return got.Thread.SandboxId
}

// awaitSaved waits until the files of a sandbox are saved.
func awaitSaved(t *testing.T, c *arbe.Client, sandbox string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got, err := c.Sandboxes.GetSandboxLog(t.Context(), &arbev1.GetSandboxLogRequest{Id: sandbox})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Saved) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the files of the sandbox are not saved")
		}
	}
}

// anotherPostgres returns the address of a new PostgreSQL, as on a new machine.
func anotherPostgres(t *testing.T) string {
	t.Helper()
	dir := settings(t).DataDir
	postgres, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Fast: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { postgres.Stop(context.Background()) })
	return postgres.URL()
}

func execute(t *testing.T, program string, args ...string) {
	t.Helper()
	if said, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, said)
	}
}

func homeOf(t *testing.T, cfg server.Config) string {
	t.Helper()
	homes, err := client(t, cfg).Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return homes.Houses[0].Id
}
