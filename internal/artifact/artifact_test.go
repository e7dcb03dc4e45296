package artifact_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world has artifacts in a directory, for two houses.
type world struct {
	*artifact.Artifacts
	t            *testing.T
	database     *dbtest.Database
	owner        *pgxpool.Pool // of the schema
	dir          string
	store        *blob.Directory
	ours, theirs db.Scope
}

func newWorld(t *testing.T, c artifact.Config) *world {
	t.Helper()
	w := &world{t: t, database: dbtest.Reuse(t, 10), dir: filepath.Join(t.TempDir(), "blobs")}
	var err error
	w.owner, err = pgxpool.New(t.Context(), w.database.OwnerURL)
	w.must(err)
	t.Cleanup(w.owner.Close)
	w.store, err = blob.OpenDirectory(w.dir)
	w.must(err)
	t.Cleanup(func() { w.store.Close() })
	if c.Blobs == nil {
		c.Blobs = w.store
	}
	c.DB, c.Logger = w.database.DB, slog.New(slog.DiscardHandler)
	w.Artifacts = artifact.New(c)
	w.ours, w.theirs = w.house(), w.house()
	return w
}

// house creates a house and a person who owns it.
func (w *world) house() db.Scope {
	w.t.Helper()
	return w.houseOf(ask[string](w, "insert into agents (kind, name) values ('human', 'Ada') returning id::text"))
}

// houseOf creates a house of a person.
func (w *world) houseOf(agent string) db.Scope {
	w.t.Helper()
	house := ask[string](w, "insert into houses (name) values ('Home') returning id")
	ask[string](w, "insert into members (house_id, agent_id, role) values ($1, $2, 'owner') returning role", house, agent)
	return db.Scope{House: house, Agent: agent}
}

// thread creates a thread, or a fork if source is not empty.
func (w *world) thread(scope db.Scope, source string) string {
	w.t.Helper()
	return ask[string](w, `
		with id as (select generate_short_id() as id),
		     s as (insert into streams (house_id, name, source_id, fork_seq, fork_sub)
		       select $1, 'arbe-thread-' || id.id, f.id, case when f.id is not null then 0 end, case when f.id is not null then 0 end
		       from id left join streams f on f.name = 'arbe-thread-' || $2)
		insert into threads (id, house_id, stream_id) select id, $1, 'arbe-thread-' || id from id returning id`, scope.House, source)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(fault.From(err).Detail())
	}
}

// ask runs a statement without row-level security and reads its one value.
func ask[T any](w *world, statement string, args ...any) (value T) {
	w.t.Helper()
	if err := w.owner.QueryRow(w.t.Context(), statement, args...).Scan(&value); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
	return value
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.owner.Exec(w.t.Context(), statement, args...); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

func (w *world) create(scope db.Scope, d artifact.Draft, content string) artifact.Artifact {
	w.t.Helper()
	made, err := w.Create(w.t.Context(), scope, d, strings.NewReader(content))
	w.must(err)
	return made
}

func (w *world) read(a artifact.Artifact) string {
	w.t.Helper()
	content, err := w.Open(w.t.Context(), a)
	w.must(err)
	defer content.Close()
	text, err := io.ReadAll(content)
	w.must(err)
	return string(text)
}

func (w *world) collect() {
	w.t.Helper()
	w.must(w.Collect(w.t.Context()))
}

// files returns the number of blobs in the store.
func (w *world) files() (n int) {
	w.t.Helper()
	w.must(filepath.WalkDir(w.dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return err
	}))
	return n
}

func (w *world) wantFiles(n int) {
	w.t.Helper()
	if got := w.files(); got != n {
		w.t.Errorf("the store has %d blobs, want %d", got, n)
	}
}

// wantNothing asserts that neither rows nor bytes are left.
func (w *world) wantNothing() {
	w.t.Helper()
	w.wantFiles(0)
	if n := ask[int](w, "select (select count(*) from artifacts) + (select count(*) from blobs)"); n != 0 {
		w.t.Errorf("%d rows are left", n)
	}
}

