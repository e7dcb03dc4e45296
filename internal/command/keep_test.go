//go:build linux

package command_test

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// content returns an artifact and its bytes.
func (b *bench) content(id string) (artifact.Artifact, string) {
	b.t.Helper()
	a, err := b.artifacts.Get(b.t.Context(), b.Scope, id)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	r, err := b.artifacts.Open(b.t.Context(), a)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return a, string(text)
}

// kept returns the artifacts of the house.
func (b *bench) kept() []artifact.Artifact {
	b.t.Helper()
	list, err := b.artifacts.List(b.t.Context(), b.Scope, "", "", db.Newest, 100)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return list
}

func testCompleteOutput(t *testing.T, b *bench) {
	th := b.Thread(sandbox.Recipe{})

	t.Run("one that the result holds is not kept a second time", func(t *testing.T) {
		if r := b.Sh(th, "head -c 131072 /dev/zero | tr '\\0' x"); r.Truncated || r.ArtifactID != "" || len(b.kept()) != 0 {
			t.Errorf("it is artifact %q", r.ArtifactID)
		}
	})
	t.Run("every byte, also those that are no text", func(t *testing.T) {
		const line = `printf 'a\000b\377'; seq 1 200000; printf end`
		id := b.Ask(th, line)
		r := b.Result(th, id)
		var want strings.Builder
		want.WriteString("a\x00b\xff")
		for n := 1; n <= 200000; n++ {
			fmt.Fprintln(&want, n)
		}
		want.WriteString("end")
		if !r.Truncated || r.ArtifactID == "" || r.ArtifactPart || r.ArtifactBytes != int64(want.Len()) || r.OutputBytes != r.ArtifactBytes+4 { // as text, two of the bytes become three each
			t.Fatalf("the result is of %d bytes, artifact %q of %d", r.OutputBytes, r.ArtifactID, r.ArtifactBytes)
		}
		a, text := b.content(r.ArtifactID)
		if text != want.String() {
			t.Errorf("it has %d bytes, want %d, or others", len(text), want.Len())
		}
		if !strings.Contains(string(a.Metadata), fmt.Sprintf(`"output_bytes": %d`, want.Len())) {
			t.Errorf("its metadata are %s", a.Metadata)
		}
		if a.Kind != artifact.Output || a.Thread != th || a.ExternalID != id || a.Author != "" ||
			a.FileName() != "output of printf _a_000b_377__ seq 1 200000_ printf end.txt" {
			t.Errorf("it is %+v, named %q", a, a.FileName())
		}
		if !strings.Contains(r.Plain(), "omitted: see artifact "+r.ArtifactID) {
			t.Error("the result as text does not say where it is")
		}
	})
	t.Run("of one that is larger than an artifact its first part", func(t *testing.T) {
		r := b.Sh(th, "head -c 6000000 /dev/zero | tr '\\0' y")
		if r.ArtifactBytes != maxArtifact || !r.ArtifactPart || r.OutputBytes != 6000000 {
			t.Fatalf("the result is of %d bytes, artifact %q of %d", r.OutputBytes, r.ArtifactID, r.ArtifactBytes)
		}
		if _, text := b.content(r.ArtifactID); text != strings.Repeat("y", maxArtifact) {
			t.Errorf("it has %d bytes", len(text))
		}
	})
	t.Run("of one that was cancelled what it had printed", func(t *testing.T) {
		id := b.Ask(th, "head -c 300000 /dev/zero | tr '\\0' z; echo now; sleep 600")
		b.Printed(th, id, "now")
		b.Cancel(th, id)
		r := b.Result(th, id)
		if _, text := b.content(r.ArtifactID); !r.Cancelled || text != strings.Repeat("z", 300000)+"now\n" {
			t.Errorf("it has %d bytes: %s", len(text), r.Outcome())
		}
	})
	t.Run("of one for which the house has no room the result still says how it ended", func(t *testing.T) {
		before := len(b.kept())
		r := b.Sh(th, "head -c 4000000 /dev/zero | tr '\\0' q; exit 3")
		if r.ExitCode != 3 || !r.Truncated || r.ArtifactID != "" || r.OutputBytes != 4000000 || len(b.kept()) != before {
			t.Errorf("it ended with %d, artifact %q", r.ExitCode, r.ArtifactID)
		}
	})
	t.Run("and nothing stays of the files where it was", func(t *testing.T) {
		left, err := os.ReadDir(b.spool)
		if err != nil || len(left) > 0 {
			t.Errorf("%v stay: %v", left, err)
		}
	})
}

