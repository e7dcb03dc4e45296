package sandbox_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
)

func TestARecipe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		name   string
		recipe sandbox.Recipe
		want   string // in the error; empty: it is right
	}{
		{"may name a repository by URL", sandbox.Recipe{Repo: "https://example.com/a/b.git", Ref: "release/1.x"}, ""},
		{"may name a repository of this machine", sandbox.Recipe{Repo: "/srv/repos/a"}, ""},
		{"may name one by its ssh address", sandbox.Recipe{Repo: "git@example.com:a/b.git"}, ""},
		{"may name one by an ssh URL", sandbox.Recipe{Repo: "ssh://git@example.com:2222/a/b.git"}, ""},
		{"may name none whose ssh host looks like an option", sandbox.Recipe{Repo: "git@-oProxyCommand=x:a"}, "repo: "},
		{"may know hosts by their keys", sandbox.Recipe{Git: []sandbox.GitCredential{{Host: "example.com", Secret: "KEY", HostKeys: []string{"SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"}}}}, ""},
		{"may not know one by something else", sandbox.Recipe{Git: []sandbox.GitCredential{{Host: "example.com", Secret: "KEY", HostKeys: []string{"ssh-ed25519 AAAA"}}}}, "host_keys"},
		{"may not name one by a relative path", sandbox.Recipe{Repo: "srv/repos/a"}, "repo: "},
		{"may not name one that looks like an option", sandbox.Recipe{Repo: "--upload-pack=touch /tmp/x"}, "repo: "},
		{"may not name one by a helper's scheme", sandbox.Recipe{Repo: "ext::sh -c evil"}, "repo: "},
		{"may not name a ref that looks like an option", sandbox.Recipe{Repo: "/srv/a", Ref: "--detach"}, "ref: "},
		{"may not name a ref with a space", sandbox.Recipe{Repo: "/srv/a", Ref: "main evil"}, "ref: "},
		{"may not name a ref of several lines", sandbox.Recipe{Repo: "/srv/a", Ref: "main\nevil"}, "ref: "},
		{"may not hold a NUL byte", sandbox.Recipe{Setup: "echo \x00"}, "NUL"},
		{"may not hold a NUL byte behind a backslash", sandbox.Recipe{Image: "a\\\x00"}, "NUL"},
		{"may hold what looks like one in JSON", sandbox.Recipe{Setup: `printf "\u0000\\u0000"`}, ""},
		{"may bind secrets", sandbox.Recipe{Secrets: []secret.Binding{{Name: "DEPLOY_KEY", Required: true}, {Name: "TOKEN"}}}, ""},
		{"may not give a file a name that leads elsewhere", sandbox.Recipe{Secrets: []secret.Binding{{Name: "KEY", File: "../key"}}}, "secrets: the file of KEY"},
		{"may not give a file a name of the driver's", sandbox.Recipe{Secrets: []secret.Binding{{Name: "KEY", File: ".key"}}}, "secrets: the file of KEY"},
		{"may not give two the same file", sandbox.Recipe{Secrets: []secret.Binding{{Name: "A", File: "x"}, {Name: "B", File: "x"}}}, "secrets: the file x is there twice"},
		{"may not bind one twice", sandbox.Recipe{Secrets: []secret.Binding{{Name: "TOKEN"}, {Name: "TOKEN", Required: true}}}, "secrets: TOKEN is there twice"},
		{"may not bind what is no name", sandbox.Recipe{Secrets: []secret.Binding{{Name: "a b"}}}, "secrets: "},
		{"may not replace the path", sandbox.Recipe{Secrets: []secret.Binding{{Name: "PATH"}}}, "secrets: PATH"},
		{"may not name an unknown driver", sandbox.Recipe{Driver: "nosuchdriver"}, "use one of: cloud"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.recipe.Driver == "" {
				c.recipe.Driver = "cloud"
			}
			env, err := b.boxes.CreateEnvironment(t.Context(), b.scope, "an environment", c.recipe)
			if c.want == "" {
				kept, getErr := b.boxes.Environment(t.Context(), b.scope, env.ID)
				if err != nil || getErr != nil || !reflect.DeepEqual(kept.Recipe, c.recipe) {
					t.Errorf("it is kept as %+v (%s, %s)", kept.Recipe, detail(err), detail(getErr))
				}
				return
			}
			if code := fault.CodeOf(err); code != fault.Invalid && code != fault.Precondition || !strings.Contains(detail(err), c.want) {
				t.Errorf("it says %s, want %q", detail(err), c.want)
			}
		})
	}
	t.Run("that is in use stays", func(t *testing.T) {
		used, unused := b.environment(sandbox.Recipe{}), b.environment(sandbox.Recipe{})
		b.sh(b.thread(used), "true")
		wantCode(t, b.boxes.DeleteEnvironment(t.Context(), b.scope, used), fault.Precondition)
		for range 2 {
			if err := b.boxes.DeleteEnvironment(t.Context(), b.scope, unused); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("that is changed leaves the sandboxes built from it as they are", func(t *testing.T) {
		env := b.environment(sandbox.Recipe{Setup: "echo old > made"})
		before, after := b.thread(env), b.thread(env)
		b.sh(before, "true")
		changed := sandbox.Recipe{Driver: "cloud", Setup: "echo new > made"}
		if _, err := b.boxes.UpdateEnvironment(t.Context(), b.scope, env, "", nil, &changed); err != nil {
			t.Fatal(err)
		}
		_, old := b.sh(before, "cat made")
		_, made := b.sh(after, "cat made")
		if old != "old\n" || made != "new\n" {
			t.Errorf("the old sandbox says %q, the new one %q", old, made)
		}
	})
}
