//go:build linux

package sandbox_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/secret"
)

// stamped is a setup that marks a box with the run of the setup that made its files.
const stamped = `cat /proc/sys/kernel/random/uuid > ~/stamp`

// newCaching returns a driver that keeps built environments.
func newCaching(t *testing.T, change ...func(*local.Config)) *local.Driver {
	t.Helper()
	d := newLocal(t, change...)
	if !d.Guarantees().Layers {
		t.Skip("this machine's kernel cannot map the ids of a disk")
	}
	return d
}

// stamp returns the run of the setup that made a new thread's box, and whether the log says that the box came from
// the cache.
func stamp(b *bench, env string) (run string, cached bool) {
	b.t.Helper()
	th := b.thread(env)
	_, run = b.sh(th, "cat ~/stamp")
	return run, fromCache(b, th)
}

// fromCache reports whether the log says that a thread's box began with a cached environment.
func fromCache(b *bench, thread string) bool {
	b.t.Helper()
	prepared := logged[entry.EnvironmentPrepared](b, thread)
	if len(prepared) != 1 {
		b.t.Fatalf("the log has %+v", prepared)
	}
	return slices.ContainsFunc(prepared[0].Steps, func(s entry.PreparationStep) bool { return s.Name == entry.CachedEnvironment })
}

func TestTheSecondBoxOfAnEnvironmentBeginsWithTheFilesOfTheFirst(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	repo := filepath.Join(root, "repo")
	repository(t, repo)
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newCaching(t)}, root)
	recipe := sandbox.Recipe{Driver: "local", Repo: repo, Start: "echo started >> ~/starts",
		Setup: stamped + "; git -c user.name=Ada -c user.email=a@b commit --quiet --allow-empty -m 'of the setup'; echo ignored > made; echo made > .git/info/exclude"}
	env := b.environment(recipe)
	first := b.thread(env)
	_, before := b.sh(first, "cat ~/stamp; rm file; echo changed > more; chmod 700 ~/stamp")
	second := b.thread(env)
	box, after := b.sh(second, "cat ~/stamp; cat file made; git status --porcelain; cat ~/starts; echo more >> made; ls -A ~ | tr '\\n' ' '; stat -c %u:%a ~/stamp")
	if want := before + "latest\nignored\nstarted\n"; !strings.HasPrefix(after, want) || !strings.HasSuffix(after, "1000:644\n") {
		t.Errorf("the second box has\n%s\nwant\n%s", after, want)
	}
	if strings.Contains(after, ".arbe") {
		t.Errorf("something of the first box is left: %q", after)
	}
	said := logged[entry.EnvironmentPrepared](b, second)[0]
	if words := said.Plain(); !strings.Contains(words, "sandbox ready: from the cached environment, built less than a minute ago") || strings.Contains(words, "clone") || strings.Contains(words, "setup") {
		t.Errorf("the log says %q", words)
	}
	tree, err := b.boxes.Tree(t.Context(), b.scope, box.ID)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, s := range tree.Steps {
		steps = append(steps, s.Name)
	}
	if got := strings.Join(steps, ","); got != "create,cached environment,start" {
		t.Errorf("it was built by %s", got)
	}

	t.Run("and its files come back from the commit that was cloned, which was built from the beginning", func(t *testing.T) {
		b.destroy(box.ID)
		_, got := b.sh(second, "cat made 2>/dev/null; git log -1 --format=%s; cat ~/stamp")
		if !strings.HasPrefix(got, "ignored\nof the setup\n") || strings.HasSuffix(got, before) {
			t.Errorf("the replacement has %q", got)
		}
	})
	t.Run("whose files are not those of the next one", func(t *testing.T) {
		if _, got := b.sh(b.thread(env), "cat ~/stamp; ls"); got != before+"file\nmade\n" {
			t.Errorf("the third box has %q", got)
		}
	})
	t.Run("a recipe without clone and setup has nothing to keep", func(t *testing.T) {
		th := b.thread(b.environment(sandbox.Recipe{Driver: "local"}))
		b.sh(th, "true")
		b.sh(b.thread(b.environment(sandbox.Recipe{Driver: "local"})), "true")
		layers, err := b.driver("local").(sandbox.Layered).Layers(t.Context(), sandbox.Labels{})
		if err != nil || len(layers) != 1 {
			t.Errorf("there are %+v (%v)", layers, err)
		}
	})
	t.Run("once the environment is deleted, what was kept of it is, too", func(t *testing.T) {
		recipe := recipe
		recipe.Start = ""
		env := b.environment(recipe)
		run, _ := stamp(b, env)
		layers := func() int {
			list, err := b.driver("local").(sandbox.Layered).Layers(t.Context(), sandbox.Labels{Environment: env})
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		if run == before || layers() != 1 {
			t.Fatalf("another environment has %d layers, and %q", layers(), run)
		}
		b.boxes.Sweep(t.Context())
		if layers() != 1 {
			t.Error("a sweep deletes what an environment needs")
		}
		b.exec("update threads set sandbox_id = null, environment_id = null where environment_id = $1", env)
		b.exec("delete from sandboxes where environment_id = $1", env)
		if err := b.boxes.DeleteEnvironment(t.Context(), b.scope, env); err != nil {
			t.Fatal(err)
		}
		b.boxes.Sweep(t.Context())
		if layers() != 0 {
			t.Error("a sweep leaves what was kept of a deleted environment")
		}
	})
}