func wantCode(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if f := fault.From(err); f == nil || f.Code != code || f.Next == "" {
		t.Errorf("it says %v, want %s and what to do next", err, code)
	}
}

func TestAnArtifactIsReadAsItWasMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, artifact.Config{})
	thread := w.thread(w.ours, "")
	made := w.create(w.ours, artifact.Draft{
		ID: "report000001", Kind: "screenshot", Label: "page.png", ExternalID: "entry-1", MIMEType: "image/png", Thread: thread, Run: "run1",
		Resource: "res1", Metadata: []byte(`{"width": 800}`),
	}, "the bytes")
	got, err := w.Get(t.Context(), w.ours, made.ID)
	w.must(err)
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", made) {
		t.Errorf("it is\n%+v, was made as\n%+v", got, made)
	}
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("the bytes"))); got.ByteRef != want || got.Size != 9 || !got.HasBytes || got.Author != w.ours.Agent ||
		got.Kind != "screenshot" || got.Label != "page.png" || got.ExternalID != "entry-1" || got.MIMEType != "image/png" || got.Thread != thread || got.Run != "run1" ||
		got.Resource != "res1" || string(got.Metadata) != `{"width": 800}` || got.CreatedAt.IsZero() {
		t.Errorf("it is %+v", got)
	}
	if text := w.read(got); text != "the bytes" {
		t.Errorf("it reads %q", text)
	}

	t.Run("from the position of a Seek", func(t *testing.T) {
		content, err := w.Open(t.Context(), got)
		w.must(err)
		defer content.Close()
		if err := iotest.TestReader(content, []byte("the bytes")); err != nil {
			t.Error(err)
		}
	})
	t.Run("a reference has no bytes", func(t *testing.T) {
		link, err := w.Create(t.Context(), w.ours, artifact.Draft{Kind: "commit", ByteRef: "git:abc", ExternalID: "abc"}, nil)
		w.must(err)
		if link.HasBytes || link.ByteRef != "git:abc" || link.Size != 0 || link.ID == "" {
			t.Errorf("it is %+v", link)
		}
		_, err = w.Open(t.Context(), link)
		wantCode(t, err, fault.Precondition)
	})
	t.Run("an empty artifact has zero bytes, which are stored", func(t *testing.T) {
		empty := w.create(w.ours, artifact.Draft{}, "")
		if !empty.HasBytes || empty.Size != 0 || empty.Kind != artifact.File || w.read(empty) != "" {
			t.Errorf("it is %+v", empty)
		}
	})
	t.Run("another house sees nothing of it", func(t *testing.T) {
		_, err := w.Get(t.Context(), w.theirs, made.ID)
		wantCode(t, err, fault.NotFound)
		list, err := w.List(t.Context(), w.theirs, "", "", db.Newest, 10)
		w.must(err)
		if len(list) != 0 {
			t.Errorf("it lists %v", list)
		}
		w.must(w.Delete(t.Context(), w.theirs, made.ID))
		if _, err := w.Get(t.Context(), w.ours, made.ID); err != nil {
			t.Error("another house deleted it")
		}
		_, err = w.Create(t.Context(), w.theirs, artifact.Draft{Thread: thread}, strings.NewReader("x"))
		wantCode(t, err, fault.NotFound)
	})
	t.Run("a house's and a thread's are listed in pages, newest first", func(t *testing.T) {
		var ids []string
		for before := db.Newest; ; {
			page, err := w.List(t.Context(), w.ours, "", "", before, 1)
			w.must(err)
			if len(page) == 0 {
				break
			}
			ids = append(ids, page[0].ID)
			before = db.Cursor{Time: page[0].CreatedAt, ID: page[0].ID}
		}
		if len(ids) != 3 || ids[2] != made.ID {
			t.Errorf("the house's are %v", ids)
		}
		list, err := w.List(t.Context(), w.ours, thread, "", db.Newest, 10)
		w.must(err)
		if len(list) != 1 || list[0].ID != made.ID {
			t.Errorf("the thread's are %v", list)
		}
	})
}

func TestTheSameIDAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, artifact.Config{MaxSize: 100})
	d := artifact.Draft{ID: "chosen000001", Label: "a", Metadata: []byte(`{"a":1,"b":2}`)}
	first := w.create(w.ours, d, "content")
	d.Metadata = []byte(`{"b":2, "a":1}`)
	if again := w.create(w.ours, d, "content"); again.ID != first.ID || again.CreatedAt != first.CreatedAt {
		t.Errorf("again it is %+v", again)
	}
	w.collect()
	w.wantFiles(1)
	for name, c := range map[string]struct {
		scope   db.Scope
		d       artifact.Draft
		content io.Reader
		code    fault.Code
	}{
		"with other bytes":     {w.ours, d, strings.NewReader("other"), fault.Exists},
		"without bytes":        {w.ours, d, nil, fault.Exists},
		"with another label":   {w.ours, artifact.Draft{ID: d.ID, Label: "b", Metadata: d.Metadata}, strings.NewReader("content"), fault.Exists},
		"with too many bytes":  {w.ours, d, strings.NewReader(strings.Repeat("x", 101)), fault.Exhausted},
		"with bytes cut short": {w.ours, d, iotest.ErrReader(errors.New("cut")), fault.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Create(t.Context(), c.scope, c.d, c.content)
			wantCode(t, err, c.code)
		})
	}
	w.collect()
	if got, err := w.Get(t.Context(), w.ours, first.ID); err != nil || w.read(got) != "content" {
		t.Errorf("it changed: %+v, %v", got, err)
	}
	t.Run("is another artifact in another house", func(t *testing.T) {
		if other := w.create(w.theirs, d, "content"); other.ID == first.ID || other.House != w.theirs.House {
			t.Errorf("it is %+v", other)
		}
	})
	t.Run("is not the id itself", func(t *testing.T) {
		if again := w.create(w.ours, artifact.Draft{ID: first.ID}, "by the id"); again.ID == first.ID || first.ID == d.ID {
			t.Errorf("it is %+v", again)
		}
	})
	t.Run("many concurrent calls create one", func(t *testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if _, err := w.Create(t.Context(), w.ours, artifact.Draft{ID: "chosen000002"}, strings.NewReader("at once")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := ask[int](w, "select count(*) from artifacts where id = $1", db.IDFor(w.ours.House, "chosen000002")); n != 1 {
			t.Errorf("there are %d", n)
		}
	})
}

func TestAFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  artifact.Config
		draft   artifact.Draft
		content io.Reader
		code    fault.Code
	}{
		"an upload that breaks off":           {content: io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)), code: fault.Canceled},
		"one that is larger than an artifact": {config: artifact.Config{MaxSize: 10}, content: strings.NewReader("eleven bytes"), code: fault.Exhausted},
		"one that never ends":                 {config: artifact.Config{MaxSize: 10 << 20}, content: zeros{}, code: fault.Exhausted},
		"one that is larger than the quota":   {config: artifact.Config{Quota: 10}, content: strings.NewReader("eleven bytes"), code: fault.Exhausted},
		"one whose thread does not exist":     {draft: artifact.Draft{Thread: "nosuchthread"}, content: strings.NewReader("x"), code: fault.NotFound},
		"one whose caller leaves":             {content: iotest.ErrReader(context.Canceled), code: fault.Canceled},
		"one with bytes here and elsewhere":   {draft: artifact.Draft{ByteRef: "git:x"}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose kind is not a word":        {draft: artifact.Draft{Kind: "A kind"}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose id is invalid":             {draft: artifact.Draft{ID: "../../etc"}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose label is long":             {draft: artifact.Draft{Label: strings.Repeat("é", 201)}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose label is not text":         {draft: artifact.Draft{Label: "\xff"}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose label has a NUL":           {draft: artifact.Draft{Label: "a\x00"}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose media type is invalid":     {draft: artifact.Draft{MIMEType: "text html"}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose metadata is a list":        {draft: artifact.Draft{Metadata: []byte(`[]`)}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose metadata is null":          {draft: artifact.Draft{Metadata: []byte(`null`)}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose metadata has a NUL":        {draft: artifact.Draft{Metadata: []byte(`{"a":"\u0000"}`)}, content: strings.NewReader("x"), code: fault.Invalid},
		"one whose metadata is large":         {draft: artifact.Draft{Metadata: []byte(`{"a":"` + strings.Repeat("x", 8<<10) + `"}`)}, content: strings.NewReader("x"), code: fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.config)
			_, err := w.Create(t.Context(), w.ours, c.draft, c.content)
			wantCode(t, err, c.code)
			w.wantNothing()
		})
	}
	t.Run("a store that fails halfway", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, artifact.Config{})
		broken := &brokenStore{Store: w.store}
		a := artifact.New(artifact.Config{DB: w.database.DB, Blobs: broken, Logger: slog.New(slog.DiscardHandler)})
		_, err := a.Create(t.Context(), w.ours, artifact.Draft{}, strings.NewReader("the bytes"))
		wantCode(t, err, fault.Unavailable)
		w.wantNothing()
	})
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// brokenStore stores half of a blob and fails.
type brokenStore struct{ blob.Store }

