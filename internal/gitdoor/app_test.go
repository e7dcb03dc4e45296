package gitdoor_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/gitdoor"
	"github.com/arbe-dev/arbe/internal/gitdoor/gitdoortest"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// appDoor is a door for a GitHub App, whose clock is the double's.
type appDoor struct {
	*gitdoortest.GitHub
	// address is the door's address for the host's repositories.
	address string
	// skew is how far the door's clock is ahead.
	skew time.Duration
	mu   sync.Mutex
	// log is what the door logs, and redacted the values that it has named for redaction.
	log, redacted strings.Builder
}

func newAppDoor(t *testing.T, change func(*gitdoor.Credential, *gitdoor.Config), repositories ...string) *appDoor {
	t.Helper()
	a := &appDoor{GitHub: gitdoortest.New(t, repositories...)}
	c := gitdoor.Credential{Password: a.Key, App: gitdoor.App{ID: gitdoortest.AppID}}
	authorities := x509.NewCertPool()
	authorities.AddCert(a.Certificate())
	config := gitdoor.Config{
		Dial: new(net.Dialer).DialContext, Authorities: authorities, Now: func() time.Time { return a.Now().Add(a.skew) },
		Redact: func(value []byte) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.redacted.Write(value)
		},
		Logger: slog.New(slog.NewTextHandler(&a.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&c, &config)
	}
	config.Credential = func(context.Context, string, string, string) (gitdoor.Credential, error) { return c, nil }
	d := gitdoor.New(config)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.Serve(w, r, "house", "environment") }))
	t.Cleanup(server.Close)
	a.address = server.URL + "/git/" + a.Host + "/"
	return a
}

const commitEmpty = commit + " --allow-empty"

// TestAGitHubAppOpensItsRepositories: a token lives one minute, and a clone and what follows it take longer.
func TestAGitHubAppOpensItsRepositories(t *testing.T) {
	t.Parallel()
	a := newAppDoor(t, nil, "ada/engine", "ada/notes")
	dir := t.TempDir()
	count := func(want int, when string) {
		t.Helper()
		if got := len(a.Tokens()); got != want {
			t.Fatalf("%s: there are %d tokens, want %d", when, got, want)
		}
	}
	run(t, dir, "git clone -q "+a.address+"ada/engine.git one 2>/dev/null && cd one && "+commitEmpty+" -m first && git push -q origin HEAD:main")
	count(2, "one to read and one to write")
	for i, want := range []string{"read", "write"} {
		if g := a.Grant(a.Tokens()[i]); g.Contents != want || len(g.Repositories) != 1 || g.Repositories[0] != "engine" {
			t.Errorf("token %d opens %+v", i, g)
		}
	}
	a.Advance(40 * time.Second)
	run(t, dir, "git clone -q "+a.address+"ada/engine two && cd two && git fetch -q && git log -1 --format=%s")
	count(2, "the same one while it lasts, with or without .git")
	a.Advance(10 * time.Second)
	run(t, dir, "git -C one fetch -q")
	count(3, "a new one shortly before the old one expires")
	a.Advance(time.Hour)
	run(t, dir, "cd two && git fetch -q && "+commitEmpty+" -m second && git push -q origin HEAD:main && git -C ../one fetch -q && git -C ../one log -1 --format=%s origin/main")
	count(5, "after an hour")
	run(t, dir, "git ls-remote "+a.address+"ada/notes.git")
	count(6, "another repository needs another token")
	if a.Refused() != 0 {
		t.Errorf("the host has refused %d requests", a.Refused())
	}
	a.Revoke()
	run(t, dir, "git -C one fetch -q")
	count(7, "a token that was revoked is replaced")
	for _, token := range a.Tokens() {
		if out, err := try(t, dir, "grep -rF "+token+" ."); err == nil {
			t.Errorf("a clone has a token: %s", out)
		}
		if strings.Contains(a.log.String(), token) || !strings.Contains(a.redacted.String(), token) {
			t.Error("the log has a token, or the token was not named for redaction")
		}
	}
}