// A cached environment may contain a secret that was revoked. It does not wait for a successor that takes its place.
func TestASweepDeletesCachedEnvironmentsThatAreTooOld(t *testing.T) {
	t.Parallel()
	var dir string
	driver := newCaching(t, func(c *local.Config) { dir = c.Dir })
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": driver})
	stamp(b, b.environment(sandbox.Recipe{Driver: "local", Setup: stamped}))
	files, _ := filepath.Glob(filepath.Join(dir, "layers", "*", "layer.json"))
	if len(files) != 1 {
		t.Fatalf("there are %v", files)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`"MadeAt":"[^"]*"`).ReplaceAll(text, []byte(`"MadeAt":"2001-01-01T00:00:00Z"`))
	if err := os.WriteFile(files[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	b.boxes.Sweep(t.Context())
	if left, err := os.ReadDir(filepath.Join(dir, "layers")); err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
}

func TestACachedEnvironmentIsBuiltAgainWhenAnythingItWasMadeFromChanges(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	repo := filepath.Join(root, "repo")
	repository(t, repo)
	drivers := map[string]sandbox.Driver{"local": newCaching(t)}
	b := setupWith(t, nil, drivers, root)
	secrets := secret.New(b.DB, b.Sealer, nil, nil)
	b.boxes = sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Drivers: drivers, RepoRoots: []string{root}, Secrets: secrets, Artifacts: b.artifacts, Logger: slog.New(slog.DiscardHandler),
	})
	secretIs := func(value string) {
		t.Helper()
		if _, _, err := secrets.Set(t.Context(), b.scope, "TOKEN", []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	secretIs("the first value of it")
	recipe := sandbox.Recipe{Driver: "local", Repo: repo, Ref: "feature/x", Setup: stamped, Secrets: []secret.Binding{{Name: "TOKEN", Required: true}}}
	env := b.environment(recipe)
	change := func(change func(*sandbox.Recipe)) {
		t.Helper()
		change(&recipe)
		if _, err := b.boxes.UpdateEnvironment(t.Context(), b.scope, env, "", nil, &recipe); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(branch string) {
		t.Helper()
		run(t, repo, "git", "checkout", "--quiet", branch)
		run(t, repo, "git", "-c", "user.name=Ada", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "more")
	}
	last, _ := stamp(b, env)
	for _, c := range []struct {
		what    string
		do      func()
		rebuilt bool
	}{
		{"nothing", func() {}, false},
		{"the setup script", func() { change(func(r *sandbox.Recipe) { r.Setup += "; true" }) }, true},
		{"the start script, which runs in each box", func() { change(func(r *sandbox.Recipe) { r.Start = "true" }) }, false},
		{"the limits of commands", func() { change(func(r *sandbox.Recipe) { r.Limits.PIDs = 200 }) }, false},
		{"the size of the disk", func() { change(func(r *sandbox.Recipe) { r.Limits.DiskMB = 150 }) }, true},
		{"the commit of the ref", func() { commit("feature/x") }, true},
		{"the commit of another ref", func() { commit("main") }, false},
		{"the ref", func() { change(func(r *sandbox.Recipe) { r.Ref = "v1" }) }, true},
		{"the folder", func() {
			change(func(r *sandbox.Recipe) {
				r.Repo, r.Ref, r.Repositories = "", "", []sandbox.Repository{{URL: repo, Folder: "src"}}
			})
		}, true},
		{"the hosts that it reaches", func() { change(func(r *sandbox.Recipe) { r.Egress.Hosts = []string{"example.com"} }) }, true},
		{"the value of a secret", func() { secretIs("the second value of it") }, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			c.do()
			now, cached := stamp(b, env)
			if rebuilt := now != last; rebuilt != c.rebuilt || cached == rebuilt {
				t.Errorf("it was built again: %v, and the log says that it is cached: %v; want %v", rebuilt, cached, c.rebuilt)
			}
			last = now
		})
	}
	t.Run("another house with the same recipe has its own", func(t *testing.T) {
		recipe, ours := recipe, b.scope
		recipe.Secrets = nil
		change(func(r *sandbox.Recipe) { r.Secrets = nil })
		first, _ := stamp(b, env)
		b.scope = b.house()
		defer func() { b.scope = ours }()
		other, cached := stamp(b, b.environment(recipe))
		if other == first || cached {
			t.Errorf("it has %q, cached: %v", other, cached)
		}
	})
	t.Run("somebody asks for it with a diagnosis, which also says what the next box begins with", func(t *testing.T) {
		before, _ := stamp(b, env)
		by, _ := diagnosed(t.Context(), t, b, b.boxes, env)
		if c := by["cache"]; c.Result != sandbox.CheckOK || c.Message != "the next sandbox begins with what was built less than a minute ago" {
			t.Errorf("it says %+v", c)
		}
		if now, cached := stamp(b, env); now != before || !cached {
			t.Error("a diagnosis alone has the environment built again")
		}
		var said sandbox.Check
		err := b.boxes.Diagnose(t.Context(), b.scope, env, true, func(c sandbox.Check) error {
			if c.Name == "cache" {
				said = c
			}
			return nil
		})
		if err != nil || said.Message != "the next sandbox begins with what was built just now" {
			t.Errorf("the rebuild says %+v (%v)", said, err)
		}
		if now, cached := stamp(b, env); now == before || !cached {
			t.Errorf("after the rebuild a box has %q, cached: %v", now, cached)
		}
	})
	t.Run("a ref of which only a clone knows the commit is never cached", func(t *testing.T) {
		change(func(r *sandbox.Recipe) { r.Repo, r.Ref, r.Repositories = repo, "v1~0", nil })
		for range 2 {
			if _, cached := stamp(b, env); cached {
				t.Error("it is cached")
			}
		}
	})
	t.Run("a repository that is no longer allowed does not come from the cache", func(t *testing.T) {
		change(func(r *sandbox.Recipe) { r.Ref = "v1" })
		stamp(b, env)
		b.boxes = b.server(drivers, filepath.Dir(t.TempDir()))
		r := b.try(b.thread(env), "true")
		wantCode(t, r.err, fault.Forbidden)
	})
	t.Run("a repository whose files are gone does not, either", func(t *testing.T) {
		b.boxes = b.server(drivers, root)
		if err := os.RemoveAll(repo); err != nil {
			t.Fatal(err)
		}
		r := b.try(b.thread(env), "true")
		wantCode(t, r.err, fault.Precondition)
	})
}

func TestManyBoxesOfANewEnvironmentAtOnce(t *testing.T) {
	t.Parallel()
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newCaching(t)})
	env := b.environment(sandbox.Recipe{Driver: "local", Setup: stamped})
	var all sync.WaitGroup
	var runs [4]string
	for i := range runs {
		th := b.thread(env)
		all.Go(func() {
			r := b.try(th, "cat ~/stamp")
			if runs[i] = r.output; r.err != nil {
				t.Errorf("a box was not built: %s", detail(r.err))
			}
		})
	}
	all.Wait()
	next, cached := stamp(b, env)
	if !cached || !slices.Contains(runs[:], next) {
		t.Errorf("the next one has %q, cached: %v; the first ones have %q", next, cached, runs)
	}
}

