package entry_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestParseCommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"!ls -l": "ls -l", "  ! ls": "ls", "/run make test": "make test", "/run\tmake": "make", "/run\nmake\nmake": "make\nmake",
		"!": "", "/run": "", "/run  ": "",
	} {
		if got, ok := entry.ParseCommand(text); !ok || got != want {
			t.Errorf("%q is the command %q (%t), want %q", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "ls", "hello!", "/running late", "say /run", "/Run x"} {
		if got, ok := entry.ParseCommand(text); ok {
			t.Errorf("%q is the command %q, want something to say", text, got)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	t.Run("shown as a line is what a shell would take for its arguments", func(t *testing.T) {
		args := []string{"", "plain-1.2", "two words", "it's", `"$HOME" \ *`, "new\nline", "ü", "-n", "a=b", ";", "'"}
		c := entry.Command{Argv: append([]string{"printf", `%s\037`}, args...)}
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", c.Line()).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(strings.TrimSuffix(string(out), "\x1f"), "\x1f"); !slices.Equal(got, args) {
			t.Errorf("the shell takes %q for %q", c.Line(), got)
		}
	})
	t.Run("is run as it is, or through a shell", func(t *testing.T) {
		if got := (entry.Command{Argv: []string{"ls", "a b"}}).Program(); !slices.Equal(got, []string{"ls", "a b"}) {
			t.Errorf("arguments become %q", got)
		}
		if got := (entry.Command{Command: "ls | wc"}).Program(); !slices.Equal(got, []string{"/bin/sh", "-c", "ls | wc"}) {
			t.Errorf("a line becomes %q", got)
		}
	})
	t.Run("is a line or arguments, and nothing that no machine takes", func(t *testing.T) {
		for _, c := range []entry.Command{
			{}, {Command: " "}, {Argv: []string{""}}, {Command: "ls", Argv: []string{"ls"}},
			{Command: "a\x00b"}, {Argv: []string{"a", "b\x00"}}, {Command: "ls", TimeoutMS: -1}, {Command: "ls", EnvironmentID: "a\x00"},
		} {
			if c.Validate() == nil {
				t.Errorf("%+v is taken", c)
			}
		}
	})
}

func TestCommandResult(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]entry.CommandResult{
		"ok\n[exit 0 · 1.23s]":                        {Output: "ok\n", DurationMS: 1234},
		"[exit 3 · 0s]":                               {ExitCode: 3},
		"no newline\n[exit 0 · 0s]":                   {Output: "no newline"},
		"[cancelled · 2s]":                            {ExitCode: -1, Cancelled: true, DurationMS: 2000},
		"[timed out · 2s]":                            {ExitCode: 124, TimedOut: true, DurationMS: 2000},
		"[out of memory · exit 137 · 2s]":             {ExitCode: 137, OutOfMemory: true, DurationMS: 2000},
		"no recipe; set one\n[did not run]":           {ExitCode: -1, Error: "no recipe; set one"},
		"ab\n… 96 bytes omitted …\nyz\n[exit 0 · 0s]": {Output: "ab", OutputTail: "yz", OutputBytes: 100, Truncated: true},
	} {
		t.Run(want, func(t *testing.T) {
			if got := r.Plain(); got != want {
				t.Errorf("it says %q", got)
			}
		})
	}
}

func TestEnvironmentPrepared(t *testing.T) {
	t.Parallel()
	steps := []entry.PreparationStep{{Name: "clone", DurationMS: 1200}, {Name: "setup", DurationMS: 3000, ExitCode: 2, Output: "make: no rule"}}
	if got, want := (entry.EnvironmentPrepared{Steps: steps[:1]}).Plain(), "sandbox ready: clone 1.2s"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	cached := []entry.PreparationStep{{Name: entry.CachedEnvironment, DurationMS: 300, Output: "built 3 minutes ago"}, {Name: "start", DurationMS: 100}}
	if got, want := (entry.EnvironmentPrepared{Steps: cached}).Plain(), "sandbox ready: from the cached environment, built 3 minutes ago, 0.3s, start 0.1s"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got, want := (entry.EnvironmentPrepared{Steps: steps}).Plain(), "sandbox not ready: setup failed with exit code 2\nmake: no rule"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

func TestAModelReadsHowLongAnOutputIs(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("x", 64<<10)
	for name, c := range map[string]struct {
		entry.CommandResult
		want string
	}{
		"in an artifact":        {entry.CommandResult{Output: half, OutputTail: half, OutputBytes: 30_000_000, Truncated: true, ArtifactID: "a1"}, "the output is 30000000 bytes long, of which 29999000 are left out above; artifact a1 has all of it"},
		"partly in an artifact": {entry.CommandResult{Output: half, OutputTail: half, OutputBytes: 30_000_000, Truncated: true, ArtifactID: "a1", ArtifactBytes: 9, ArtifactPart: true}, "artifact a1 has the first 9 bytes of it"},
		"in its entry":          {entry.CommandResult{Output: half, OutputBytes: 64 << 10}, "the output is 65536 bytes long, of which 64536 are left out above; the command's result in the thread has all of it"},
	} {
		if got := c.Within(1000); !strings.Contains(got, c.want) || len(got) > 1300 || !strings.HasSuffix(got, "\n[exit 0 · 0s]") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if short := (entry.CommandResult{Output: "hi", OutputBytes: 2}); short.Within(1000) != short.Plain() {
		t.Errorf("a short one is %q", short.Within(1000))
	}
}
