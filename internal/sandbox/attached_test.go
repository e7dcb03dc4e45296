package sandbox_test

import (
	"context"
	"crypto/rand"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// keeper is a cloud that keeps only the names of uploaded files. Uploads for which slow reports true wait until they may end.
type keeper struct {
	*cloud
	slow func(name string) bool
	free chan struct{} // closed: they may

	mu    sync.Mutex
	names []string
}

func (k *keeper) Upload(ctx context.Context, _, at string, _ fs.FileMode, _ io.Reader) error {
	if k.slow(path.Base(at)) {
		select {
		case <-k.free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.names = append(k.names, path.Base(at))
	return nil
}

func (k *keeper) has(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.names, name)
}

func setupFiles(t *testing.T) (*bench, *keeper) {
	t.Helper()
	k := &keeper{cloud: newCloud(t), slow: func(string) bool { return false }, free: make(chan struct{})}
	b := setupWith(t, k.cloud, map[string]sandbox.Driver{"cloud": k})
	b.artifacts = artifact.New(artifact.Config{DB: b.DB, Blobs: blob.InPostgres(b.DB), Logger: slog.New(slog.DiscardHandler)})
	b.boxes = sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Drivers: b.drivers, Artifacts: b.artifacts, SaveAfter: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	return b, k
}

// attach attaches a file to a thread, and returns its name in the sandbox. Only the database thinks that it has this size.
func (b *bench) attach(thread, label string, size int) string {
	b.t.Helper()
	made, err := b.artifacts.Create(b.t.Context(), b.scope, artifact.Draft{Kind: artifact.File, Thread: thread, Label: label}, strings.NewReader(rand.Text()))
	if err == nil {
		err = b.DB.In(b.t.Context(), b.scope, func(tx pgx.Tx) error {
			return b.artifacts.AttachTx(b.t.Context(), tx, b.scope.House, thread, []string{made.ID}, true)
		})
	}
	if err != nil {
		b.t.Fatal(detail(err))
	}
	b.exec("update blobs set size = $2 where id = (select blob_id from artifacts where id = $1)", made.ID, size)
	return entry.FileName(label, made.ID)
}

// missing uses the sandbox of a thread, and returns the files that are not there.
func (b *bench) missing(thread string) (list []string) {
	b.t.Helper()
	err := b.boxes.Use(b.t.Context(), b.scope, thread, "", func(h sandbox.Handle) error {
		list = h.Missing()
		if told := h.Env()[sandbox.MissingFiles]; len(list) == 1 && told != list[0] {
			b.t.Errorf("commands are told that %q is missing", told)
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return list
}

// A command does not wait for a large file. It is told that the file is missing, and the file comes in the background.
func TestACommandDoesNotWaitForLargeFiles(t *testing.T) {
	t.Parallel()
	b, k := setupFiles(t)
	th := b.thread(b.environment(sandbox.Recipe{}))
	large, small := b.attach(th, "large.bin", entry.AtOnce+1), b.attach(th, "small.txt", 10)
	k.slow = func(name string) bool { return name == large }
	defer b.boxes.Tend(t.Context())()

	if got := b.missing(th); !slices.Equal(got, []string{large}) || !k.has(small) || k.has(large) {
		t.Fatalf("missing are %q", got)
	}
	close(k.free)
	for deadline := time.Now().Add(patience); len(b.missing(th)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the large file does not come")
		}
	}
	if !k.has(large) {
		t.Error("it is not there")
	}
}

// A command waits for small files, too, only for a limited time and for a limited total. What it did not get comes later, and
// did not fail.
func TestACommandWaitsForFilesForALimitedTime(t *testing.T) {
	t.Parallel()
	b, k := setupFiles(t)
	b.boxes.PlaceWithin(50 * time.Millisecond)
	th := b.thread(b.environment(sandbox.Recipe{}))
	b.missing(th)
	name := b.attach(th, "small.txt", 10)
	k.slow = func(string) bool { return true }
	if got := b.missing(th); !slices.Equal(got, []string{name}) {
		t.Fatalf("missing are %q", got)
	}
	close(k.free)
	b.boxes.PlaceWithin(patience)
	if got := b.missing(th); len(got) > 0 {
		t.Errorf("then, missing are %q", got)
	}
	for range 5 { // more than a command waits for
		b.attach(th, "part.bin", entry.AtOnce)
	}
	if got := b.missing(th); len(got) != 1 {
		t.Errorf("of 5 files with 80 MiB, missing are %q", got)
	}
}