func TestABoxIsBuiltEvenIfItCannotBeCached(t *testing.T) {
	t.Parallel()
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newCaching(t, func(c *local.Config) { c.Layers.SpaceMB = 1 })})
	env := b.environment(sandbox.Recipe{Driver: "local", Setup: stamped + "; head -c 2000000 /dev/urandom > large"})
	th := b.thread(env)
	box, first := b.sh(th, "cat ~/stamp")
	tree, err := b.boxes.Tree(t.Context(), b.scope, box.ID)
	if err != nil || len(tree.Steps) != 3 || !strings.HasPrefix(tree.Steps[2].Output, "not kept: the prepared files take up ") {
		t.Errorf("it was built by %+v (%v)", tree.Steps, err)
	}
	if second, cached := stamp(b, env); second == first || cached {
		t.Errorf("the second one has %q, cached: %v", second, cached)
	}
}

func TestWhatAHouseTakesUpOfTheDisk(t *testing.T) {
	t.Parallel()
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newCaching(t)})
	env := b.environment(sandbox.Recipe{Driver: "local", Setup: "head -c 5M /dev/urandom > large"})
	th := b.thread(env)
	box, _ := b.sh(th, "head -c 4M /dev/urandom > more; sync")
	b.boxes.Measure(t.Context())
	b.boxes.Measure(t.Context())
	uses, err := b.boxes.Uses(t.Context(), b.scope, box.ID)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := b.boxes.Disk(t.Context(), b.scope)
	// A layer's size includes blocks that a preparation wrote and freed again. On a slow machine they are several times the files.
	if use := uses[box.ID].DiskBytes; err != nil || use < 9<<20 || disk.Sandboxes != use || disk.Cached < 5<<20 || disk.Cached > 64<<20 || disk.Most == 0 {
		t.Errorf("the sandbox takes up %d, and the house %+v (%v)", use, disk, err)
	}
	if disk, err := b.boxes.Disk(t.Context(), b.house()); err != nil || disk != (sandbox.Disk{}) {
		t.Errorf("another house takes up %+v (%v)", disk, err)
	}
	b.destroy(box.ID)
	if disk, err := b.boxes.Disk(t.Context(), b.scope); err != nil || disk.Sandboxes != 0 {
		t.Errorf("after the sandbox was deleted, the house takes up %+v (%v)", disk, err)
	}
}
