package sandbox_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// asking is a local driver that notes the boxes that it was asked for, and makes them without their images.
type asking struct {
	*local.Driver
	mu    sync.Mutex
	asked []sandbox.Spec
}

func (a *asking) Create(ctx context.Context, spec sandbox.Spec) (string, error) {
	a.mu.Lock()
	a.asked = append(a.asked, spec)
	a.mu.Unlock()
	spec.Image = ""
	return a.Driver.Create(ctx, spec)
}

// described makes a repository with a file that describes its sandboxes.
func described(t *testing.T, dir, name, text string) string {
	t.Helper()
	repository(t, dir)
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "git", "add", "-A")
	run(t, dir, "git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "-m", "described")
	return dir
}

// asCommand runs a shell command as the server runs those of people: with the directory and the variables of the sandbox.
func (b *bench) asCommand(t *testing.T, boxes *sandbox.Resolver, thread, line string) string {
	t.Helper()
	var out bytes.Buffer
	err := boxes.Use(t.Context(), b.scope, thread, "", func(p sandbox.Handle) error {
		_, err := p.Exec(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", line}, Dir: p.Directory(""), Env: p.Env(), Stdout: &out, Stderr: &out})
		return err
	})
	if err != nil {
		t.Fatal(detail(err))
	}
	return out.String()
}

// devcontainer describes sandboxes with all fields that arbe knows, and some that it does not.
const devcontainer = `{
	// of a team
	"name": "web", "image": "mcr.example.com/base:1",
	"postCreateCommand": {"one": "echo $GREETING > created", "two": ["sh", "-c", "pwd >> created"]},
	"postStartCommand": "echo \"$GREETING in $(pwd)\" >> ~/starts",
	"workspaceFolder": "/workspaces/${localWorkspaceFolderBasename}/web",
	"containerEnv": {"GREETING": "hello", "PATH": "/evil"}, "remoteEnv": {"AT": "${containerWorkspaceFolder}/x", "OF": "${localEnv:HOME}"},
	"hostRequirements": {"memory": "384mb", "cpus": 1},
	"features": {}, "forwardPorts": [3000],
}`

func TestARepositoryDescribesItsSandboxes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	driver := &asking{Driver: newLocal(t)}
	drivers := map[string]sandbox.Driver{"local": driver}
	b := setupWith(t, nil, drivers, root)
	all := described(t, filepath.Join(root, "all"), ".devcontainer/devcontainer.json", devcontainer)

	t.Run("with all that the environment leaves open", func(t *testing.T) {
		env := b.environment(sandbox.Recipe{Driver: "local", Repo: all})
		for _, what := range []string{"the first sandbox", "the next one, from the cache"} {
			th := b.thread(env)
			if got := b.asCommand(t, b.boxes, th, "pwd; cat ../created; cat ~/starts; echo $GREETING $AT $OF"); got != "/workspace/web\nhello\n/workspace\nhello in /workspace/web\nhello /workspace/x\n" {
				t.Errorf("in %s a command prints %q", what, got)
			}
			last := driver.asked[len(driver.asked)-1]
			if last.Image != "mcr.example.com/base:1" || last.Limits.MemoryMB != 384 || last.Limits.CPUs != 1 {
				t.Errorf("%s is created from %+v", what, last)
			}
			// Another server, which has not built it, uses the same.
			if got := b.asCommand(t, b.server(drivers, root), th, "pwd; echo $GREETING; wc -l < ~/starts"); got != "/workspace/web\nhello\n1\n" {
				t.Errorf("another server's command in %s prints %q", what, got)
			}
			said := stepOf(t, logged[entry.EnvironmentPrepared](b, th), "defaults of .devcontainer/devcontainer.json").Output
			for _, want := range []string{"used: postCreateCommand, postStartCommand, workspaceFolder, image, hostRequirements, remoteEnv.AT, containerEnv.GREETING\n",
				"does not know it: remoteEnv.OF, containerEnv.PATH, features, forwardPorts\n"} {
				if !strings.Contains(said, want) {
					t.Errorf("of %s it says %q, want %q", what, said, want)
				}
			}
		}
	})
	t.Run("but not where the environment says something itself", func(t *testing.T) {
		env := b.environment(sandbox.Recipe{Driver: "local", Repo: all, Image: "own:1", Setup: "echo own > created", Start: "echo own-$GREETING > ~/starts", Directory: "lib", Limits: sandbox.Limits{MemoryMB: 256}})
		th := b.thread(env)
		if got := b.asCommand(t, b.boxes, th, "pwd; cat created ~/starts"); got != "/workspace/lib\nown\nown-hello\n" {
			t.Errorf("a command prints %q", got)
		}
		if last := driver.asked[len(driver.asked)-1]; last.Image != "own:1" || last.Limits.MemoryMB != 256 || last.Limits.CPUs != 1 {
			t.Errorf("it is created from %+v", last)
		}
		said := stepOf(t, logged[entry.EnvironmentPrepared](b, th), "defaults of .devcontainer/devcontainer.json").Output
		if !strings.Contains(said, "because the environment has its own: postCreateCommand, postStartCommand, workspaceFolder\n") {
			t.Errorf("it says %q", said)
		}
	})
	t.Run("a diagnosis uses them, too", func(t *testing.T) {
		checks, _ := diagnosed(t.Context(), t, b, b.boxes, b.environment(sandbox.Recipe{Driver: "local", Repo: all}))
		if c := checks["defaults"]; c.Result != sandbox.CheckOK || !strings.Contains(c.Output, "features") || checks["setup"].Result != sandbox.CheckOK || checks["start"].Result != sandbox.CheckOK {
			t.Errorf("the steps are %+v", checks)
		}
		if last := driver.asked[len(driver.asked)-1]; last.Image != "mcr.example.com/base:1" {
			t.Errorf("it is created from %+v", last)
		}
	})
	t.Run("in an arbe.json, in the folder of one of several repositories", func(t *testing.T) {
		two := described(t, filepath.Join(root, "two"), "arbe.json", `{"setup": "pwd > at", "start": "pwd > started", "directory": "lib", "env": {"A": "b"}, "limits": {"pids": 300}, "starts": "x"}`)
		other := filepath.Join(root, "other")
		repository(t, other)
		th := b.thread(b.environment(sandbox.Recipe{Driver: "local", Repositories: []sandbox.Repository{{URL: two}, {URL: other}}}))
		if got := b.asCommand(t, b.boxes, th, "pwd; cat ../at started; echo $A"); got != "/workspace/two/lib\n/workspace/two\n/workspace/two/lib\nb\n" {
			t.Errorf("a command prints %q", got)
		}
		if last := driver.asked[len(driver.asked)-1]; last.Limits.PIDs != 300 {
			t.Errorf("it is created from %+v", last)
		}
		if said := stepOf(t, logged[entry.EnvironmentPrepared](b, th), "defaults of arbe.json").Output; !strings.Contains(said, "arbe does not know it: starts\n") {
			t.Errorf("it says %q", said)
		}
	})
	t.Run("and what cannot be read is named", func(t *testing.T) {
		bad := described(t, filepath.Join(root, "bad"), "arbe.json", `{"setup": 5}`)
		err := b.try(b.thread(b.environment(sandbox.Recipe{Driver: "local", Repo: bad})), "true").err
		if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "arbe.json of the repository cannot be read: setup: it is neither") {
			t.Errorf("it says %v", err)
		}
		th := b.thread(b.environment(sandbox.Recipe{Driver: "local", Repo: bad, Setup: "true"}))
		b.sh(th, "true")
		if said := stepOf(t, logged[entry.EnvironmentPrepared](b, th), "defaults of arbe.json").Output; !strings.Contains(said, "not used, because it cannot be read: setup") {
			t.Errorf("with a setup of the environment, it says %q", said)
		}
	})
}

