//go:build linux

package command_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

const canary = commandtest.Canary

// withSecrets gives the bench's servers the secrets of the house, and plants the canary.
func (b *bench) withSecrets() *secret.Secrets {
	b.t.Helper()
	secrets := secret.New(b.DB, b.Sealer, nil, nil)
	b.tune = func(c *config) { c.Secrets = secrets }
	commandtest.SetCanary(b.t, secrets, b.Scope)
	return secrets
}

func TestACanaryInOutput(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = commandtest.RealBoxes(t)
	b.withSecrets()
	b.use(b.serve())
	th := b.Thread(sandbox.Recipe{Secrets: commandtest.Bound, Setup: "printf %s \"$CANARY\" > key; cat key; cut -c1-9 key | tr -d '\n' >&2; cut -c10- key >&2"})
	t.Run("of a setup", func(t *testing.T) {
		var live strings.Builder
		commandID := b.Ask(th, "true")
		for _, ev := range b.Follow(th, func(ev stream.Event) bool { return ev.Entry != nil && ev.Entry.ID == entry.ResultID(commandID) }) {
			if ev.Delta != nil {
				live.Write(ev.Delta.Data)
			}
		}
		commandtest.CheckNoCanary(t, "the live output", live.String())
		commandtest.CheckNoCanary(t, "the log", b.Story(th))
		if !strings.Contains(b.Story(th), "xxxxx") {
			t.Errorf("nothing was removed: %s", b.Story(th))
		}
	})
	lines := map[string]string{
		"from the environment": "env; echo $CANARY",
		"plain":                "cat key; echo; echo \"key=$(cat key)!\"",
		"in pieces":            "for i in $(seq 1 7 " + fmt.Sprint(len(canary)) + "); do tail -c +$i key | head -c 7; done",
		"in base64":            "base64 < key; (printf 1; cat key) | base64; (printf 12; cat key) | base64 -w 9",
		"in hexadecimal":       "od -An -v -tx1 key | tr -d ' \\n'",
		"in an error":          "cat key >&2; exit 3",
		"in a large output":    "head -c 100000 /dev/zero | tr '\\0' x; cat key; head -c 100000 /dev/zero | tr '\\0' y; cat key",
		"across the head":      "head -c " + fmt.Sprint(64<<10-10) + " /dev/zero | tr '\\0' x; cat key; head -c 100000 /dev/zero | tr '\\0' y",
		"between other bytes":  "printf '\\377'; cat key; printf '\\377\\000'",
	}
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			commandID := b.Ask(th, line)
			var live bytes.Buffer
			events := b.Follow(th, func(ev stream.Event) bool {
				if ev.Delta != nil && ev.Delta.EntryID == entry.ResultID(commandID) {
					live.Write(ev.Delta.Data)
				}
				return ev.Entry != nil && ev.Entry.ID == entry.ResultID(commandID)
			})
			r, _ := entry.As[entry.CommandResult](*events[len(events)-1].Entry)
			if !strings.Contains(r.Output+r.OutputTail, "xxxxx") {
				t.Errorf("nothing was removed: %s", r.Output)
			}
			texts := map[string]string{"the result": r.Output + r.OutputTail, "the live output": live.String()}
			if r.ArtifactID != "" {
				a, text := b.content(r.ArtifactID)
				if texts["the artifact"] = text; a.Size != r.OutputBytes {
					t.Errorf("the artifact has %d bytes of %d", a.Size, r.OutputBytes)
				}
			}
			for where, text := range texts {
				commandtest.CheckNoCanary(t, where, text)
			}
		})
	}
	for name, unlogged := range map[string]bool{"that a program reads": false, "that only a program reads": true} {
		t.Run(name, func(t *testing.T) {
			commandID := b.AskFor(th, "", entry.Command{Command: "cat key; printf '\\377'; cat key >&2; printf sk-can; tail -c +7 key; printf sk-canary", Separate: true, Unlogged: unlogged})
			var out, errs bytes.Buffer
			b.read(th, commandID, 0, &out, &errs)
			commandtest.CheckNoCanary(t, "stdout", out.String())
			commandtest.CheckNoCanary(t, "stderr", errs.String())
			if n := len(canary); out.Len() != 2*n+1+len("sk-canary") || errs.Len() != n || out.Bytes()[n] != 0xff || !strings.HasSuffix(out.String(), "sk-canary") {
				t.Errorf("other bytes changed: %q, %q", out.String(), errs.String())
			}
			b.Result(th, commandID)
		})
	}
	t.Run("is in no table", func(t *testing.T) {
		for form, trace := range commandtest.Traces() {
			if where := dbtest.Grep(t, b.Owner(t), trace); len(where) > 0 {
				t.Errorf("%s is in %v", form, where)
			}
		}
	})
}