func (s *brokenStore) Put(ctx context.Context, key blob.Key, r io.Reader) error {
	return errors.Join(s.Store.Put(ctx, key, io.LimitReader(r, 4)), fault.New(fault.Unavailable, "the store is away", "wait"))
}

func TestTheQuotaOfAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, artifact.Config{Quota: 140, PersonQuota: 150})
	first := w.house()
	second := w.houseOf(first.Agent)
	w.create(first, artifact.Draft{}, strings.Repeat("x", 90))
	theirs := w.create(second, artifact.Draft{}, strings.Repeat("x", 60)) // counts, although the other house has the same bytes
	_, err := w.Create(t.Context(), second, artifact.Draft{}, strings.NewReader("y"))
	wantCode(t, err, fault.Exhausted)
	w.create(w.theirs, artifact.Draft{}, strings.Repeat("x", 100)) // in another person's house
	w.must(w.Delete(t.Context(), second, theirs.ID))
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			_, err := w.Create(t.Context(), []db.Scope{first, second}[i%2], artifact.Draft{}, strings.NewReader(strings.Repeat(fmt.Sprint(i), 9)))
			if err != nil && fault.CodeOf(err) != fault.Exhausted {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := ask[int](w, "select sum(size) from blobs b where house_id = any ($1) and exists (select from artifacts where blob_id = b.id)", []string{first.House, second.House}); n != 144 {
		t.Errorf("the two houses have %d bytes, want 90, and six times nine", n)
	}
}

func TestTheQuotaOfAHouse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, artifact.Config{Quota: 100})
	full := strings.Repeat("x", 60)
	first := w.create(w.ours, artifact.Draft{}, full)
	t.Run("holds for all of its artifacts", func(t *testing.T) {
		_, err := w.Create(t.Context(), w.ours, artifact.Draft{}, strings.NewReader(strings.Repeat("y", 60)))
		wantCode(t, err, fault.Exhausted)
		w.wantFiles(1)
	})
	t.Run("does not count the same content twice, nor another house's", func(t *testing.T) {
		w.create(w.theirs, artifact.Draft{}, full)
		second := w.create(w.ours, artifact.Draft{}, strings.Repeat("z", 20))
		w.create(w.ours, artifact.Draft{}, strings.Repeat("z", 20))
		w.create(w.ours, artifact.Draft{}, strings.Repeat("w", 20))
		_, err := w.Create(t.Context(), w.ours, artifact.Draft{}, strings.NewReader("one more"))
		wantCode(t, err, fault.Exhausted)
		w.must(w.Delete(t.Context(), w.ours, first.ID))
		w.create(w.ours, artifact.Draft{}, strings.Repeat("v", 60)) // before the deleted one is collected
		if text := w.read(second); text != strings.Repeat("z", 20) {
			t.Errorf("another one reads %q", text)
		}
	})
	t.Run("is not exceeded by many at once", func(t *testing.T) {
		house := w.house()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				_, err := w.Create(t.Context(), house, artifact.Draft{}, strings.NewReader(strings.Repeat(fmt.Sprint(i), 30)))
				if err != nil && fault.CodeOf(err) != fault.Exhausted {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := ask[int](w, "select coalesce(sum(size), 0) from blobs where house_id = $1", house.House); n != 90 {
			t.Errorf("the house has %d bytes, want 90", n)
		}
	})
	t.Run("limits the number of concurrent uploads", func(t *testing.T) {
		house := w.house()
		w.exec("insert into blobs (house_id) select $1 from generate_series(1, 64)", house.House)
		_, err := w.Create(t.Context(), house, artifact.Draft{}, strings.NewReader("x"))
		wantCode(t, err, fault.Exhausted)
	})
}

