// Conformance runs the official suite of the Durable Streams protocol against the stream door: the real
// handler over a real Postgres, which shows every request the streams of one house, since the suite has no
// credential to show. Beside it, the protocol's official client works with a thread's stream, with a key. It
// prints how many tests passed and failed, and what failed.
package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/subscription"
)

// longPoll is how long the door waits: the suite sits through some of it.
const longPoll = time.Second

// suite is the directory of the suite's package.
const suite = "internal/door/conformance"

func main() {
	failed, err := run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, fault.From(err).Detail())
		os.Exit(1)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context) (failed int, err error) {
	dir, err := os.MkdirTemp("", "arbe-conformance-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // Postgres may run as another user, who must be able to enter
		return 0, err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	postgres, err := embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "postgres"), Fast: true, Log: logger})
	if err != nil {
		return 0, err
	}
	defer postgres.Stop(ctx)
	database, sealer, home, err := prepare(ctx, postgres.URL())
	if err != nil {
		return 0, err
	}
	defer database.Close()
	who := auth.New(auth.Config{DB: database, Sealer: sealer})
	clientKey, err := who.ReplaceKey(ctx, home.member, "client")
	if err != nil {
		return 0, err
	}
	log, err := stream.Open(ctx, database, logger)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return 0, err
	}
	subscriptions := subscription.Start(subscription.Config{DB: database, Log: log, Key: key, LocalWebhooks: true, Logger: logger})
	defer subscriptions.Close()
	serve := func(authorize door.Authorize) *httptest.Server {
		return httptest.NewServer(door.New(door.Config{
			Log: log, Authorize: authorize, Subscriptions: subscriptions, Logger: logger, LongPoll: longPoll,
		}))
	}
	toAll := serve(func(*http.Request, auth.Action, string) (door.Pass, error) {
		return door.Pass{Scope: db.Scope{House: home.id}}, nil
	})
	defer toAll.CloseClientConnections()
	toMembers := serve(door.Members(who))
	defer toMembers.CloseClientConnections()
	return test(ctx, filepath.Join(dir, "report.json"),
		"CONFORMANCE_URL="+toAll.URL,
		fmt.Sprintf("CONFORMANCE_LONG_POLL_MS=%d", longPoll.Milliseconds()),
		"CLIENT_THREAD_URL="+toMembers.URL+door.Prefixes[0]+home.stream,
		"CLIENT_KEY="+clientKey,
	)
}

// house is a house with a member, and a thread's stream.
type house struct{ id, member, stream string }

// prepare makes a database with one house in it.
func prepare(ctx context.Context, ownerURL string) (database *db.DB, sealer *secret.Sealer, home house, err error) {
	key, err := secret.NewKey()
	if err != nil {
		return nil, nil, home, err
	}
	sealer, err = secret.NewSealer(key)
	if err != nil {
		return nil, nil, home, err
	}
	serverURL, err := db.Migrate(ctx, ownerURL, sealer)
	if err != nil {
		return nil, nil, home, err
	}
	owner, err := pgx.Connect(ctx, ownerURL)
	if err != nil {
		return nil, nil, home, err
	}
	defer owner.Close(ctx)
	err = owner.QueryRow(ctx, `
		with h as (insert into houses (name) values ('Conformance') returning id),
		     a as (insert into agents (kind, name) values ('human', 'Client') returning id),
		     s as (insert into streams (house_id, name) select id, 'arbe-thread-client' from h returning name),
		     t as (insert into threads (id, house_id, stream_id) select 'client', h.id, s.name from h, s),
		     m as (insert into members (house_id, agent_id, role) select h.id, a.id, 'member' from h, a)
		select h.id, a.id::text, s.name from h, a, s`).Scan(&home.id, &home.member, &home.stream)
	if err != nil {
		return nil, nil, home, err
	}
	database, err = db.Open(ctx, serverURL, db.Options{})
	return database, sealer, home, err
}

// test runs the tests with an environment, and tells what came of them.
func test(ctx context.Context, report string, environment ...string) (failed int, err error) {
	vitest := exec.CommandContext(ctx, "node_modules/.bin/vitest", append([]string{"run", "--reporter=json", "--outputFile=" + report}, os.Args[1:]...)...)
	vitest.Dir = suite
	vitest.Env = append(os.Environ(), environment...)
	vitest.Stderr = os.Stderr
	ran := vitest.Run()
	text, err := os.ReadFile(report)
	if err != nil {
		return 0, errors.Join(ran, err)
	}
	var r struct {
		Passed int `json:"numPassedTests"`
		Failed int `json:"numFailedTests"`
		Files  []struct {
			Message string `json:"message"`
			Tests   []struct {
				Name     string   `json:"fullName"`
				Status   string   `json:"status"`
				Failures []string `json:"failureMessages"`
			} `json:"assertionResults"`
		} `json:"testResults"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return 0, err
	}
	for _, file := range r.Files {
		if file.Message != "" {
			fmt.Println(file.Message)
		}
		for _, t := range file.Tests {
			if t.Status == "failed" {
				fmt.Printf("FAILED %s\n%s\n", t.Name, t.Failures)
			}
		}
	}
	fmt.Printf("%d passed, %d failed\n", r.Passed, r.Failed)
	if r.Passed+r.Failed == 0 {
		return 0, errors.New("the suite ran no test")
	}
	return r.Failed, nil
}
