package blob_test

import (
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/blob/blobtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// Set the credential of the test's S3. No other test needs one in its environment.
func init() {
	os.Setenv("AWS_ACCESS_KEY_ID", "key")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
}

var houses = blobtest.Houses{"0house000001", "0house000002"}

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := blob.OpenDirectory(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	blobtest.Run(t, store, houses, 64<<10)
	t.Run("other users of the machine cannot read it", func(t *testing.T) {
		err := filepath.WalkDir(filepath.Join(dir, "blobs"), func(path string, e fs.DirEntry, err error) error {
			if info, err := e.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has the mode %v", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("the error names a directory that cannot be created", func(t *testing.T) {
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := blob.OpenDirectory(filepath.Join(file, "blobs")); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("it says %v", err)
		}
	})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for _, house := range houses {
		if _, err := d.Owner(t).Exec(t.Context(), "insert into houses (id, name) values ($1, 'Home')", house); err != nil {
			t.Fatal(err)
		}
	}
	blobtest.Run(t, blob.InPostgres(d.DB), houses, 1<<20)
}

func TestS3(t *testing.T) {
	t.Parallel()
	memory := s3mem.New()
	if err := memory.CreateBucket("bytes"); err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(gofakes3.New(memory).Server())
	t.Cleanup(service.Close)
	open := func(address string) *blob.S3 {
		t.Helper()
		store, err := blob.OpenS3(address)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	store := open("s3://bytes/arbe/test?endpoint=" + service.URL + "&region=us-east-1")
	if err := store.Check(t.Context()); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	blobtest.Run(t, store, houses, 8<<20)

	t.Run("a missing bucket and an unreachable service are reported", func(t *testing.T) {
		if err := open("s3://nosuch?region=us-east-1&endpoint=" + service.URL).Check(t.Context()); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("of the bucket it says %v", err)
		}
		if err := open("s3://bytes?region=us-east-1&endpoint=http://127.0.0.1:1").Check(t.Context()); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("of the service it says %v", err)
		}
	})
	t.Run("an invalid address is refused", func(t *testing.T) {
		for _, address := range []string{"", "s3://", "bytes", "http://bytes", "s3://key:secret@bytes", "s3://bytes?endpoint=host:80", "s3://bytes?secret=x", "s3://%zz"} {
			if _, err := blob.OpenS3(address); fault.CodeOf(err) != fault.Invalid {
				t.Errorf("of %q it says %v", address, err)
			}
		}
	})
}
