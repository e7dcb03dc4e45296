package runner_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/arbe-dev/arbe/internal/harness/pi"
)

// Parts of an agent's script: its last answer, its report that it has settled, and a wait for the end of its input.
const (
	answers = `echo '{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"done"}],"usage":{},"stopReason":"stop"}}'
`
	settles = `echo '{"type":"response","command":"prompt","success":true}'; echo '{"type":"agent_settled"}'
`
	calls = `echo '{"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"bash","arguments":{"a":"\u0000"}}],"usage":{},"stopReason":"toolUse"}}'
`
)

// scripted returns a world whose agent is a shell script.
func scripted(t *testing.T, script string) *world {
	t.Helper()
	w := newWorld(t, pi.Harness{}, nil)
	w.spec.Program = filepath.Join(w.dir, "program")
	path := filepath.Join(w.spec.Program, "node_modules/.bin/node")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	w.chat("work")
	return w
}

func TestHostileAgents(t *testing.T) {
	t.Parallel()
	t.Run("writes anything", func(t *testing.T) {
		t.Parallel()
		w := scripted(t, `printf 'no json \377\376\000 {{{\n{"type":"message_end"}\n[]\n"x"\n{"type":5}\n\n'
printf '{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"bad \377 and \\u0000 and token-one"}],"usage":{},"stopReason":"stop"}}\n'
`+calls+`printf '{"type":"message_end","message":{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[{"type":"text","text":"'
head -c 200000000 /dev/zero | tr '\0' a
printf '"}]}}\n'
`+answers+settles+`cat >/dev/null`)
		if f := w.start().finish(); f.Outcome != "completed" || f.Result != "done" {
			t.Errorf("the report is %+v", f)
		}
		if got := w.types(); got != "assistant assistant tool_result assistant run_finished" {
			t.Errorf("the log has %s", got)
		}
		if !w.has("pi.tool_result", "200.0 MB and is not kept")() || !w.has("pi.assistant", `\ufffd and xxxxxxxxx`)() {
			t.Error("the log says something else")
		}
	})
	t.Run("never ends its line", func(t *testing.T) {
		t.Parallel()
		w := scripted(t, `echo $$ > pid; exec tr '\0' a </dev/zero`)
		w.spec.MaxSeconds = 2
		r := w.start()
		f := r.finish()
		if f.Outcome != "failed" || !strings.Contains(f.Error, "2s") {
			t.Errorf("the report is %+v", f)
		}
		if peak := r.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; peak > 200<<10 {
			t.Errorf("it took %d MB", peak>>10)
		}
	})
	t.Run("leaves processes that hold its output, in other sessions and without its environment", func(t *testing.T) {
		t.Parallel()
		w := scripted(t, `(env -i setsid sh -c 'echo $$ > pid; exec sleep 1000' &)
until test -s pid; do :; done
`+answers+settles+`cat >/dev/null`)
		if f := w.start().finish(); f.Outcome != "completed" {
			t.Errorf("the report is %+v", f)
		}
		text, err := os.ReadFile(filepath.Join(w.spec.WorkDir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		gone(t, pid)
	})
	t.Run("deletes its workspace", func(t *testing.T) {
		t.Parallel()
		w := scripted(t, `rm -rf "$PWD"
`+answers+settles+`cat >/dev/null`)
		if f := w.start().finish(); f.Outcome != "completed" || !strings.Contains(f.PatchError, "gone") {
			t.Errorf("the report is %+v", f)
		}
	})
	t.Run("kills the runner", func(t *testing.T) {
		t.Parallel()
		w := scripted(t, `kill -9 $PPID; exec sleep 1000`)
		w.start().exit()
		if f := w.start().finish(); f.Outcome != "failed" || f.Phase != "observation" {
			t.Errorf("the report is %+v", f)
		}
	})
	t.Run("ends without a word", func(t *testing.T) {
		t.Parallel()
		w := scripted(t, `echo "out of luck" >&2; exit 7`)
		if f := w.start().finish(); f.Outcome != "failed" || f.ExitCode == nil || *f.ExitCode != 7 || !strings.Contains(f.LastLines, "out of luck") {
			t.Errorf("the report is %+v", f)
		}
	})
	t.Run("makes git run programs", func(t *testing.T) {
		t.Parallel()
		w := scripted(t, `printf '#!/bin/sh\necho $0 $* >> `+"$PWD/../ran"+`\ncat\n' > ../evil; chmod +x ../evil; e=$(realpath ../evil)
git config core.fsmonitor "$e fsmonitor"; git config diff.external "$e external"; git config filter.evil.clean "$e clean"; git config filter.evil.smudge "$e smudge"
git config diff.evil.textconv "$e textconv"; git config diff.evil.command "$e command"; git config core.hooksPath "$(dirname $e)"; git config core.pager "$e pager"
echo '* filter=evil diff=evil' > .gitattributes; printf 'changed\000' > README.md; echo new > "a new file"; ln -s /etc/passwd link; rm -f ../ran
`+answers+settles+`cat >/dev/null`)
		f := w.start().finish()
		if f.Outcome != "completed" || f.PatchFiles != 4 || f.PatchError != "" {
			t.Errorf("the report is %+v", f)
		}
		if text, err := os.ReadFile(filepath.Join(w.dir, "ran")); err == nil {
			t.Errorf("git ran %s", text)
		}
		patch, err := os.ReadFile(f.PatchPath)
		if err != nil || !strings.Contains(string(patch), "GIT binary patch") || strings.Contains(string(patch), "root:") {
			t.Errorf("the patch is %s, %v", patch, err)
		}
	})
}
