//go:build linux

package dispatch_test

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// whole is what an artifact holds.
func (b *bench) whole(id string) (artifact.Artifact, string) {
	b.t.Helper()
	a, err := b.artifacts.Get(b.t.Context(), b.scope, id)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	content, err := b.artifacts.Open(b.t.Context(), a)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return a, string(text)
}

// kept are the artifacts of the bench's house.
func (b *bench) kept() []artifact.Artifact {
	b.t.Helper()
	list, err := b.artifacts.List(b.t.Context(), b.scope, "", "", db.Newest, 100)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return list
}

func TestOutputThatTheResultDoesNotHoldIsKeptWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(sandbox.Recipe{})

	t.Run("one that the result holds is not kept a second time", func(t *testing.T) {
		if r := b.sh(th, "head -c 131072 /dev/zero | tr '\\0' x"); r.Truncated || r.ArtifactID != "" || len(b.kept()) != 0 {
			t.Errorf("it is artifact %q", r.ArtifactID)
		}
	})
	t.Run("every byte, also those that are no text", func(t *testing.T) {
		const line = `printf 'a\000b\377'; seq 1 200000; printf end`
		id := b.ask(th, line)
		r := b.result(th, id)
		var want strings.Builder
		want.WriteString("a\x00b\xff")
		for n := 1; n <= 200000; n++ {
			fmt.Fprintln(&want, n)
		}
		want.WriteString("end")
		if !r.Truncated || r.ArtifactID == "" || r.ArtifactPart || r.ArtifactBytes != int64(want.Len()) || r.OutputBytes != r.ArtifactBytes+4 { // as text two bytes are three each
			t.Fatalf("the result is of %d bytes, artifact %q of %d", r.OutputBytes, r.ArtifactID, r.ArtifactBytes)
		}
		a, text := b.whole(r.ArtifactID)
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
		r := b.sh(th, "head -c 6000000 /dev/zero | tr '\\0' y")
		if r.ArtifactBytes != maxArtifact || !r.ArtifactPart || r.OutputBytes != 6000000 {
			t.Fatalf("the result is of %d bytes, artifact %q of %d", r.OutputBytes, r.ArtifactID, r.ArtifactBytes)
		}
		if _, text := b.whole(r.ArtifactID); text != strings.Repeat("y", maxArtifact) {
			t.Errorf("it has %d bytes", len(text))
		}
	})
	t.Run("of one that was cancelled what it had printed", func(t *testing.T) {
		id := b.ask(th, "head -c 300000 /dev/zero | tr '\\0' z; echo now; sleep 600")
		b.printed(th, id, "now")
		b.cancel(th, id)
		r := b.result(th, id)
		if _, text := b.whole(r.ArtifactID); !r.Cancelled || text != strings.Repeat("z", 300000)+"now\n" {
			t.Errorf("it has %d bytes: %s", len(text), r.Outcome())
		}
	})
	t.Run("of one for which the house has no room the result still says how it ended", func(t *testing.T) {
		before := len(b.kept())
		r := b.sh(th, "head -c 4000000 /dev/zero | tr '\\0' q; exit 3")
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

// logged is what a server logs.
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
	b.driver = newLocal(t, t.TempDir())
	log := &logged{}
	b.tune = func(c *dispatch.Config) {
		c.SpoolSize, c.Logger = 2<<20, slog.New(slog.NewTextHandler(log, nil))
	}
	b.server = b.serve()
	first, second := b.thread(sandbox.Recipe{}), b.thread(sandbox.Recipe{})
	const said = "only the first part of an output is stored"

	holds := b.ask(first, "head -c 700000 /dev/zero | tr '\\0' a; echo now; sleep 600")
	b.printed(first, holds, "now")
	r := b.sh(second, "head -c 700000 /dev/zero | tr '\\0' b; exit 3")
	if _, text := b.whole(r.ArtifactID); r.ExitCode != 3 || r.OutputBytes != 700000 || !r.ArtifactPart || r.ArtifactBytes != int64(len(text)) ||
		len(text) > 1<<20-700000 || len(text) < 128<<10 || strings.Trim(text, "b") != "" {
		t.Errorf("beside another one, %d bytes are kept: %s", len(text), r.Outcome())
	}
	if !log.has(said) {
		t.Error("nothing is logged")
	}
	b.cancel(first, holds)
	if r := b.result(first, holds); r.ArtifactPart || r.ArtifactBytes != 700004 {
		t.Errorf("of the one that was there first %d bytes are kept", r.ArtifactBytes)
	}
	// Its worker gives the room back before it tells the end.
	if r := b.sh(second, "head -c 700000 /dev/zero | tr '\\0' c"); r.ArtifactPart || r.ArtifactBytes != 700000 {
		t.Errorf("after it, %d bytes are kept", r.ArtifactBytes)
	}
}

// A result that is in the log already has no artifact, so none is made.
func TestTheResultIsWrittenOnceWithItsOutput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(sandbox.Recipe{})
	id := b.ask(th, "head -c 300000 /dev/zero | tr '\\0' z; echo now; sleep 600")
	b.printed(th, id, "now")
	first := entry.NewDraft(entry.ResultID(id), "", entry.CommandResult{CommandID: id, ExitCode: -1, Error: "told by another one"})
	if _, err := b.log.Append(t.Context(), b.ref(th), first); err != nil {
		t.Fatal(detail(err))
	}
	b.cancel(th, id)
	if err := b.stop(t.Context()); err != nil { // when it has, the worker is done
		t.Fatal(detail(err))
	}
	if n := b.results(th, id); n != 1 || len(b.kept()) != 0 {
		t.Errorf("%d results, and the artifacts %v", n, b.kept())
	}
	var blobs int
	if err := b.Owner(t).QueryRow(t.Context(), "select count(*) from blobs").Scan(&blobs); err != nil || blobs != 0 {
		t.Errorf("%d uploads stay: %v", blobs, err)
	}
}