func TestABoundSecret(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = commandtest.RealBoxes(t)
	secrets := b.withSecrets()
	b.use(b.serve())
	set := func(name, value string) {
		t.Helper()
		if _, _, err := secrets.Set(t.Context(), b.Scope, name, []byte(value)); err != nil {
			t.Fatal(detail(err))
		}
	}
	t.Run("is there for each command, and for no process of another one", func(t *testing.T) {
		set("TOKEN", "first-token")
		th := b.Thread(sandbox.Recipe{Secrets: []secret.Binding{{Name: "TOKEN", Required: true}, {Name: "LATER"}}})
		if r := b.Sh(th, "test \"$TOKEN\" = first-token && test -z \"$CANARY$LATER\""); r.ExitCode != 0 {
			t.Errorf("it ends with %+v", r)
		}
		set("TOKEN", "second-token")
		set("LATER", "later-token")
		if r := b.Sh(th, "test \"$TOKEN\" = second-token && echo $LATER first-token"); r.Output != "xxxxxxxxxxx first-token\n" {
			t.Errorf("after a change it ends with %+v", r)
		}
	})
	t.Run("that is a file is read by each command, and its content is removed from what they write", func(t *testing.T) {
		th := b.Thread(sandbox.Recipe{Secrets: []secret.Binding{{Name: "CANARY", Required: true, File: "canary.txt"}}, Setup: "cat $CANARY"})
		commandID := b.Ask(th, "echo $CANARY; cat $CANARY; until test -e go; do sleep 0.05; done; tail -c +2 $CANARY | wc -c")
		b.Printed(th, commandID, "canary.txt")
		if err := b.stop(t.Context()); err != nil { // the next server continues the command, and its file stays
			t.Fatal(detail(err))
		}
		b.use(b.serve())
		b.Sh(th, "touch go")
		hidden := strings.Repeat("x", len(canary))
		if r := b.Result(th, commandID); r.Output != secret.Folder+"/canary.txt\n"+hidden+fmt.Sprintln(len(canary)-1) {
			t.Errorf("it ends with %+v", r)
		}
		if !strings.Contains(b.Story(th), hidden) {
			t.Errorf("the setup wrote nothing: %s", b.Story(th))
		}
		commandtest.CheckNoCanary(t, "the log", b.Story(th))
	})
	t.Run("that is missing keeps everything from starting", func(t *testing.T) {
		th := b.Thread(sandbox.Recipe{Secrets: []secret.Binding{{Name: "MISSING", Required: true}}, Setup: "exit 9"})
		r := b.Sh(th, "echo ran")
		if r.ExitCode != -1 || r.Output != "" || !strings.Contains(r.Error, "needs the secret MISSING") || strings.Contains(b.Story(th), "setup") {
			t.Errorf("it ends with %+v: %s", r, b.Story(th))
		}
		if boxes, err := b.driver.List(t.Context(), sandbox.Labels{Thread: th}); err != nil || len(boxes) != 0 {
			t.Errorf("%d sandboxes are there (%v)", len(boxes), err)
		}
		set("MISSING", "not-any-more")
		if r := b.Sh(th, "true"); !strings.Contains(r.Error, "setup failed with exit code 9") {
			t.Errorf("when it is there, it ends with %+v", r)
		}
	})
	t.Run("that changes while its command waits for the next server shows nothing of the old one", func(t *testing.T) {
		set("ROTATED", "old-and-secret")
		th := b.Thread(sandbox.Recipe{Secrets: []secret.Binding{{Name: "ROTATED"}}})
		commandID := b.Ask(th, "echo begun; until test -e go; do sleep 0.05; done; echo $ROTATED")
		b.Printed(th, commandID, "begun")
		if err := b.stop(t.Context()); err != nil {
			t.Fatal(detail(err))
		}
		set("ROTATED", "new-and-secret")
		b.use(b.serve())
		b.Sh(th, "touch go")
		if r := b.Result(th, commandID); r.Output != "xxxxx\nxxxxxxxxxxxxxx\n" || r.ExitCode != 0 {
			t.Errorf("it ends with %+v", r)
		}
	})
	t.Run("that cannot be read keeps commands from running", func(t *testing.T) {
		th, free := b.Thread(sandbox.Recipe{Secrets: commandtest.Bound}), b.Thread(sandbox.Recipe{})
		if _, err := b.Owner(t).Exec(t.Context(), "update house_keys set sealed = 'damaged'"); err != nil {
			t.Fatal(err)
		}
		if r := b.Sh(th, "echo hello"); r.ExitCode != -1 || r.Output != "" || !strings.Contains(r.Error, "cannot be opened") {
			t.Errorf("it ends with %+v", r)
		}
		if r := b.Sh(free, "echo hello"); r.Output != "hello\n" {
			t.Errorf("a command that receives none ends with %+v", r)
		}
	})
}

