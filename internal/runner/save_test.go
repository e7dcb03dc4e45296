package runner_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

// A run whose changes cannot be saved ends as its work did. Its report says that they were not collected, and why.
func TestATreeThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	const (
		// full makes the patch's file one on a full disk.
		full   = `echo new > new.txt; ln -s /dev/full ../run-1/tree-1.patch` + "\n"
		works  = answers + settles + "cat >/dev/null\n"
		in     = "the changes stay in the sandbox, because they could not be saved: "
		broken = `#!/bin/sh
case "$*" in *" diff "*) echo "fatal: unable to read the objects" >&2; exit 128; esac
exec REAL "$@"
`
	)
	for name, c := range map[string]struct {
		script, git             string
		outcome, phase, says, e string
	}{
		"git fails":                         {"echo new > new.txt\n" + works, broken, "completed", entry.PhaseResult, in + "git diff: exit status 128: fatal: unable to read the objects", ""},
		"the disk is full":                  {full + works, "", "completed", entry.PhaseResult, in, "no space left on device"},
		"the disk is full, and it failed":   {full + "exit 7\n", "", "failed", entry.PhaseExecution, in, "no space left on device"},
		"there is no repository":            {"rm -rf .git\n" + works, "", "completed", "", "the working directory is not a git repository", ""},
		"there is nothing left":             {`rm -rf "$PWD"` + "\n" + works, "", "completed", entry.PhaseResult, "the working directory is gone", ""},
		"there is nothing that was changed": {works, "", "completed", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := scripted(t, c.script)
			if c.git != "" {
				program, err := exec.LookPath("git")
				if err != nil {
					t.Fatal(err)
				}
				bin := filepath.Join(w.dir, "bin")
				if err := os.MkdirAll(bin, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(bin, "git"), []byte(strings.Replace(c.git, "REAL", program, 1)), 0o755); err != nil {
					t.Fatal(err)
				}
				w.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
			}
			f := w.start().finish()
			if f.Outcome != c.outcome || f.Phase != c.phase || f.PatchPath != "" || !strings.HasPrefix(f.PatchError, c.says) || !strings.HasSuffix(f.PatchError, c.e) || c.says == "" && f.PatchError != "" {
				t.Errorf("the report is %+v", f)
			}
			if c.outcome == "completed" && (f.Error != "" || f.Result != "done") {
				t.Errorf("its work ended with %q: %q", f.Result, f.Error)
			}
		})
	}
}