// TestATokenIsMadeOnce: submodules and bots ask at the same time.
func TestATokenIsMadeOnce(t *testing.T) {
	t.Parallel()
	a := newAppDoor(t, nil, "ada/engine")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if out, err := ask(t, a.address+"ada/engine.git"); err != nil || !strings.Contains(out, "service=git-upload-pack") {
				t.Errorf("it answers %v: %s", err, out)
			}
		})
	}
	all.Wait()
	if got := len(a.Tokens()); got != 1 {
		t.Errorf("there are %d tokens", got)
	}
}

// TestWhatIsWrongWithAGitHubAppIsSaid: also what to do, and never the key, a claim or a token.
func TestWhatIsWrongWithAGitHubAppIsSaid(t *testing.T) {
	t.Parallel()
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	_, sshKey := newKey(t, "")
	says := func(status int, message string, header ...string) func(*appDoor) {
		return func(a *appDoor) {
			a.Instead(func(w http.ResponseWriter, r *http.Request) {
				for _, h := range header {
					name, value, _ := strings.Cut(h, ": ")
					w.Header().Set(name, value)
				}
				gitdoortest.Say(w, status, message)
			})
		}
	}
	for name, of := range map[string]struct {
		key, id, api string
		do           func(*appDoor)
		path, want   string
	}{
		"it is not installed":           {do: func(a *appDoor) { a.Uninstall("ada/engine") }, want: "the GitHub App 4711 is not installed on ada/engine, or there is no such repository; install it"},
		"there is no such repository":   {path: "ada/none", want: "is not installed on ada/none"},
		"the path is of no repository":  {path: "engine.git", want: "opens no repository with the path engine.git; write the address as https://"},
		"the path is longer":            {path: "ada/engine/wiki.git", want: "opens no repository with the path"},
		"the owner is only dots":        {path: ".../engine.git", want: "opens no repository with the path"},
		"the repository is named ..":    {path: "ada/...git", want: "opens no repository with the path"},
		"the clock is ahead":            {do: func(a *appDoor) { a.skew = 20 * time.Minute }, want: "because the clock of this server differs from GitHub's by 20m0s; ask the operator to set the clock"},
		"the clock is behind":           {do: func(a *appDoor) { a.skew = -20 * time.Minute }, want: "because the clock of this server differs from GitHub's by 20m0s"},
		"the key is not a key":          {key: "ghp_0123456789", want: "the secret of the GitHub App 4711 is not an RSA private key in PEM form; create a private key on the App's page"},
		"the key is cut":                {key: "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n", want: "is not an RSA private key in PEM form"},
		"the key is one of ssh":         {key: sshKey, want: "is not an RSA private key in PEM form"},
		"the key is another App's":      {key: gitdoortest.PEM(other), want: "refuses the GitHub App 4711: A JSON web token could not be decoded; check that the id and the private key"},
		"the id is another App's":       {id: "12", want: "refuses the GitHub App 12: A JSON web token could not be decoded; check that the id"},
		"it may only read":              {do: func(a *appDoor) { a.ReadOnly("ada/engine") }, path: "write", want: "may not write the contents of ada/engine: The permissions requested are not granted to this installation.; give the App the repository permission Contents: write"},
		"it is suspended":               {do: says(403, "This installation has been suspended"), want: "no token for ada/engine: This installation has been suspended; look at the App's installation"},
		"it has asked too often":        {do: says(403, "API rate limit exceeded", "X-RateLimit-Remaining: 0"), want: "too many requests of the GitHub App 4711; try again later"},
		"GitHub fails":                  {do: says(502, "Unicorn!"), want: "fails: Unicorn!; try again later"},
		"the repository was renamed":    {do: says(301, "Moved Permanently", "Location: /elsewhere"), want: "says that the repository ada/engine is somewhere else; use the repository's new address"},
		"the API is something else":     {do: says(200, ""), want: "the API of the GitHub App 4711 does not answer as GitHub's does; correct github_api"},
		"the API writes over the lines": {do: says(401, "no\x1b[2J\nremote: trust me"), want: "refuses the GitHub App 4711: no [2J remote: trust me; "},
		"the API is not reached":        {api: "https://127.0.0.1:1/api/v3", want: "127.0.0.1:1 cannot be reached by https"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAppDoor(t, func(c *gitdoor.Credential, _ *gitdoor.Config) {
				c.App.API = of.api
				if of.key != "" {
					c.Password = of.key
				}
				if of.id != "" {
					c.App.ID = of.id
				}
			}, "ada/engine")
			if of.do != nil {
				of.do(a)
			}
			address := a.address + "ada/engine.git/info/refs?service=git-upload-pack"
			switch of.path {
			case "":
			case "write":
				address = a.address + "ada/engine.git/info/refs?service=git-receive-pack"
			default:
				address = a.address + of.path + "/info/refs?service=git-upload-pack"
			}
			out, err := send(t, http.MethodGet, address, nil)
			if err != nil || !strings.HasPrefix(out, "arbe: ") || !strings.Contains(out, of.want) {
				t.Errorf("it says %q (%v), want %q", out, err, of.want)
			}
			if said := out + a.log.String(); strings.Contains(said, "PRIVATE KEY") || strings.Contains(said, "eyJ") || strings.Contains(said, "ghs_") {
				t.Errorf("it shows a key, a claim or a token: %s", said)
			}
		})
	}
}

