//go:build linux

package server_test

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/harness/pi"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona/daytonatest"
	"github.com/arbe-dev/arbe/internal/sandbox/docker"
	"github.com/arbe-dev/arbe/internal/sandbox/docker/dockertest"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite/spritetest"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Pi works in a sandbox at each provider. The sandbox reaches the server only through a stream proxy, which forwards what the
// runner posts and the models that the agent asks. Daytona's sandboxes reach nothing else, not even the model's server. The
// server itself carries the connections of containers.
func TestPiAtEachProvider(t *testing.T) {
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		if r.Last().Role == "tool" {
			return modeltest.Reply{Text: "It says: " + r.Last().Text}
		}
		return modeltest.Reply{Text: "I write it.", Calls: []modeltest.Call{{Name: "bash", Arguments: `{"command":"echo written > file; cat file"}`}}}
	})
	for name, value := range map[string]string{"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": models.URL, "ARBE_MODEL": "anthropic/plain"} {
		t.Setenv(name, value)
	}
	engine, noEngine := openEngine()
	address := netip.AddrFrom4([4]byte{127, 0, 0, 1}) // that sandboxes reach this machine at
	if noEngine == "" {
		var err error
		if address, err = engine.Network(t.Context(), "agents"); err != nil {
			t.Fatal(err)
		}
	}
	// The sandboxes take pi from here instead of npm, without the files that it needs only to be developed.
	archive := filepath.Join(t.TempDir(), "pi.tar")
	execute(t, "tar", "-C", filepath.Dir(installedHere(t, pi.Harness{})), "-cf", archive, "--exclude=*.map", "--exclude=*.ts", "--exclude=*.md", "--exclude=@esbuild", "--exclude=node/node_modules", "node_modules")
	program := serveAt(t, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, archive) }))
	install := `set -e
dir=$HOME/.arbe/agents/pi-` + pi.Version + `
mkdir -p $dir
curl -sSf ` + program + ` | tar -x -C $dir
echo ` + pi.Version + ` > $dir/.installed
`
	// The proxy starts first, because its address is a setting of the server.
	var forwarded sync.Map // how many requests, by the kind of path
	var forward atomic.Pointer[http.Handler]
	proxy := serveAt(t, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/"), "/")
		forwarded.Store(kind, true)
		(*forward.Load()).ServeHTTP(w, r)
	}))
	account, organization := daytonatest.New(t), spritetest.New(t)
	account.Close(addressOf(t, proxy), addressOf(t, program))
	cfg := onEngine(t)
	cfg.PublicURL = proxy
	cfg.Providers = map[string]any{
		"daytona": &daytona.Config{APIKey: daytonatest.Key, URL: account.URL},
		"sprite":  &sprite.Config{Token: spritetest.Token, URL: organization.URL},
	}
	if noEngine == "" {
		cfg.Providers["docker"] = &docker.Config{Host: engine.Host(), Image: dockertest.BaseImage, Network: "agents"}
	}
	start(t, cfg)
	upstream, err := url.Parse(login(t, cfg).Host)
	if err != nil {
		t.Fatal(err)
	}
	handler := door.Proxy(upstream, slog.New(slog.DiscardHandler))
	forward.Store(&handler)
	c := client(t, cfg)
	parent, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: newThread(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range []string{"daytona", "sprite", "docker"} {
		t.Run(driver, func(t *testing.T) {
			if driver == "docker" && noEngine != "" {
				t.Skip(noEngine)
			}
			forwarded.Clear()
			// The sprite's network is open, so that the same attempt succeeds there.
			direct := "curl -sSf -o /tmp/models --max-time 10 " + models.URL + "/v1/models"
			attempt := map[string]string{"daytona": "if " + direct + "; then exit 1; fi\n", "sprite": direct + "\n"}[driver]
			env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: parent.Thread.HouseId, Name: driver,
				Config: &arbev1.EnvironmentConfig{Driver: driver, Setup: install + attempt, Egress: &arbev1.Egress{Mode: "open"}}})
			if err != nil {
				t.Fatal(err)
			}
			made, err := c.Runs.Delegate(t.Context(), &arbev1.DelegateRequest{HouseId: parent.Thread.HouseId, ParentThreadId: parent.Thread.Id, Task: "write it",
				Agent: "@pi", EnvironmentId: env.Environment.Id})
			if err != nil {
				t.Fatal(err)
			}
			log := awaitLong(t, c, made.Thread.Id, `"from":"running"`)
			runs, err := c.Runs.ListRuns(t.Context(), &arbev1.ListRunsRequest{ThreadId: made.Thread.Id})
			if err != nil || len(runs.Runs) != 1 || runs.Runs[0].Status != arbev1.RunStatus_RUN_STATUS_COMPLETED || !strings.Contains(runs.Runs[0].Result, "It says: written") {
				t.Errorf("its runs are %v: %v\n%s", runs.GetRuns(), err, log)
			}
			for _, kind := range []string{"stream", "model"} {
				if _, ok := forwarded.Load(kind); ok != (driver != "docker") {
					t.Errorf("the proxy forwarded something of the kind %s: %v", kind, ok)
				}
			}
		})
	}
}

// addressOf returns the address of a URL.
func addressOf(t *testing.T, server string) netip.AddrPort {
	t.Helper()
	at, err := netip.ParseAddrPort(strings.TrimPrefix(server, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// serveAt serves h at an address of this machine until the test ends, and returns its URL.
func serveAt(t *testing.T, address netip.Addr, h http.Handler) string {
	listener, err := net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: listener, Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}
