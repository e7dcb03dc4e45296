// Conformance runs the official suite of the Durable Streams protocol against the shipped program: `arbe up` in a
// temporary directory, with the owner's API key. A proxy adds the key to requests, because the suite sends no
// credential. Its webhooks are on this machine, which an operator's setting allows. The protocol's official client is
// also tested with a thread's stream. Conformance prints how many tests passed and failed, and the failures. It fails
// unless all known tests passed, or, with arguments for vitest, unless all selected tests passed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// program is the program under test, as make builds it.
	program = "bin/arbe"
	// longPoll is how long the door waits. It is short, because tests of the suite wait for its end.
	longPoll = time.Second
	// startWithin limits the start of the server, and stopWithin its stop.
	startWithin, stopWithin = 2 * time.Minute, time.Minute
	// suite is the directory of the suite's package.
	suite = "internal/door/conformance"
	// streams is the server's path of streams.
	streams = "/api/stream/"
	// tests is the number of tests: 338 of the suite and 4 of the client. Raise it with the suite's version.
	tests = 342
)

// maySkip are the full names of tests that may be skipped.
var maySkip = map[string]bool{}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, fault.From(err).Detail())
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "arbe-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// Everyone may enter, because Postgres may run as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	login, stop, err := start(ctx, filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer stop()
	server, err := url.Parse(login.Host)
	if err != nil {
		return err
	}
	withKey := httptest.NewServer(proxyTo(server, login.Token))
	defer withKey.CloseClientConnections()
	thread, err := newThread(ctx, login)
	if err != nil {
		return err
	}
	return test(ctx, filepath.Join(dir, "report.json"),
		"CONFORMANCE_URL="+withKey.URL,
		fmt.Sprintf("CONFORMANCE_LONG_POLL_MS=%d", longPoll.Milliseconds()),
		"CLIENT_THREAD_URL="+login.Host+streams+thread.StreamId,
		"CLIENT_KEY="+login.Token,
	)
}

// proxyTo returns a proxy that adds a key to requests.
func proxyTo(server *url.URL, key string) http.Handler {
	return &httputil.ReverseProxy{
		FlushInterval: -1, // because events must not be delayed
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Host = r.In.Host                       // callbacks also come through this proxy
			if r.Out.Header.Get("Authorization") == "" { // callbacks carry a token
				r.Out.Header.Set("Authorization", "Bearer "+key)
			}
		},
		ErrorLog: log.New(io.Discard, "", 0), // because it would log each request that a client cancels
	}
}

// login is the owner's login, as stored on the server's machine.
type login struct{ Host, Token string }

// start runs the program as a server until stop, and returns once it serves.
func start(ctx context.Context, dir string) (l login, stop func(), err error) {
	var said bytes.Buffer
	server := exec.Command(program, "up")
	server.Env = append(os.Environ(), "ARBE_DATA_DIR="+dir, "ARBE_ADDR=127.0.0.1:0", "ARBE_LOG_LEVEL=warn",
		"ARBE_LONG_POLL_TIMEOUT="+longPoll.String(), "ARBE_WEBHOOK_PRIVATE_HOSTS=127.0.0.1,localhost")
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		return l, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	stop = func() {
		_ = server.Process.Signal(os.Interrupt) // it fails when the server has ended
		defer time.AfterFunc(stopWithin, func() { _ = server.Process.Kill() }).Stop()
		<-ended
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		// Wait for the login, because the server writes it when it serves.
		text, err := os.ReadFile(filepath.Join(dir, "cli.json"))
		if err == nil && json.Unmarshal(text, &l) == nil {
			return l, stop, nil
		}
		select {
		case err := <-ended:
			return l, nil, fmt.Errorf("the server ended at its start: %w\n%s", err, said.Bytes())
		case <-ctx.Done():
			stop()
			return l, nil, fmt.Errorf("the server did not come up\n%s", said.Bytes())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// newThread creates a thread in the owner's house.
func newThread(ctx context.Context, l login) (*arbev1.Thread, error) {
	client := arbe.New(l.Host, l.Token)
	houses, err := client.Houses.ListHouses(ctx, &arbev1.ListHousesRequest{})
	if err != nil {
		return nil, err
	}
	made, err := client.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: houses.Houses[0].Id})
	if err != nil {
		return nil, err
	}
	return made.Thread, nil
}

// test runs the tests with an environment, and prints the results. The error says why the run did not pass.
func test(ctx context.Context, name string, environment ...string) error {
	only := os.Args[1:]
	vitest := exec.CommandContext(ctx, "node_modules/.bin/vitest", append([]string{"run", "--reporter=json", "--outputFile=" + name}, only...)...)
	vitest.Dir = suite
	vitest.Env = append(os.Environ(), environment...)
	vitest.Stderr = os.Stderr
	ran := vitest.Run()
	text, err := os.ReadFile(name)
	if err != nil {
		return errors.Join(ran, err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return errors.Join(ran, err)
	}
	fmt.Printf("%d passed, %d failed\n", r.Passed, r.Failed)
	return errors.Join(r.judge(len(only) == 0), ran)
}

// report is the part of vitest's report that is needed.
type report struct {
	Passed int `json:"numPassedTests"`
	Failed int `json:"numFailedTests"`
	Files  []struct {
		Name    string `json:"name"`
		Status  string `json:"status"`
		Message string `json:"message"`
		Tests   []struct {
			Name     string   `json:"fullName"`
			Status   string   `json:"status"`
			Failures []string `json:"failureMessages"`
		} `json:"assertionResults"`
	} `json:"testResults"`
}

// judge returns an error if a run did not pass. If all is false, it ignores tests that were left out.
func (r report) judge(all bool) error {
	var wrong []error
	for _, file := range r.Files {
		if file.Status != "passed" || file.Message != "" {
			wrong = append(wrong, fmt.Errorf("the file %s %s: %s", filepath.Base(file.Name), file.Status, file.Message))
		}
		for _, t := range file.Tests {
			switch {
			case t.Status == "passed":
			case t.Status == "failed":
				wrong = append(wrong, fmt.Errorf("FAILED %s\n%s", t.Name, t.Failures))
			case all && !maySkip[t.Name]:
				wrong = append(wrong, fmt.Errorf("%s was not run (%s)", t.Name, t.Status))
			}
		}
	}
	if all && r.Passed < tests || r.Passed == 0 {
		wrong = append(wrong, fmt.Errorf("%d tests passed, want %d or more: the suite has lost tests", r.Passed, tests))
	}
	return errors.Join(wrong...)
}
