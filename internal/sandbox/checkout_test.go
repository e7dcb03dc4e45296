//go:build linux

package sandbox_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

func TestWhatIsWrongWithARecipeNamesTheField(t *testing.T) {
	t.Parallel()
	b := setup(t)
	repo := func(r sandbox.Repository) sandbox.Recipe {
		return sandbox.Recipe{Repositories: []sandbox.Repository{{URL: "https://example.com/first"}, r}}
	}
	git := func(c ...sandbox.GitCredential) sandbox.Recipe { return sandbox.Recipe{Git: c} }
	for field, recipe := range map[string]sandbox.Recipe{
		"repo: it has a password":       {Repo: "https://x:token@example.com/repo"},
		"repositories[1].url:":          repo(sandbox.Repository{URL: "ext::sh -c x"}),
		"repositories[1].url: it ":      repo(sandbox.Repository{}),
		"repositories[1].ref:":          repo(sandbox.Repository{URL: "https://example.com/a", Ref: "--upload-pack=x"}),
		"repositories[1].depth:":        repo(sandbox.Repository{URL: "https://example.com/a", Depth: -1}),
		"repositories[1].folder:":       repo(sandbox.Repository{URL: "https://example.com/a", Folder: "../a"}),
		"repositories[1].folder: ":      repo(sandbox.Repository{URL: "https://example.com/a", Folder: "-a"}),
		"repositories: ":                repo(sandbox.Repository{URL: "https://other.com/first.git"}),
		"each other's folder":           repo(sandbox.Repository{URL: "https://other.com/x", Folder: "first/x"}),
		"git[0].host:":                  git(sandbox.GitCredential{Host: "https://github.com", Secret: "TOKEN"}),
		"git[0].host: it":               git(sandbox.GitCredential{Host: "github.com:0", Secret: "TOKEN"}),
		"git[0].secret:":                git(sandbox.GitCredential{Host: "github.com", Secret: "no name"}),
		"git[0].user:":                  git(sandbox.GitCredential{Host: "github.com", Secret: "TOKEN", User: "a:b"}),
		"git: github.com is there":      git(sandbox.GitCredential{Host: "github.com", Secret: "TOKEN"}, sandbox.GitCredential{Host: "github.com", Secret: "OTHER"}),
		"git[0].github_app: it is":      git(sandbox.GitCredential{Host: "github.com", Secret: "KEY", GitHubApp: "my app"}),
		"git[0].github_app: an":         git(sandbox.GitCredential{Host: "github.com", Secret: "KEY", GitHubApp: "12", User: "ada"}),
		"git[0].github_api: it is not":  git(sandbox.GitCredential{Host: "git.corp", Secret: "KEY", GitHubApp: "12", GitHubAPI: "http://git.corp/api/v3"}),
		"git[0].github_api: it is only": git(sandbox.GitCredential{Host: "git.corp", Secret: "KEY", GitHubAPI: "https://git.corp/api/v3"}),
		"directory:":                    {Directory: "/etc"},
		"labels:":                       {Labels: map[string]string{"": "x"}},
	} {
		recipe.Driver = "cloud"
		_, err := b.boxes.CreateEnvironment(t.Context(), b.scope, "wrong", recipe)
		if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), strings.TrimSpace(field)) {
			t.Errorf("%q is answered with %v", field, err)
		}
	}
}

func TestTheStartScriptRunsEachTimeABoxStarts(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": d})
	th := b.thread(b.environment(sandbox.Recipe{Driver: "local", Start: "test ! -e ~/broken; echo started >> ~/starts; sleep 0.2; echo ready > /tmp/ready", Directory: "a/b"}))
	box, got := b.sh(th, "pwd; cat ~/starts /tmp/ready")
	if got != "/workspace\nstarted\nready\n" { // the caller chooses the directory
		t.Errorf("the first command prints %q", got)
	}
	if _, got := b.sh(th, "cat ~/starts"); got != "started\n" {
		t.Errorf("the second command prints %q", got)
	}
	restart := func() {
		if _, err := d.Quarantine(t.Context(), box.Ref); err != nil {
			t.Fatal(detail(err))
		}
	}
	restart()
	if _, got := b.sh(th, "cat ~/starts /tmp/ready; touch ~/broken"); got != "started\nstarted\nready\n" {
		t.Errorf("after a restart a command prints %q", got)
	}
	restart()
	for range 2 { // it is tried again
		if r := b.try(th, "true"); fault.CodeOf(r.err) != fault.Precondition || !strings.Contains(detail(r.err), "start script failed") {
			t.Errorf("after a failure a command ends with %v", r.err)
		}
	}
}

// A start script that is killed has not run: it is not taken for one that has, and nobody waits for it.
func TestAStartScriptThatTakesTooLongIsRunAgain(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": d})
	b.boxes = sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Drivers: b.drivers, Maxima: sandbox.Maxima{CommandTime: 8 * time.Second}, Logger: slog.New(slog.DiscardHandler),
	})
	th := b.thread(b.environment(sandbox.Recipe{Driver: "local", Start: "test ! -e ~/hang || exec sleep 1000; echo started >> ~/starts"}))
	box, _ := b.sh(th, "touch ~/hang")
	if _, err := d.Quarantine(t.Context(), box.Ref); err != nil { // it restarts with its next command
		t.Fatal(detail(err))
	}
	for range 2 {
		if r := b.try(th, "true"); fault.CodeOf(r.err) != fault.Precondition || !strings.Contains(detail(r.err), "the start script took longer than 8s") {
			t.Errorf("a command ends with %s", detail(r.err))
		}
	}
	if _, err := d.Exec(t.Context(), box.Ref, sandbox.Command{Argv: []string{"rm", "/home/agent/hang"}}); err != nil {
		t.Fatal(detail(err))
	}
	if _, got := b.sh(th, "cat ~/starts"); got != "started\nstarted\n" {
		t.Errorf("after it was mended a command prints %q", got)
	}
}
