//go:build linux

package server_test

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona/daytonatest"
	"github.com/arbe-dev/arbe/internal/sandbox/docker"
	"github.com/arbe-dev/arbe/internal/sandbox/docker/dockertest"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite/spritetest"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Git in a sandbox of each provider uses a house's token without ever seeing it: over the network where the sandbox reaches the
// server's public address, and otherwise over the door that the driver carries.
func TestGitAtEachProviderUsesATokenThatItNeverGets(t *testing.T) {
	t.Parallel()
	host := newGitHost(t, "one")
	engine, noEngine := openEngine()
	var forward atomic.Pointer[http.Handler]
	proxy := serveAt(t, netip.AddrFrom4([4]byte{127, 0, 0, 1}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*forward.Load()).ServeHTTP(w, r) }))
	account, organization := daytonatest.New(t), spritetest.New(t)
	cfg := onEngine(t)
	cfg.PublicURL, cfg.Local.PrivateHosts = proxy, []string{host.name}
	cfg.GitAuthorities = x509.NewCertPool()
	cfg.GitAuthorities.AddCert(host.Certificate())
	cfg.Providers = map[string]any{
		"daytona": &daytona.Config{APIKey: daytonatest.Key, URL: account.URL},
		"sprite":  &sprite.Config{Token: spritetest.Token, URL: organization.URL},
	}
	if noEngine == "" {
		cfg.Providers["docker"] = &docker.Config{Host: engine.Host(), Image: dockertest.BaseImage}
	}
	start(t, cfg)
	upstream, err := url.Parse(login(t, cfg).Host)
	if err != nil {
		t.Fatal(err)
	}
	handler := door.Proxy(upstream, slog.New(slog.DiscardHandler))
	forward.Store(&handler)
	c := client(t, cfg)
	homes, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	house := homes.Houses[0].Id
	token := func(value string) {
		t.Helper()
		host.token.Store(value)
		if _, err := c.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "GIT_TOKEN", Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range map[string]struct{ driver, egress, door string }{
		"daytona":                   {"daytona", "open", proxy},
		"daytona without a network": {"daytona", "none", "http://127.19.0.1:7179"},
		"sprite":                    {"sprite", "open", proxy},
		"docker without a network":  {"docker", "none", "http://127.19.0.1:7179"},
	} {
		t.Run(name, func(t *testing.T) {
			if at.driver == "docker" && noEngine != "" {
				t.Skip(noEngine)
			}
			token("token-of-the-first-minute")
			config := &arbev1.EnvironmentConfig{
				Driver: at.driver, Repo: host.URL + "/one.git", Egress: &arbev1.Egress{Mode: at.egress}, Git: []*arbev1.GitCredential{{Host: host.name, Secret: "GIT_TOKEN"}},
			}
			env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: house, Name: name, Config: config})
			if err != nil {
				t.Fatal(err)
			}
			made, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house, EnvironmentId: env.Environment.Id})
			if err != nil {
				t.Fatal(err)
			}
			id := made.Thread.Id
			if got := output(t, cfg, id, "cat file; git config remote.origin.url"); got != "one\n"+host.URL+"/one.git\n" {
				t.Errorf("the sandbox has %q", got)
			}
			token("token-of-the-second-minute")
			refs := at.door + "/git/" + host.name + "/one.git/info/refs?service=git-upload-pack"
			const curl = `curl -sS -u "arbe:$(sed -n s/^password=//p ~/.arbe/git-token)" `
			got := outputs(t, cfg, id,
				`git -c user.name=Bot -c user.email=bot@example.com commit -q --allow-empty -m pushed && git push -q -f origin main 2>&1 && git fetch && git log -1 --format=%s origin/main`,
				"git ls-remote git@"+strings.Split(host.name, ":")[0]+":one.git main | cut -f2")
			got = append(got, outputs(t, cfg, id,
				curl+strings.Replace(refs, host.name, "example.com", 1),
				curl+at.door+"/git/"+host.name+"/user",
				`curl -sS -H "Authorization: Bearer $(sed -n s/^password=//p ~/.arbe/git-token)" `+at.door+"/api/stream/arbe-thread-"+id,
				curl+"'"+refs+"' | head -c 30",
				"sed -n s/^password=//p ~/.arbe/git-token",
				"env; cat ~/.gitconfig .git/config; grep -rs token-of /home /workspace /var/lib/arbe/records")...)
			if got[0] != "pushed\n" {
				t.Errorf("pushing prints %q", got[0])
			}
			if got[1] != "refs/heads/main\n" {
				t.Errorf("the repository's ssh address prints %q", got[1])
			}
			for i, call := range []struct{ what, want string }{
				{"another host", "no credential for repositories at example.com"},
				{"what is not git's", "not a request of git"},
				{"a token for the API", "unauthenticated"},
				{"its repository's refs", "service=git-upload-pack"},
			} {
				if got := got[2+i]; !strings.Contains(got, call.want) {
					t.Errorf("%s: it answers %q, want %q", call.what, got, call.want)
				}
			}
			stolen := strings.TrimSpace(got[6])
			if strings.Contains(strings.Join(got, ""), "token-of-the") {
				t.Errorf("the sandbox has the token: %q", got)
			}
			public := proxy + "/git/" + host.name + "/one.git/info/refs?service=git-upload-pack"
			if code := get(t, public, ""); code != http.StatusUnauthorized {
				t.Errorf("a stranger gets %d", code)
			}
			if code := get(t, public, stolen+"x"); code != http.StatusUnauthorized {
				t.Errorf("a forged token gets %d", code)
			}
			thread, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Sandboxes.DestroySandbox(t.Context(), &arbev1.DestroySandboxRequest{Id: thread.Thread.SandboxId}); err != nil {
				t.Fatal(err)
			}
			if code := get(t, public, stolen); code != http.StatusForbidden {
				t.Errorf("once the sandbox is gone, its token gets %d", code)
			}
		})
	}
}

// get asks for a page as git does with a token, and returns the status.
func get(t *testing.T, page, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.SetBasicAuth("arbe", token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
