//go:build linux

package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// hostileModules makes git start programs, read options or write elsewhere, if it follows it.
const hostileModules = `[submodule "ext"]
	path = ext
	url = ext::sh -c touch% /tmp/ran
	update = !touch /tmp/ran
[submodule "option"]
	path = option
	url = -u./payload
[submodule "../../hooks"]
	path = ../outside
	url = ../../../../etc
[submodule "near"]
	path = near
	url = file:///workspace/.git
`

// A repository and a program in the sandbox may write anything into .gitmodules and .git/config. Neither cloning nor saving nor
// restoring follows it.
func TestHostileSubmodulesAreLeftAlone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	repo := filepath.Join(root, "repo")
	first := repository(t, repo)
	write(t, filepath.Join(repo, ".gitmodules"), hostileModules)
	write(t, filepath.Join(repo, "payload"), "#!/bin/sh\ntouch /tmp/ran\n")
	if err := os.Chmod(filepath.Join(repo, "payload"), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, repo, "git", "add", ".gitmodules", "payload")
	for _, path := range []string{"ext", "option", "near"} {
		run(t, repo, "git", "update-index", "--add", "--cacheinfo", "160000,"+first+","+path)
	}
	run(t, repo, "git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "-m", "submodules")

	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newLocal(t)}, root)
	th := b.thread(b.environment(sandbox.Recipe{Driver: "local", Repo: repo}))
	const look = "ls -d /tmp/ran /workspace/ran ../outside .git/modules/* .git/hooks/post-checkout 2>/dev/null; ls -A ext option near"
	if _, got := b.sh(th, look); got != "ext:\n\nnear:\n\noption:\n" {
		t.Errorf("cloning has made %q", got)
	}
	old, _ := b.sh(th, `
		cat >> .git/config <<'end'
[submodule]
	recurse = true
	active = .
[submodule "ext"]
	url = ext::sh -c touch% /tmp/ran
	update = !touch /tmp/ran
[diff]
	submodule = diff
	ignoreSubmodules = none
[status]
	submoduleSummary = true
[push]
	recurseSubmodules = on-demand
[protocol]
	allow = always
end
		printf '[submodule "more"]\n\tpath = more\n\turl = --upload-pack=touch${IFS}/tmp/ran\n' >> .gitmodules
		rmdir near; mkdir near; git init --quiet near; git -C near config core.fsmonitor 'touch /tmp/ran; false'
		echo mine > kept`)
	b.boxes.SaveIdle(t.Context())
	if _, got := b.sh(th, "ls -d /tmp/ran 2>/dev/null; true"); got != "" {
		t.Error("saving has started a program")
	}
	b.destroy(old.ID)
	box, got := b.sh(th, look+"; cat kept; tail -n 1 .gitmodules; git config --get-all submodule.recurse; true")
	if want := "ext:\n\nnear:\n\noption:\nmine\n\turl = --upload-pack=touch${IFS}/tmp/ran\n"; box.ID == old.ID || got != want {
		t.Errorf("the new sandbox has\n%s\nwant\n%s", got, want)
	}
	if said := resumed(t, b, th).Plain(); !strings.Contains(said, "2 changed files") {
		t.Errorf("the log says %q", said)
	}
}