func TestTheSameContentIsStoredOncePerHouse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, artifact.Config{})
	one, two := w.create(w.ours, artifact.Draft{}, "same"), w.create(w.ours, artifact.Draft{}, "same")
	w.create(w.theirs, artifact.Draft{}, "same")
	w.collect()
	w.wantFiles(2)
	if n := ask[int](w, "select count(*) from blobs"); n != 2 {
		t.Errorf("there are %d blobs, want one per house", n)
	}
	w.must(w.Delete(t.Context(), w.ours, one.ID))
	w.collect()
	if text := w.read(two); text != "same" {
		t.Errorf("the other one reads %q", text)
	}
	w.must(w.Delete(t.Context(), w.ours, two.ID))
	w.must(w.Delete(t.Context(), w.ours, two.ID)) // again
	w.collect()
	w.wantFiles(1)
}

func TestAnArtifactIsDeletedWithItsThreadAndHouse(t *testing.T) {
	t.Parallel()
	t.Run("it is deleted with its thread", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, artifact.Config{})
		thread := w.thread(w.ours, "")
		w.create(w.ours, artifact.Draft{Thread: thread}, "the thread's")
		kept := w.create(w.ours, artifact.Draft{}, "the house's")
		w.exec("delete from threads where id = $1", thread)
		w.collect()
		w.wantFiles(1)
		if text := w.read(kept); text != "the house's" {
			t.Errorf("the other one reads %q", text)
		}
	})
	t.Run("a fork of its thread keeps it until the last fork is deleted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, artifact.Config{})
		thread := w.thread(w.ours, "")
		made := w.create(w.ours, artifact.Draft{Thread: thread}, "said before the fork")
		fork := w.thread(w.ours, thread)
		w.exec("delete from threads where id = $1", thread)
		w.collect()
		got, err := w.Get(t.Context(), w.ours, made.ID)
		w.must(err)
		if got.Thread != "" || w.read(got) != "said before the fork" {
			t.Errorf("it is %+v", got)
		}
		w.exec("delete from threads where id = $1", fork)
		w.collect()
		w.wantNothing()
	})
	t.Run("it and its bytes are deleted with its house", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, artifact.Config{})
		w.create(w.ours, artifact.Draft{Thread: w.thread(w.ours, "")}, "x")
		w.create(w.ours, artifact.Draft{}, "y")
		w.exec("delete from houses where id = $1", w.ours.House)
		w.collect()
		w.wantNothing()
		if n := ask[int](w, "select count(*) from blob_garbage"); n != 0 {
			t.Errorf("%d keys are still to be removed", n)
		}
	})
	t.Run("bytes that cannot be deleted now are deleted later", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, artifact.Config{})
		made := w.create(w.ours, artifact.Draft{}, "x")
		w.must(w.Delete(t.Context(), w.ours, made.ID))
		dir := filepath.Join(w.dir, w.ours.House)
		name := ask[string](w, "select id from blobs")
		w.must(os.Rename(filepath.Join(dir, name), filepath.Join(w.dir, "aside")))
		w.must(os.MkdirAll(filepath.Join(dir, name, "in the way"), 0o700))
		wantCode(t, w.Collect(t.Context()), fault.Unavailable)
		w.must(os.RemoveAll(filepath.Join(dir, name)))
		w.must(os.Rename(filepath.Join(w.dir, "aside"), filepath.Join(dir, name)))
		w.collect()
		w.wantNothing()
	})
}

