// Conformance runs the official suite of the Durable Streams protocol against the stream door: the real
// handler over a real Postgres, which shows every request the streams of one house, since the suite has no
// credential to show. It prints how many tests passed and failed, and what failed.
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
	database, house, err := prepare(ctx, postgres.URL())
	if err != nil {
		return 0, err
	}
	defer database.Close()
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
	server := httptest.NewServer(door.New(door.Config{
		Log: log, Subscriptions: subscriptions, Logger: logger, LongPoll: longPoll,
		Authorize: func(*http.Request, auth.Action, string) (db.Scope, error) { return db.Scope{House: house}, nil },
	}))
	defer server.CloseClientConnections()
	return test(ctx, server.URL, filepath.Join(dir, "report.json"))
}

// prepare makes a database with one house in it.
func prepare(ctx context.Context, ownerURL string) (database *db.DB, house string, err error) {
	key, err := secret.NewKey()
	if err != nil {
		return nil, "", err
	}
	sealer, err := secret.NewSealer(key)
	if err != nil {
		return nil, "", err
	}
	serverURL, err := db.Migrate(ctx, ownerURL, sealer)
	if err != nil {
		return nil, "", err
	}
	owner, err := pgx.Connect(ctx, ownerURL)
	if err != nil {
		return nil, "", err
	}
	defer owner.Close(ctx)
	if err := owner.QueryRow(ctx, "insert into houses (name) values ('Conformance') returning id").Scan(&house); err != nil {
		return nil, "", err
	}
	database, err = db.Open(ctx, serverURL, db.Options{})
	return database, house, err
}

// test runs the suite, and tells what came of it.
func test(ctx context.Context, url, report string) (failed int, err error) {
	vitest := exec.CommandContext(ctx, "node_modules/.bin/vitest", append([]string{"run", "--reporter=json", "--outputFile=" + report}, os.Args[1:]...)...)
	vitest.Dir = suite
	vitest.Env = append(os.Environ(), "CONFORMANCE_URL="+url, fmt.Sprintf("CONFORMANCE_LONG_POLL_MS=%d", longPoll.Milliseconds()))
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