// roomy lets artifacts be large.
func roomy(c *dispatch.Config) { c.Artifacts.MaxSize, c.Artifacts.Quota = 64<<20, 256<<20 }

// numbers prints 420,000 lines of 100 bytes, 42 MB, as fast as it can. It waits for a file after the first n lines.
func numbers(n int) string {
	return fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= 420000; i++) { printf "%%099d\n", i; if (i == %d) { fflush(); system("until test -e go; do sleep 0.05; done") } } }'`, n)
}

// isNumbers reports whether a text is what numbers prints.
func isNumbers(text string) bool {
	if len(text) != 42_000_000 {
		return false
	}
	for i := range 420_000 {
		if n, err := strconv.Atoi(text[100*i : 100*i+99]); err != nil || n != i+1 {
			return false
		}
	}
	return true
}

func TestLargeOutputIsKeptWhole(t *testing.T) {
	t.Parallel()
	t.Run("at full speed", func(t *testing.T) {
		t.Parallel()
		b := database(t)
		b.driver, b.tune = newLocal(t, t.TempDir()), roomy
		b.server = b.serve()
		th := b.thread(sandbox.Recipe{})
		r := b.sh(th, "touch go; "+numbers(1))
		if _, text := b.whole(r.ArtifactID); r.ArtifactPart || r.OutputBytes != 42_000_000 || !isNumbers(text) {
			t.Errorf("of %d bytes, %d are kept, or others: %s", r.OutputBytes, len(text), r.Outcome())
		}
	})
	for name, printed := range map[string]int{
		"when the server is killed at the beginning": 1, // the rest is printed while no server reads
		"when the server is killed after 30 MB":      300_000,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, th := witness(t)
			dir := t.TempDir()
			b.kill(dir, th, numbers(printed)+"; exit 3", fmt.Sprintf("%099d\n", printed))
			b.driver, b.tune = newLocal(t, dir), roomy
			b.server = b.serve()
			b.sh(th, "touch go")
			r := b.result(th, "left")
			if _, text := b.whole(r.ArtifactID); r.ExitCode != 3 || r.ArtifactPart || r.OutputBytes != 42_000_000 || !isNumbers(text) {
				t.Errorf("of %d bytes, %d are kept, or others: %s", r.OutputBytes, len(text), r.Outcome())
			}
		})
	}
	t.Run("except the middle of one that no artifact holds", func(t *testing.T) {
		t.Parallel()
		b := database(t)
		b.driver = newLocal(t, t.TempDir())
		b.tune = func(c *dispatch.Config) { c.SpoolSize = 1 << 20 }
		b.server = b.serve()
		th := b.thread(sandbox.Recipe{})
		r := b.sh(th, "touch go; "+numbers(1))
		if !r.ArtifactPart || r.OutputBytes != 42_000_000 || !strings.HasSuffix(r.OutputTail, fmt.Sprintf("%099d\n", 420_000)) {
			t.Errorf("of %d bytes, artifact %q has %d, and the tail ends %q", r.OutputBytes, r.ArtifactID, r.ArtifactBytes, r.OutputTail[max(0, len(r.OutputTail)-100):])
		}
	})
}