// TestTheKeyOfAGitHubAppMayBePKCS8: programs convert keys to this form.
func TestTheKeyOfAGitHubAppMayBePKCS8(t *testing.T) {
	t.Parallel()
	a := newAppDoor(t, func(c *gitdoor.Credential, _ *gitdoor.Config) {
		block, _ := pem.Decode([]byte(c.Password))
		key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
		must(t, err)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		must(t, err)
		c.Password = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}, "ada/engine")
	if out, err := ask(t, a.address+"ada/engine.git"); err != nil || !strings.Contains(out, "service=git-upload-pack") {
		t.Errorf("it answers %v: %s", err, out)
	}
}

// TestTheAPIOfAGitHubAppMustBePublic: an owner of a house names it, and it could be a service of the operator's network.
func TestTheAPIOfAGitHubAppMustBePublic(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	inside := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(inside.Close)
	for name, c := range map[string]struct {
		allowed []string
		want    int64
	}{"it is not reached": {nil, 0}, "unless the operator allows it": {[]string{strings.TrimPrefix(inside.URL, "https://")}, 1}} {
		hosts, err := outbound.ParseHosts(c.allowed...)
		must(t, err)
		reached.Store(0)
		a := newAppDoor(t, func(credential *gitdoor.Credential, config *gitdoor.Config) {
			credential.App.API = inside.URL
			config.Dial = outbound.Dialer(hosts.Allows)
			config.Authorities.AddCert(inside.Certificate())
		}, "ada/engine")
		out, err := ask(t, a.address+"ada/engine.git")
		if err != nil || reached.Load() != c.want || c.want == 0 && !strings.Contains(out, "is not at a public address; use another host, or ask the operator") {
			t.Errorf("%s: it was reached %d times and answers %q (%v)", name, reached.Load(), out, err)
		}
	}
}

// TestAClaimGoesToTheAPIOnly: an API that sends the door elsewhere does not get the App's claim there.
func TestAClaimGoesToTheAPIOnly(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("it is asked: %s %s", r.Method, r.URL) }))
	t.Cleanup(elsewhere.Close)
	a := newAppDoor(t, func(_ *gitdoor.Credential, config *gitdoor.Config) {
		config.Authorities.AddCert(elsewhere.Certificate())
	}, "ada/engine")
	a.Instead(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if out, err := ask(t, a.address+"ada/engine.git"); err != nil || !strings.Contains(out, "is somewhere else") {
		t.Errorf("it answers %v: %s", err, out)
	}
}

// TestAnAnswerOfTheAPIIsLimited: the server holds it in memory.
func TestAnAnswerOfTheAPIIsLimited(t *testing.T) {
	t.Parallel()
	a := newAppDoor(t, nil, "ada/engine")
	var sent atomic.Int64
	a.Instead(func(w http.ResponseWriter, _ *http.Request) {
		for range 1 << 12 {
			n, err := io.WriteString(w, strings.Repeat(" ", 64<<10))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	if out, err := ask(t, a.address+"ada/engine.git"); err != nil || !strings.Contains(out, "does not answer as GitHub's does") {
		t.Errorf("it answers %v: %s", err, out)
	}
	if sent.Load() > 64<<20 {
		t.Errorf("the door has read %d bytes", sent.Load())
	}
}