// logged collects what a server logs.
type logged struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.lines.String(), text)
}

func TestTheOutputsOfAServerShareItsDisk(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = commandtest.RealBoxes(t)
	log := &logged{}
	b.tune = func(c *config) {
		c.SpoolSize, c.Logger = 2<<20, slog.New(slog.NewTextHandler(log, nil))
	}
	b.use(b.serve())
	first, second := b.Thread(sandbox.Recipe{}), b.Thread(sandbox.Recipe{})
	const said = "only the first part of an output is stored"

	holds := b.Ask(first, "head -c 700000 /dev/zero | tr '\\0' a; echo now; sleep 600")
	b.Printed(first, holds, "now")
	r := b.Sh(second, "head -c 700000 /dev/zero | tr '\\0' b; exit 3")
	if _, text := b.content(r.ArtifactID); r.ExitCode != 3 || r.OutputBytes != 700000 || !r.ArtifactPart || r.ArtifactBytes != int64(len(text)) ||
		len(text) > 1<<20-700000 || len(text) < 128<<10 || strings.Trim(text, "b") != "" {
		t.Errorf("beside another one, %d bytes are kept: %s", len(text), r.Outcome())
	}
	if !log.has(said) {
		t.Error("nothing is logged")
	}
	b.Cancel(first, holds)
	if r := b.Result(first, holds); r.ArtifactPart || r.ArtifactBytes != 700004 {
		t.Errorf("of the one that was there first %d bytes are kept", r.ArtifactBytes)
	}
	// The first command's worker frees its space before it writes the result.
	if r := b.Sh(second, "head -c 700000 /dev/zero | tr '\\0' c"); r.ArtifactPart || r.ArtifactBytes != 700000 {
		t.Errorf("after it, %d bytes are kept", r.ArtifactBytes)
	}
}

// A result that is in the log already has no artifact, so none is made.
func TestTheResultIsWrittenOnceWithItsOutput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.Thread(sandbox.Recipe{})
	id := b.Ask(th, "head -c 300000 /dev/zero | tr '\\0' z; echo now; sleep 600")
	b.Printed(th, id, "now")
	first := entry.NewDraft(entry.ResultID(id), "", entry.CommandResult{CommandID: id, ExitCode: -1, Error: "told by another one"})
	if _, err := b.Log.Append(t.Context(), b.Ref(th), first); err != nil {
		t.Fatal(detail(err))
	}
	b.Cancel(th, id)
	if err := b.stop(t.Context()); err != nil { // when it has, the worker is done
		t.Fatal(detail(err))
	}
	if n := b.Results(th, id); n != 1 || len(b.kept()) != 0 {
		t.Errorf("%d results, and the artifacts %v", n, b.kept())
	}
	var blobs int
	if err := b.Owner(t).QueryRow(t.Context(), "select count(*) from blobs").Scan(&blobs); err != nil || blobs != 0 {
		t.Errorf("%d uploads stay: %v", blobs, err)
	}
}

func TestLargeOutputIsKeptWhole(t *testing.T) {
	t.Parallel()
	t.Run("at full speed", func(t *testing.T) {
		t.Parallel()
		b := database(t)
		b.driver, b.tune = commandtest.RealBoxes(t), roomy
		b.use(b.serve())
		th := b.Thread(sandbox.Recipe{})
		r := b.Sh(th, "touch go; "+numbers(1))
		if _, text := b.content(r.ArtifactID); r.ArtifactPart || r.OutputBytes != 42_000_000 || !isNumbers(text) {
			t.Errorf("of %d bytes, %d are kept, or others: %s", r.OutputBytes, len(text), r.Outcome())
		}
	})
	t.Run("except the middle of one that no artifact holds", func(t *testing.T) {
		t.Parallel()
		b := database(t)
		b.driver = commandtest.RealBoxes(t)
		b.tune = func(c *config) { c.SpoolSize = 1 << 20 }
		b.use(b.serve())
		th := b.Thread(sandbox.Recipe{})
		r := b.Sh(th, "touch go; "+numbers(1))
		if !r.ArtifactPart || r.OutputBytes != 42_000_000 || !strings.HasSuffix(r.OutputTail, fmt.Sprintf("%099d\n", 420_000)) {
			t.Errorf("of %d bytes, artifact %q has %d, and the tail ends %q", r.OutputBytes, r.ArtifactID, r.ArtifactBytes, r.OutputTail[max(0, len(r.OutputTail)-100):])
		}
	})
}