func TestAnUploadWhoseServerDied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, artifact.Config{})
	up, err := w.Upload(t.Context(), w.ours, strings.NewReader("the bytes"))
	w.must(err)
	w.collect()
	w.wantFiles(1) // it may still be committed

	w.exec("update blobs set created_at = now() - interval '3 hours'")
	w.collect()
	w.wantNothing()

	t.Run("cannot be committed after it was collected", func(t *testing.T) {
		err := w.database.DB.In(t.Context(), w.ours, func(tx pgx.Tx) error {
			_, err := w.CreateTx(t.Context(), tx, w.ours, artifact.Draft{}, &up)
			return err
		})
		wantCode(t, err, fault.Aborted)
	})
}

func TestAnUploadThatIsCommittedIsNotDiscarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, artifact.Config{})
	up, err := w.Upload(t.Context(), w.ours, strings.NewReader("the bytes"))
	w.must(err)
	var made artifact.Artifact
	w.must(w.database.DB.In(t.Context(), w.ours, func(tx pgx.Tx) error {
		made, err = w.CreateTx(t.Context(), tx, w.ours, artifact.Draft{}, &up)
		return err
	}))
	w.Discard(t.Context(), w.ours, up) // as after a commit whose answer was lost
	w.collect()
	if text := w.read(made); text != "the bytes" {
		t.Errorf("it reads %q", text)
	}
}

// Two servers store, delete and collect the same few contents all the time. The bytes of an existing artifact must
// always exist.
func TestTheCollectorTakesNothingInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, artifact.Config{})
	second, err := db.Open(t.Context(), w.database.ServerURL, db.Options{MaxConns: 10})
	w.must(err)
	t.Cleanup(second.Close)
	servers := []*artifact.Artifacts{w.Artifacts, artifact.New(artifact.Config{DB: second, Blobs: w.store, Logger: slog.New(slog.DiscardHandler)})}
	contents := []string{"one", "two"}
	var writers, collectors sync.WaitGroup
	done := make(chan struct{})
	for _, server := range servers {
		collectors.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := server.Collect(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
		for range 4 {
			writers.Go(func() {
				for i := range 40 {
					content := contents[i%len(contents)]
					made, err := server.Create(t.Context(), w.ours, artifact.Draft{}, strings.NewReader(content))
					if err != nil {
						t.Error(fault.From(err).Detail())
						return
					}
					bytesOf, err := server.Open(t.Context(), made)
					if err != nil {
						t.Error(err)
						return
					}
					got, err := io.ReadAll(bytesOf)
					bytesOf.Close()
					if err != nil || !bytes.Equal(got, []byte(content)) {
						t.Errorf("it reads %q: %v", got, err)
						return
					}
					if err := server.Delete(t.Context(), w.ours, made.ID); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	writers.Wait()
	close(done)
	collectors.Wait()
	w.collect()
	w.wantNothing()
}

func TestFileNames(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"report.pdf":                  "report.pdf",
		"Bericht über März (2).txt":   "Bericht über März (2).txt",
		"../../etc/passwd":            "_.._etc_passwd",
		`C:\temp\evil.exe`:            "C__temp_evil.exe",
		".bashrc":                     "bashrc",
		"a\r\nSet-Cookie: x":          "a__Set-Cookie_ x",
		"invoice\u202efdp.exe":        "invoice_fdp.exe",
		`x"; filename="y`:             "x__ filename__y",
		"":                            "file-id0000000001",
		"..":                          "file-id0000000001",
		"/":                           "file-id0000000001",
		strings.Repeat("é", 120) + "": strings.Repeat("é", 100),
	} {
		if got := (artifact.Artifact{ID: "id0000000001", Kind: "file", Label: label}).FileName(); got != want {
			t.Errorf("%q becomes %q, want %q", label, got, want)
		}
	}
}