func TestWhatIsWrongInTheDefaultsOfARepositoryIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"env": ["A"]}`:                      "env: it is not an object of texts",
		`{"limits": {"memory": 5}}`:           "limits: give memory_mb",
		`{"limits": {"cpus": -1}}`:            "limits: give memory_mb",
		`{"hostRequirements": {"memory": 5}}`: "hostRequirements: give cpus",
		`{"directory": "a`:                    "unexpected end",
		`{"start": "a\u0000b"}`:               "start: it has a NUL byte",
		`{"setup": "true", "image": ["x"]}`:   "image: it is not a text",
	} {
		if _, _, err := sandbox.ParseDefaults(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string][]string{
		`{"directory": "../x"}`:                                 {"directory"},
		`{"workspaceFolder": "/srv/web"}`:                       {"workspaceFolder"},
		`{"env": {"ARBE_X": "1", "a b": "2", "HOME": "/"}}`:     {"env.ARBE_X", "env.HOME", "env.a b"},
		`{"setup": "a", "postCreateCommand": "b"}`:              {"postCreateCommand"},
		`{"hostRequirements": {"memory": "lots", "gpu": true}}`: {"hostRequirements.gpu", "hostRequirements"},
		`{"$schema": "x", "name": "y"}`:                         nil,
	} {
		if _, unused, err := sandbox.ParseDefaults(text); err != nil || !slices.Equal(unused, want) {
			t.Errorf("of %s it does not know %q (%v), want %q", text, unused, err, want)
		}
	}
}

// stepOf returns a step of a preparation.
func stepOf(t *testing.T, prepared []entry.EnvironmentPrepared, name string) entry.PreparationStep {
	t.Helper()
	for _, p := range prepared {
		for _, step := range p.Steps {
			if step.Name == name {
				return step
			}
		}
	}
	t.Errorf("there is no step %q in %+v", name, prepared)
	return entry.PreparationStep{}
}
