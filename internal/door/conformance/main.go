// Conformance runs the official suite of the Durable Streams protocol against the shipped program: `arbe up` in a
// directory of its own, with the owner's API key. A proxy adds the key to its requests, because the suite has no
// credential to show. Its webhooks are on this machine, which a setting of the operator allows. Beside the suite, the
// protocol's official client works with a thread's stream. It prints how many tests passed and failed, and what failed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
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
	// program is what is tested, as make builds it.
	program = "bin/arbe"
	// longPoll is how long the door waits. It is short, because tests of the suite wait for its end.
	longPoll = time.Second
	// startWithin limits the start of the server, and stopWithin its end.
	startWithin, stopWithin = 2 * time.Minute, time.Minute
	// suite is the directory of the suite's package.
	suite = "internal/door/conformance"
	// streams is where the server has the streams.
	streams = "/api/stream/"
)

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
	// Everyone may enter, because Postgres may run as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	login, stop, err := start(ctx, filepath.Join(dir, "data"))
	if err != nil {
		return 0, err
	}
	defer stop()
	server, err := url.Parse(login.Host)
	if err != nil {
		return 0, err
	}
	withKey := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1, // because events must not be delayed
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Host = r.In.Host                       // callbacks come by this way too
			if r.Out.Header.Get("Authorization") == "" { // those show a token of their own
				r.Out.Header.Set("Authorization", "Bearer "+login.Token)
			}
		},
		ErrorLog: log.New(io.Discard, "", 0), // because it would log each request that a client cancels
	})
	defer withKey.CloseClientConnections()
	thread, err := newThread(ctx, login)
	if err != nil {
		return 0, err
	}
	return test(ctx, filepath.Join(dir, "report.json"),
		"CONFORMANCE_URL="+withKey.URL,
		fmt.Sprintf("CONFORMANCE_LONG_POLL_MS=%d", longPoll.Milliseconds()),
		"CLIENT_THREAD_URL="+login.Host+streams+thread.StreamId,
		"CLIENT_KEY="+login.Token,
	)
}

// login is how the server's machine logs in as its owner.
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

// newThread makes a thread in the owner's house.
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

// test runs the tests with an environment, and reports the results.
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
