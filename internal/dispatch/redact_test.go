//go:build linux

package dispatch_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

// canary is a secret that must come out nowhere. traces are the forms in which it would.
const canary = "sk-canary-4f9ac1/77e0+b2d38"

func traces() map[string]string {
	all := map[string]string{"plain": canary, "hexadecimal": hex.EncodeToString([]byte(canary))}
	for before := range 3 {
		form := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + canary))
		all[fmt.Sprintf("base64 %d", before)] = strings.TrimRight(form[4:len(form)-4], "=")
	}
	return all
}

// withSecrets makes the bench's servers remove the secrets of the house, and plants the canary.
func (b *bench) withSecrets() *secret.Secrets {
	b.t.Helper()
	secrets := secret.New(b.DB, b.Sealer, nil, nil)
	b.tune = func(c *dispatch.Config) { c.Secrets = secrets }
	if _, _, err := secrets.Set(b.t.Context(), b.scope, "CANARY", []byte(canary), nil); err != nil {
		b.t.Fatal(detail(err))
	}
	return secrets
}

func TestACanaryInOutput(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newLocal(t, t.TempDir())
	b.withSecrets()
	b.server = b.serve()
	// Neither the recipe nor a command has the canary: it is written with its letters turned.
	turned := strings.NewReplacer("a", "1", "1", "a").Replace(canary)
	th := b.thread(sandbox.Recipe{Setup: "printf '%s' '" + turned + "' | tr a1 1a > key; cat key; cut -c1-9 key | tr -d '\\n' >&2; sleep 0.2; cut -c10- key >&2"})
	t.Run("of a setup", func(t *testing.T) {
		var live strings.Builder
		command := b.ask(th, "true")
		for _, ev := range b.follow(th, func(ev stream.Event) bool { return ev.Entry != nil && ev.Entry.ID == entry.ResultID(command) }) {
			if ev.Delta != nil {
				live.Write(ev.Delta.Data)
			}
		}
		tells(t, "the live output", live.String())
		tells(t, "the log", b.story(th))
		if !strings.Contains(b.story(th), "*****") {
			t.Errorf("nothing was removed: %s", b.story(th))
		}
	})
	lines := map[string]string{
		"plain":               "cat key; echo; echo \"key=$(cat key)!\"",
		"in pieces":           "for i in $(seq 1 " + fmt.Sprint(len(canary)) + "); do cut -c$i key | tr -d '\\n'; sleep 0.02; done",
		"in base64":           "base64 < key; (printf 1; cat key) | base64; (printf 12; cat key) | base64 -w 9",
		"in hexadecimal":      "od -An -v -tx1 key | tr -d ' \\n'",
		"in an error":         "cat key >&2; exit 3",
		"in a large output":   "head -c 100000 /dev/zero | tr '\\0' x; cat key; head -c 100000 /dev/zero | tr '\\0' y; cat key",
		"across the head":     "head -c " + fmt.Sprint(64<<10-10) + " /dev/zero | tr '\\0' x; cat key; head -c 100000 /dev/zero | tr '\\0' y",
		"between other bytes": "printf '\\377'; cat key; printf '\\377\\000'",
	}
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			command := b.ask(th, line)
			var live bytes.Buffer
			events := b.follow(th, func(ev stream.Event) bool {
				if ev.Delta != nil && ev.Delta.EntryID == entry.ResultID(command) {
					live.Write(ev.Delta.Data)
				}
				return ev.Entry != nil && ev.Entry.ID == entry.ResultID(command)
			})
			r, _ := entry.As[entry.CommandResult](*events[len(events)-1].Entry)
			if !strings.Contains(r.Output+r.OutputTail, "*****") {
				t.Errorf("nothing was removed: %s", r.Output)
			}
			texts := map[string]string{"the result": r.Output + r.OutputTail, "the live output": live.String()}
			if r.ArtifactID != "" {
				a, text := b.whole(r.ArtifactID)
				if texts["the artifact"] = text; a.Size != r.OutputBytes {
					t.Errorf("the artifact has %d bytes of %d", a.Size, r.OutputBytes)
				}
			}
			for where, text := range texts {
				tells(t, where, text)
			}
		})
	}
	t.Run("that a program reads", func(t *testing.T) {
		command := b.askFor(th, "", entry.Command{Command: "cat key; printf '\\377'; cat key >&2; printf sk-can; sleep 0.3; tail -c +7 key; printf sk-canary", Separate: true})
		var out, errs bytes.Buffer
		b.read(th, command, 0, &out, &errs)
		tells(t, "stdout", out.String())
		tells(t, "stderr", errs.String())
		if n := len(canary); out.Len() != 2*n+1+len("sk-canary") || errs.Len() != n || out.Bytes()[n] != 0xff || !strings.HasSuffix(out.String(), "sk-canary") {
			t.Errorf("other bytes changed: %q, %q", out.String(), errs.String())
		}
		b.result(th, command)
	})
	t.Run("is in no table", func(t *testing.T) {
		for form, trace := range traces() {
			if where := dbtest.Grep(t, b.Owner(t), trace); len(where) > 0 {
				t.Errorf("%s is in %v", form, where)
			}
		}
	})
}

// tells fails if a text has the canary in any form.
func tells(t *testing.T, where, text string) {
	t.Helper()
	flat := strings.ReplaceAll(text, "\n", "")
	for form, trace := range traces() {
		if strings.Contains(flat, trace) {
			t.Errorf("%s has it %s: %.300q", where, form, text)
		}
	}
}

func TestSecretsThatCannotBeReadKeepCommandsFromRunning(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newLocal(t, t.TempDir())
	b.withSecrets()
	b.server = b.serve()
	th := b.thread(sandbox.Recipe{})
	if _, err := b.Owner(t).Exec(t.Context(), "update house_keys set sealed = 'damaged'"); err != nil {
		t.Fatal(err)
	}
	if r := b.sh(th, "echo hello"); r.ExitCode != -1 || r.Output != "" || !strings.Contains(r.Error, "cannot be opened") {
		t.Errorf("it ends with %+v", r)
	}
}
