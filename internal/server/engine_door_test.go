//go:build linux

package server_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/sandbox/docker"
	"github.com/arbe-dev/arbe/internal/sandbox/docker/dockertest"
	"github.com/arbe-dev/arbe/internal/server"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// openEngine starts the Docker engine of all tests, or returns why none can be started here. Its image has the programs with
// which git asks by http, and those that pi needs.
var openEngine = sync.OnceValues(func() (*dockertest.Engine, string) {
	e, why := dockertest.Open("git curl node /usr/lib/git-core/git-remote-http /usr/lib/git-core/git-remote-https")
	if why == "" {
		atEnd = append(atEnd, e.Remove)
	}
	return e, why
})

// onEngine is like served, but gives the database an identity of its own. Otherwise all test databases, which are copies of one,
// would count as one installation, and their servers would take each other's containers for leftovers.
func onEngine(t *testing.T) server.Config {
	t.Helper()
	cfg := served(t)
	conn, err := pgx.Connect(t.Context(), cfg.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "update installation set id = default"); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A program in a container without a network reaches the streams of the server, with a thread token of its house, and a
// diagnosis proves it. No other address of the server is involved.
func TestTheDoorsInsideAContainer(t *testing.T) {
	t.Parallel()
	engine, noEngine := openEngine()
	if noEngine != "" {
		t.Skip(noEngine)
	}
	cfg := onEngine(t)
	cfg.Providers = map[string]any{"docker": &docker.Config{Host: engine.Host(), Image: dockertest.BaseImage}}
	start(t, cfg)
	c := client(t, cfg)
	homes, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	house := homes.Houses[0].Id
	env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{
		HouseId: house, Name: "containers", Config: &arbev1.EnvironmentConfig{Driver: "docker", Egress: &arbev1.Egress{Mode: "none"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a diagnosis", func(t *testing.T) {
		checks, err := c.Environments.DiagnoseEnvironment(t.Context(), &arbev1.DiagnoseEnvironmentRequest{Id: env.Environment.Id})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for checks.Receive() {
			if check := checks.Msg().GetCheck(); check.GetName() == "door" {
				found = check.Result == arbev1.CheckResult_CHECK_RESULT_OK && check.Message == "http://127.19.0.1:7179"
				t.Logf("%v", check)
			}
		}
		if err := checks.Err(); err != nil || !found {
			t.Errorf("it proves no door (%v)", err)
		}
	})
	made, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house, EnvironmentId: env.Environment.Id})
	if err != nil {
		t.Fatal(err)
	}
	thread := made.Thread.Id
	ask := func(token, path string) string {
		return output(t, cfg, thread, `exec bash -c 'exec 3<>/dev/tcp/127.19.0.1/7179 && printf "GET `+path+` HTTP/1.0\r\nAuthorization: Bearer `+token+`\r\n\r\n" >&3 && cat <&3'`)
	}
	token := threadToken(t, c, thread)
	for name, call := range map[string]struct{ token, path, want string }{
		"its own thread":   {token, "/api/stream/arbe-thread-" + thread + "?offset=-1", " 200 OK"},
		"without a token":  {"", "/api/stream/arbe-thread-" + thread, "no bearer token"},
		"with an API key":  {login(t, cfg).Token, "/api/stream/arbe-thread-" + thread, "only thread tokens of its house"},
		"a page":           {token, "/login", "reach only the streams and the models"},
		"health":           {token, "/healthz", "reach only the streams and the models"},
		"another's thread": {token, "/api/stream/arbe-thread-" + newThread(t, c), "is valid only for thread"},
	} {
		if got := ask(call.token, call.path); !strings.Contains(got, call.want) {
			t.Errorf("%s: it answers %q, want %q", name, got, call.want)
		}
	}
}
