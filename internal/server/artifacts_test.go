package server_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/secret"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// keep creates an artifact in a new thread.
func keep(t *testing.T, c *arbe.Client, content string) *arbev1.Artifact {
	t.Helper()
	made, err := c.PutArtifact(t.Context(), &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: newThread(t, c)}}, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// holds asserts that an artifact's bytes can be read.
func holds(t *testing.T, c *arbe.Client, id, content string) {
	t.Helper()
	r, err := c.OpenArtifact(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if text, err := io.ReadAll(r); err != nil || string(text) != content {
		t.Errorf("it reads %q: %v", text, err)
	}
}

func TestAnArtifactOutlivesItsServer(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.ArtifactMaxSize, cfg.ArtifactQuota = 10, 15
	s := start(t, cfg)
	made := keep(t, client(t, cfg), "the bytes")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(filepath.Join(cfg.DataDir, "blobs", made.HouseId, "*")); err != nil || len(files) != 1 {
		t.Errorf("the data directory has %v", files)
	}
	start(t, cfg)
	holds(t, client(t, cfg), made.Id, "the bytes")

	t.Run("the settings bound it", func(t *testing.T) {
		for content, want := range map[string]string{"eleven long": "an artifact has at most 10 bytes", "nine long": "the artifacts of this house may have at most 15 bytes"} {
			_, err := client(t, cfg).PutArtifact(t.Context(), &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_HouseId{HouseId: made.HouseId}}, strings.NewReader(content))
			if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), want) {
				t.Errorf("of %q it says %v", content, err)
			}
		}
	})
}

// An artifact may be larger than the bodies of other requests.
func TestALargeArtifactIsKept(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	start(t, cfg)
	made := keep(t, client(t, cfg), strings.Repeat("0123456789abcdef", 33<<16))
	if made.Size != 33<<20 {
		t.Errorf("it has %d bytes", made.Size)
	}
}

func TestServersOnOneDatabaseShareArtifacts(t *testing.T) {
	t.Parallel()
	a, b := settings(t), settings(t)
	a.DatabaseURL = dbtest.Migrated(t)
	b.DatabaseURL = a.DatabaseURL
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a.SecretKey, b.SecretKey = key, key
	first := start(t, a)
	start(t, b)
	made := keep(t, client(t, a), "through a")
	holds(t, client(t, b), made.Id, "through a")
	if _, err := os.Stat(filepath.Join(a.DataDir, "blobs")); err == nil {
		t.Error("the bytes are on a's machine")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	holds(t, client(t, b), made.Id, "through a")
}
