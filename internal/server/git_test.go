package server_test

import (
	"crypto/x509"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// gitHost is a host of git repositories that need a token.
type gitHost struct {
	*httptest.Server
	name string // host:port
	root string // the directory of the repositories
	// token is the token that the host accepts now.
	token atomic.Value
	// refused counts the requests with a different token.
	refused atomic.Int64
}

func newGitHost(t *testing.T, repositories ...string) *gitHost {
	t.Helper()
	backend, err := exec.Command("git", "--exec-path").Output()
	program := filepath.Join(strings.TrimSpace(string(backend)), "git-http-backend")
	if _, statErr := os.Stat(program); err != nil || statErr != nil {
		t.Skip("this machine has no git http-backend")
	}
	root := t.TempDir()
	for _, name := range repositories {
		work := filepath.Join(t.TempDir(), name)
		for _, argv := range [][]string{
			{"git", "init", "--quiet", "--initial-branch=main", work},
			{"sh", "-c", `cd "$0" && echo "$1" > file && mkdir .devcontainer && echo '{ // how it is set up
				"build": {"dockerfile": "x"}, "postCreateCommand": ["sh", "-c", "echo made by $(cat file) > made"], }' > .devcontainer/devcontainer.json`, work, name},
			{"git", "-C", work, "add", "."},
			{"git", "-C", work, "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "-m", "first"},
			{"git", "-C", work, "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "--allow-empty", "-m", "second"},
			{"git", "clone", "--quiet", "--bare", work, filepath.Join(root, name+".git")},
			{"git", "-C", filepath.Join(root, name+".git"), "config", "http.receivepack", "true"},
		} {
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", argv, err, out)
			}
		}
	}
	h := &gitHost{root: root}
	h.token.Store("")
	serve := &cgi.Handler{Path: program, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}, InheritEnv: []string{"PATH"}}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, token, _ := r.BasicAuth(); user != "x-access-token" || token == "" || token != h.token.Load() {
			h.refused.Add(1)
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		serve.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	h.name = strings.TrimPrefix(h.URL, "https://")
	return h
}

// Git in a sandbox uses a house's token without ever seeing it, even if the token is replaced all the time.
func TestGitInASandboxUsesATokenThatItNeverGets(t *testing.T) {
	t.Parallel()
	host := newGitHost(t, "one", "two")
	cfg := settings(t)
	cfg.DatabaseURL, cfg.Local.PrivateHosts = dbtest.Migrated(t), []string{host.name}
	cfg.GitAuthorities = x509.NewCertPool()
	cfg.GitAuthorities.AddCert(host.Certificate())
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
	token := func(value string) {
		t.Helper()
		host.token.Store(value)
		if _, err := c.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "GIT_TOKEN", Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	config := &arbev1.EnvironmentConfig{
		Repo:         host.URL + "/one.git",
		Repositories: []*arbev1.Repository{{Url: host.URL + "/two.git", Depth: 1, Folder: "lib/two"}},
		Git:          []*arbev1.GitCredential{{Host: host.name, Secret: "GIT_TOKEN"}},
		Start:        "echo started >> ~/starts", Directory: "one",
	}
	made, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: house, Name: "private", Config: config})
	if err != nil {
		t.Fatal(err)
	}
	environment := made.Environment.Id
	thread := func() string {
		t.Helper()
		made, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house, EnvironmentId: environment})
		if err != nil {
			t.Fatal(err)
		}
		return made.Thread.Id
	}
	if got := output(t, cfg, thread(), "true"); !strings.Contains(got, "the house has no secret GIT_TOKEN") {
		t.Errorf("without the secret a command gets %q", got)
	}
	if _, err := c.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "GIT_TOKEN", Value: []byte("wrong-token")}); err != nil {
		t.Fatal(err)
	}
	if got := output(t, cfg, thread(), "true"); !strings.Contains(got, "refuses the credential") {
		t.Errorf("with a wrong secret a command gets %q", got)
	}

	token("token-of-the-first-minute")
	id := thread()
	if got := output(t, cfg, id, "pwd; cat file made ../lib/two/file ~/starts; ls ../lib/two/made; git -C ../lib/two rev-list --count HEAD; git config remote.origin.url"); got !=
		"/workspace/one\none\nmade by one\ntwo\nstarted\nls: cannot access '../lib/two/made': No such file or directory\n1\n"+host.URL+"/one.git\n" {
		t.Errorf("the sandbox has %q", got)
	}
	cached := func(thread string) bool {
		t.Helper()
		th, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
		if err != nil {
			t.Fatal(err)
		}
		log, err := c.Sandboxes.GetSandboxLog(t.Context(), &arbev1.GetSandboxLogRequest{Id: th.Thread.SandboxId})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(log.Steps, func(s *arbev1.SandboxStep) bool { return s.Name == entry.CachedEnvironment })
	}
	second := thread()
	if got := output(t, cfg, second, "cat file made ../lib/two/file ~/starts"); got != "one\nmade by one\ntwo\nstarted\n" || cached(id) {
		t.Errorf("a second sandbox has %q", got)
	}
	if os.Geteuid() == 0 && !cached(second) { // only root's sandboxes have disks, which can be kept
		t.Error("the second sandbox was built from the beginning")
	}
	host.token.Store("token-that-the-house-does-not-have")
	if got := output(t, cfg, thread(), "true"); !strings.Contains(got, "refuses the credential") {
		t.Errorf("once the token is revoked, a command in a new sandbox gets %q", got)
	}
	token("token-of-the-second-minute")
	const push = `git -c user.name=Bot -c user.email=bot@example.com commit -q --allow-empty -m pushed && git push -q origin main 2>&1 && git fetch && git log -1 --format=%s origin/main`
	if got := output(t, cfg, id, push); got != "pushed\n" {
		t.Errorf("pushing prints %q", got)
	}
	ssh := strings.Split(host.name, ":")[0]
	if got := output(t, cfg, id, "git ls-remote git@"+ssh+":one.git main | cut -f2"); got != "refs/heads/main\n" {
		t.Errorf("the repository's ssh address prints %q", got)
	}

	if got := output(t, cfg, id, "env; cat ~/.gitconfig .git/config; grep -rl token-of / --include='*' -s --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr | head; curl -sS http://arbe.internal/git/"+host.name+"/one.git/info/refs?service=git-upload-pack -v 2>&1"); strings.Contains(got, "token-of") || strings.Contains(strings.ToLower(got), "authorization") {
		t.Errorf("the sandbox has the token: %q", got)
	}
	get := "curl -sS -m 30 --path-as-is "
	door := " 'http://arbe.internal/git/"
	for name, call := range map[string]struct{ line, want string }{
		"another host":                   {get + door + "example.com/one.git/info/refs?service=git-upload-pack'", "no credential for repositories at example.com"},
		"the host at another port":       {get + door + ssh + "/one.git/info/refs?service=git-upload-pack'", "no credential for repositories at"},
		"what is not git's":              {get + door + host.name + "/api/v1/user'", "not a request of git"},
		"another service":                {get + door + host.name + "/one.git/info/refs?service=git-archive'", "not a request of git"},
		"a further parameter":            {get + door + host.name + "/one.git/info/refs?service=git-upload-pack&x=y'", "not a request of git"},
		"a path that leads elsewhere":    {get + door + host.name + "/api/../one.git/info/refs?service=git-upload-pack'", "not a request of git"},
		"an escaped path":                {get + door + host.name + "/api%2f..%2fone.git/info/refs?service=git-upload-pack'", "not a request of git"},
		"another method":                 {get + "-X DELETE" + door + host.name + "/one.git/git-upload-pack'", "not a request of git"},
		"from the host's public address": {"curl -sS -m 5 " + login(t, cfg).Host + "/git/" + host.name + "/one.git/info/refs 2>&1", "curl: ("},
	} {
		if got := output(t, cfg, id, call.line); !strings.Contains(got, call.want) {
			t.Errorf("%s: it answers %q, want %q", name, got, call.want)
		}
	}

	config.Git = nil
	if _, err := c.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{Id: environment, Config: config}); err != nil {
		t.Fatal(err)
	}
	if got := output(t, cfg, id, "git fetch 2>&1"); !strings.Contains(got, "no credential for repositories") {
		t.Errorf("after the credential was taken away, git prints %q", got)
	}
}