// A command's output, and its timing, confirm no guess: neither of a secret that the command did not receive, in full or in
// part, nor of the beginning of one that it did.
func TestOutputAnswersNoGuesses(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = commandtest.RealBoxes(t)
	b.withSecrets()
	b.use(b.serve())
	// shown counts the bytes of each guess that a command's reader gets back before the next guess is written.
	shown := func(recipe sandbox.Recipe, guesses []string) (sizes []int) {
		t.Helper()
		th := b.Thread(recipe)
		commandID := b.AskFor(th, "", entry.Command{Command: "cat", Separate: true, Input: true})
		var in, out int64
		for _, guess := range guesses {
			for sent := 0; sent < len(guess); {
				w, err := b.Commands.Write(t.Context(), b.Scope, th, commandID, command.Keys{Position: in, Data: []byte(guess[sent:]), End: false})
				if err != nil {
					t.Fatal(detail(err))
				}
				sent, in = sent+int(w.Position-in), w.Position
			}
			got := 0
			for began := time.Now(); got < len(guess) && time.Since(began) < 10*time.Second; { // a call waits for 15 s
				r, err := b.Commands.Read(t.Context(), b.Scope, th, commandID, out, command.Reader{Intent: command.ReadOn})
				if err != nil {
					t.Fatal(detail(err))
				}
				got, out = got+int(r.Position-out), r.Position
			}
			sizes = append(sizes, got)
		}
		if _, err := b.Commands.Write(t.Context(), b.Scope, th, commandID, command.Keys{Position: in, Data: nil, End: true}); err != nil {
			t.Fatal(detail(err))
		}
		b.read(th, commandID, out, io.Discard)
		if r := b.Result(th, commandID); r.ExitCode != 0 || r.RawBytes != in {
			t.Errorf("the command ends with %+v", r)
		}
		return sizes
	}
	wrong := strings.Repeat("?", len(canary))
	hexed := hex.EncodeToString([]byte(canary))
	for name, recipe := range map[string]sandbox.Recipe{"not received": {}, "received": {Secrets: commandtest.Bound}} {
		t.Run(name, func(t *testing.T) {
			right, others := []string{canary[:5], canary[:12], canary[:len(canary)-1], hexed[:20]}, []string{wrong[:5], wrong[:12], wrong[:len(canary)-1], wrong[:20]}
			if name == "not received" { // then a complete guess reveals nothing either
				right, others = append(right, canary), append(others, wrong)
			}
			if a, b := shown(recipe, right), shown(recipe, others); !slices.Equal(a, b) || a[3] != 20 {
				t.Errorf("of right guesses it shows %v bytes, and of wrong ones %v", a, b)
			}
		})
	}
	t.Run("in the log", func(t *testing.T) {
		th := b.Thread(sandbox.Recipe{})
		if r := b.Sh(th, "echo "+canary); r.Output != canary+"\n" {
			t.Errorf("a guess of the whole is answered with %q", r.Output)
		}
	})
}
