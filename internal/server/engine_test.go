package server_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/sandbox/docker"
	"github.com/arbe-dev/arbe/internal/server"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// A server starts without its engine, tells users so, and uses the engine once that runs.
func TestAnEngineThatIsAwayIsUsedWhenItIsBack(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "engine") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "engine.sock")
	cfg := settings(t)
	cfg.DatabaseURL, cfg.Providers = dbtest.Migrated(t), map[string]any{"docker": &docker.Config{Host: "unix://" + socket}}
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, s)
	c := client(t, cfg)
	homes, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	house := homes.Houses[0].Id
	env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: house, Name: "containers", Config: &arbev1.EnvironmentConfig{Driver: "docker"}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house, EnvironmentId: env.Environment.Id})
	if err != nil {
		t.Fatal(err)
	}
	thread := made.Thread.Id
	if got := output(t, cfg, thread, "true"); !strings.Contains(got, "the Docker engine does not answer") {
		t.Fatalf("without an engine, a command printed %q", got)
	}
	serveEngine(t, socket)
	for begin := time.Now(); ; {
		got := output(t, cfg, thread, "true")
		if strings.Contains(got, "or its registry requires a login") {
			break
		}
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("with an engine, a command printed %q", got)
		}
	}
}

// serveEngine serves an engine without containers and images, whose registry refuses every image.
func serveEngine(t *testing.T, socket string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	engine := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.45")
		w.Header().Set("Content-Type", "application/json")
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/info"):
			fmt.Fprint(w, `{"ID":"engine","NCPU":1}`)
		case strings.HasSuffix(path, "/containers/json"):
			fmt.Fprint(w, `[]`)
		case strings.HasSuffix(path, "/images/create"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"pull access denied for x, repository does not exist or may require authorization"}`)
		case strings.Contains(path, "/images/"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"No such image: x"}`)
		}
	})}
	go func() { _ = engine.Serve(l) }()
	t.Cleanup(func() { engine.Close() })
}
