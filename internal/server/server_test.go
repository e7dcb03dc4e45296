package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/server"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// asServer makes this test program a server, so that tests can kill a real process.
const asServer = "ARBE_TEST_AS_SERVER"

// newer gives such a server another runner.
const newer = "ARBE_TEST_NEWER_RUNNER"

// atEnd is called after all tests.
var atEnd []func()

func TestMain(m *testing.M) {
	if os.Getenv(asServer) == "" {
		dbtest.Main(m, func() {
			for _, f := range atEnd {
				f()
			}
		})
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv(newer) != "" {
		server.NewerRunner()
	}
	cfg, _, err := server.Load(nil, os.Getenv)
	if err != nil {
		panic(err)
	}
	s, err := server.Start(ctx, cfg)
	if err != nil {
		os.Stderr.WriteString(fault.From(err).Detail())
		os.Exit(1)
	}
	s.Wait(ctx)
	if err := errors.Join(s.Drain(context.Background()), s.Stop()); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func TestFirstStart(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	s := start(t, cfg)
	c := client(t, cfg)
	homes, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(homes.Houses) != 1 {
		t.Fatalf("there are %d houses, want one", len(homes.Houses))
	}
	home := homes.Houses[0]

	t.Run("makes a house named Home, with its owner, its thread and a local environment", func(t *testing.T) {
		if home.Name != "Home" || home.Role != "owner" {
			t.Errorf("the house is %q and I am its %s", home.Name, home.Role)
		}
		primary, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: home.PrimaryThreadId})
		if err != nil || primary.Thread.PinnedAt == nil {
			t.Errorf("the primary thread is %v (%v), want a pinned one", primary, err)
		}
		env, err := c.Environments.GetEnvironment(t.Context(), &arbev1.GetEnvironmentRequest{Id: home.DefaultEnvironmentId})
		if err != nil || env.Environment.Config.Driver != "local" {
			t.Errorf("the default environment is %v (%v), want one on local", env, err)
		}
	})
	t.Run("makes a login link that logs a browser in, once", func(t *testing.T) {
		link, err := s.LoginLink(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		browser := newBrowser(t)
		for range 2 { // opening the page does not use up the link
			if page := browser.get(link); page.status != http.StatusOK || !strings.Contains(page.body, `action="/login"`) {
				t.Errorf("the link leads to a page with status %d, want the question whether to log in: %s", page.status, page.body)
			}
		}
		if page := browser.login(link); page.status != http.StatusOK || !strings.Contains(page.body, "Home") {
			t.Errorf("the link leads to a page with status %d, want the house", page.status)
		}
		if page := newBrowser(t).get(link); page.status != http.StatusUnauthorized || !strings.Contains(page.body, "already used") {
			t.Errorf("the used link leads to a page with status %d: %s", page.status, page.body)
		}
	})
	t.Run("refuses a second server on the same data directory, naming the first", func(t *testing.T) {
		second := cfg
		second.Addr = "127.0.0.1:0"
		_, err := server.Start(t.Context(), second)
		if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "already running on the data directory") {
			t.Errorf("the second start says %v", err)
		}
	})
	t.Run("refuses a port in use, and leaves nothing behind", func(t *testing.T) {
		other := settings(t)
		other.Addr = strings.TrimPrefix(s.URL(), "http://")
		_, err := server.Start(t.Context(), other)
		if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "cannot listen on "+other.Addr) {
			t.Errorf("the start says %v", err)
		}
		other.Addr = "127.0.0.1:0"
		start(t, other)
	})
	t.Run("finds everything again after a stop, and the old credentials still work", func(t *testing.T) {
		said := say(t, c, home.PrimaryThreadId, "before the stop")
		if err := s.Stop(); err != nil {
			t.Fatalf("stopping: %v", err)
		}
		start(t, cfg)
		list, err := client(t, cfg).Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: home.PrimaryThreadId, Last: true, Limit: 1})
		if err != nil || list.Entries[0].Id != said.Id {
			t.Errorf("after the restart the last entry is %v (%v), want %v", list, err, said)
		}
		if _, err := arbe.New(login(t, cfg).Host, login(t, cfg).Token).Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{}); err != nil {
			t.Errorf("the key of before the stop: %v", err)
		}
	})
}

func TestAKilledServerRecovers(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.Local.Grace = 2 * time.Minute
	first := startProcess(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	said := say(t, c, thread, "acknowledged")
	command := run(t, c, thread, "echo started; echo $$ > pid; until test -e go; do sleep 0.05; done; echo ended; exit 4")
	awaitDelta(t, c, thread, command.ResultId)

	first.Process.Kill()
	first.Wait()
	second := startProcess(t, cfg)

	t.Run("what was acknowledged is there", func(t *testing.T) {
		list, err := client(t, cfg).Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread})
		if err != nil || list.Entries[0].Id != said.Id {
			t.Errorf("the log begins with %v (%v), want %v", list, err, said)
		}
	})
	t.Run("the sandbox goes on, with its files and with the command that ran", func(t *testing.T) {
		if got := output(t, cfg, thread, "kill -0 $(cat pid) && touch go && echo runs"); got != "runs\n" {
			t.Errorf("it prints %q", got)
		}
	})
	t.Run("the end of that command is told as if nothing had happened", func(t *testing.T) {
		result := awaitEntry(t, client(t, cfg), thread, command.ResultId)
		if r := decode[entry.CommandResult](t, result); r.ExitCode != 4 || r.Output != "started\nended\n" || r.Error != "" {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("Ctrl-C stops everything it started, and tells it", func(t *testing.T) {
		c := client(t, cfg)
		last := run(t, c, thread, "trap 'echo goodbye; exit 1' TERM; echo started; while :; do sleep 0.05; done")
		awaitDelta(t, c, thread, last.ResultId)
		url := server.LocalDatabaseURL(cfg.DataDir)
		second.Process.Signal(os.Interrupt)
		if err := second.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if conn, err := pgx.Connect(t.Context(), url); err == nil {
			conn.Close(t.Context())
			t.Error("its Postgres still answers")
		}
		startProcess(t, cfg)
		r := decode[entry.CommandResult](t, awaitEntry(t, client(t, cfg), thread, last.ResultId))
		if r.ExitCode != -1 || !strings.Contains(r.Output, "started\n") || !strings.Contains(r.Output, "goodbye\n") || !strings.Contains(r.Error, "the server stopped") {
			t.Errorf("the result is %+v", r)
		}
	})
}

// The test kills the real postmaster. Its processes end when they notice.
func TestAServerStartsItsPostgresAgainWhenThatDies(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	startProcess(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	said := say(t, c, thread, "acknowledged")
	command := run(t, c, thread, "echo started; until test -e go; do sleep 0.05; done; echo ended; exit 4")
	awaitDelta(t, c, thread, command.ResultId)
	postmaster := func() string {
		text, _ := os.ReadFile(filepath.Join(cfg.DataDir, "postgres", "data", "postmaster.pid"))
		pid, _, _ := strings.Cut(string(text), "\n")
		return pid
	}
	first := postmaster()
	if pid, err := strconv.Atoi(first); err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Fatalf("there is no postmaster %q", first)
	}
	// A request may fail with a clear error while the database is away. Afterwards the same server answers.
	var list *arbev1.ListResponse
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if now := postmaster(); now != "" && now != first {
			if list, err = c.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread}); err == nil {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the database does not come back: %v", err)
		}
	}
	if list.Entries[0].Id != said.Id {
		t.Errorf("the log begins with %v, want %v", list.Entries[0], said)
	}
	if got := output(t, cfg, thread, "touch go && echo runs"); got != "runs\n" {
		t.Errorf("a command prints %q", got)
	}
	if r := decode[entry.CommandResult](t, awaitEntry(t, c, thread, command.ResultId)); r.ExitCode != 4 || r.Output != "started\nended\n" || r.Error != "" {
		t.Errorf("the result of the command that ran is %+v", r)
	}
}

func TestWhatRunsInASandboxOutlivesItsServer(t *testing.T) {
	t.Parallel()
	// A process is identified by its number and start time, because a new box starts counting again.
	const alive = `test "$(cut -d' ' -f1,22 /proc/$(cut -d' ' -f1 pid)/stat 2>/dev/null)" = "$(cat pid)" && echo runs || echo ended`
	begin := func(t *testing.T, cfg server.Config) (process *exec.Cmd, thread string, command *arbev1.RunCommandResponse) {
		process = startProcess(t, cfg)
		thread = newThread(t, client(t, cfg))
		output(t, cfg, thread, "nohup sleep 1000 >/dev/null 2>&1 & cut -d' ' -f1,22 /proc/$!/stat > pid")
		command = run(t, client(t, cfg), thread, "cut -d' ' -f1,22 /proc/$$/stat > foreground; echo started; until test -e go; do sleep 0.05; done; echo ended")
		awaitDelta(t, client(t, cfg), thread, command.ResultId)
		return process, thread, command
	}
	goesOn := func(t *testing.T, cfg server.Config, thread string, command *arbev1.RunCommandResponse) {
		if got := output(t, cfg, thread, alive); got != "runs\n" {
			t.Errorf("in the background: %q", got)
		}
		if got := output(t, cfg, thread, strings.ReplaceAll(alive, "pid", "foreground")); got != "runs\n" {
			t.Errorf("the command: %q", got)
		}
		output(t, cfg, thread, "touch go")
		if r := decode[entry.CommandResult](t, awaitEntry(t, client(t, cfg), thread, command.ResultId)); r.ExitCode != 0 || r.Output != "started\nended\n" {
			t.Errorf("the result is %+v", r)
		}
	}
	t.Run("that brings its database, when it is killed but not when it is stopped", func(t *testing.T) {
		t.Parallel()
		cfg := settings(t)
		cfg.Local.Grace = 2 * time.Minute
		first, thread, command := begin(t, cfg)
		first.Process.Kill()
		first.Wait()
		second := startProcess(t, cfg)
		goesOn(t, cfg, thread, command)
		second.Process.Signal(os.Interrupt)
		second.Wait()
		startProcess(t, cfg)
		if got := output(t, cfg, thread, alive); got != "ended\n" {
			t.Errorf("after Ctrl-C: %q", got)
		}
	})
	t.Run("that serves on an operator's, when it is stopped too", func(t *testing.T) {
		t.Parallel()
		cfg := served(t)
		cfg.Local.Grace = 2 * time.Minute
		first, thread, command := begin(t, cfg)
		first.Process.Signal(syscall.SIGTERM)
		if err := first.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		startProcess(t, cfg)
		goesOn(t, cfg, thread, command)
		output(t, cfg, thread, "kill $(cat pid)") // otherwise the process would outlive the test
	})
}

func TestSandboxesOfTwoMachines(t *testing.T) {
	t.Parallel()
	url := dbtest.Migrated(t)
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	var cfgs [2]server.Config
	var processes [2]*exec.Cmd
	for i := range cfgs {
		cfgs[i] = settings(t)
		cfgs[i].DatabaseURL, cfgs[i].SecretKey, cfgs[i].MachineGone = url, key, time.Minute
		processes[i] = startProcess(t, cfgs[i])
	}
	thread := newThread(t, client(t, cfgs[0]))
	t.Run("commands that are asked for of either server run where the thread's sandbox is", func(t *testing.T) {
		var asked []*arbev1.RunCommandResponse
		for i := range 20 {
			asked = append(asked, run(t, client(t, cfgs[i%2]), thread, "hostname; echo here >> runs"))
		}
		boxes := map[string]int{}
		for i, command := range asked {
			r := decode[entry.CommandResult](t, awaitEntry(t, client(t, cfgs[i%2]), thread, command.ResultId))
			if boxes[r.SandboxID]++; r.ExitCode != 0 || r.Error != "" {
				t.Errorf("command %d: %+v", i, r)
			}
		}
		if len(boxes) != 1 {
			t.Errorf("they ran on %v", boxes)
		}
		if got := output(t, cfgs[1], thread, "wc -l < runs"); got != "20\n" {
			t.Errorf("%q ran", got)
		}
	})
	// Find out which of the two servers runs the sandbox.
	at := 0
	if found, _ := filepath.Glob(filepath.Join(cfgs[1].DataDir, "local", "boxes", "*", "box.json")); len(found) > 0 {
		at = 1
	}
	there := cfgs[1-at]
	t.Run("files and ports are reached from either server", func(t *testing.T) { usesElsewhere(t, cfgs[at], there, thread) })
	t.Run("a house is deleted with its sandbox through either server", func(t *testing.T) { deletesElsewhere(t, url, cfgs[at], there) })
	leaving := houseOn(t, cfgs[at], there)
	processes[at].Process.Kill()
	processes[at].Wait()
	deletesHouse(t, there, leaving) // while its machine is away
	t.Run("while that machine is away a command waits, and says so; when it is gone for good another sandbox takes over", func(t *testing.T) {
		c := client(t, there)
		command := run(t, c, thread, "echo works")
		await(t, c, thread, func(event *arbev1.TailResponse) bool {
			e := event.GetEntry()
			w, ok := entry.As[entry.CommandWaiting](entry.Entry{Type: e.GetType(), Payload: json.RawMessage(e.GetPayload())})
			return ok && w.CommandID == command.Entry.Id && w.For == entry.WaitMachine
		})
		await(t, c, thread, func(event *arbev1.TailResponse) bool {
			return event.GetEntry().GetType() == entry.SandboxResumed{}.Type()
		})
		if r := decode[entry.CommandResult](t, awaitEntry(t, c, thread, command.ResultId)); r.ExitCode != 0 || r.Output != "works\n" {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("a house that was deleted meanwhile goes when its machine is gone for good", func(t *testing.T) { awaitHouseGone(t, url, leaving) })
}

func TestServingOnAnOperatorsPostgres(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t)
	a, b := settings(t), settings(t)
	a.DatabaseURL, b.DatabaseURL = url, url
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a.SecretKey, b.SecretKey = key, key
	start(t, a)
	start(t, b)

	t.Run("what is said through one server is seen through the other", func(t *testing.T) {
		thread := newThread(t, client(t, a))
		said := say(t, client(t, a), thread, "through a")
		if seen := awaitEntry(t, client(t, b), thread, said.Id); seen.Seq != said.Seq {
			t.Errorf("b sees it at %d, a wrote it at %d", seen.Seq, said.Seq)
		}
	})
	t.Run("the server's role in the database owns nothing and bypasses nothing", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		var servers, mighty int
		err = conn.QueryRow(t.Context(), `
			select count(*), count(*) filter (where r.rolsuper or r.rolbypassrls or exists (select from pg_class c where c.relowner = r.oid))
			from (select distinct usename from pg_stat_activity where application_name = 'arbe' and datname = current_database()) a
			join pg_roles r on r.rolname = a.usename`).Scan(&servers, &mighty)
		if err != nil || servers != 1 || mighty != 0 {
			t.Errorf("%d roles serve, %d of them above row-level security (%v)", servers, mighty, err)
		}
	})
	t.Run("another key is refused with what to do", func(t *testing.T) {
		c := settings(t)
		c.DatabaseURL = url
		_, err := server.Start(t.Context(), c)
		if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "ARBE_SECRET_KEY") {
			t.Errorf("the start says %v", err)
		}
	})
	t.Run("an unreachable database is one clear error", func(t *testing.T) {
		c := settings(t)
		c.DatabaseURL = "postgres://nobody@127.0.0.1:1/none"
		_, err := server.Start(t.Context(), c)
		if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "DATABASE_URL") {
			t.Errorf("the start says %v", err)
		}
	})
}

func TestAMachineWithoutAnOCIRuntime(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.Local.Runtime = filepath.Join(t.TempDir(), "no-such-runtime")
	s := start(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	say(t, c, thread, "talking works")
	failed := func() entry.CommandResult {
		command := run(t, c, thread, "echo works")
		return decode[entry.CommandResult](t, awaitEntry(t, c, thread, command.ResultId))
	}
	if r := failed(); r.ExitCode != -1 || !strings.Contains(r.Error, "no-such-runtime") {
		t.Errorf("the command says %+v, want the missing runtime by name", r)
	}
	// The server serves, so it stays in use, and it reports what does not work.
	if got := becomes(t, s, "/readyz", http.StatusOK); !strings.HasPrefix(got.body, "degraded: ") || !strings.Contains(got.body, "no-such-runtime") {
		t.Errorf("/readyz answers %q", got.body)
	}
	real, err := exec.LookPath("runc")
	if err != nil {
		t.Skip("there is no runc here")
	}
	if err := os.Symlink(real, cfg.Local.Runtime); err != nil {
		t.Fatal(err)
	}
	// The same server uses a runtime that is installed later, at the latest when a command needs it.
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		r := failed()
		if r.ExitCode == 0 && r.Output == "works\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the command says %+v", r)
		}
	}
	if got := becomes(t, s, "/readyz", http.StatusOK); strings.Contains(got.body, "no-such-runtime") {
		t.Errorf("/readyz answers %q", got.body)
	}
}

func TestTheDoor(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	s := start(t, cfg)
	key := login(t, cfg).Token

	post := func(t *testing.T, headers map[string]string, body []byte) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+arbev1connect.AgentServiceWhoAmIProcedure, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var text bytes.Buffer
		text.ReadFrom(res.Body)
		return res.StatusCode, text.String()
	}
	bearer := map[string]string{"Authorization": "Bearer " + key}

	t.Run("speaks Connect in plain JSON", func(t *testing.T) {
		if status, body := post(t, bearer, []byte("{}")); status != 200 || !strings.Contains(body, `"api_key"`) {
			t.Errorf("status %d: %s", status, body)
		}
	})
	for name, protocol := range map[string]connect.ClientOption{"gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb()} {
		t.Run("speaks "+name, func(t *testing.T) {
			var h2 http.Protocols
			h2.SetUnencryptedHTTP2(true)
			c := arbev1connect.NewAgentServiceClient(&http.Client{Transport: &http.Transport{Protocols: &h2}}, s.URL(), protocol)
			ctx, call := connect.NewClientContext(t.Context())
			call.RequestHeader().Set("Authorization", "Bearer "+key)
			if _, err := c.WhoAmI(ctx, &arbev1.WhoAmIRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("refuses another site's page that rides on a person's session", func(t *testing.T) {
		status, _ := post(t, map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example", "Authorization": "Bearer " + key}, []byte("{}"))
		if status != http.StatusForbidden {
			t.Errorf("status %d, want 403", status)
		}
	})
	t.Run("refuses a request that is too large", func(t *testing.T) {
		large := append(append([]byte(`{"x":"`), bytes.Repeat([]byte("x"), 6<<20)...), `"}`...)
		if status, body := post(t, bearer, large); status != http.StatusTooManyRequests || !strings.Contains(body, "resource_exhausted") {
			t.Errorf("status %d: %.200s", status, body)
		}
	})
	t.Run("serves the house's streams, under both of their paths", func(t *testing.T) {
		for _, c := range []struct{ method, path string }{{"PUT", "/api/stream/notes"}, {"POST", "/v1/stream/notes"}, {"GET", "/api/stream/notes"}} {
			req, err := http.NewRequestWithContext(t.Context(), c.method, s.URL()+c.path, strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Content-Type", "text/plain")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode/100 != 2 || c.method == "GET" && string(text) != "hellohello" {
				t.Errorf("%s %s: status %d: %s", c.method, c.path, res.StatusCode, text)
			}
		}
	})
	t.Run("no answer runs in a browser, but for the pages of the web app", func(t *testing.T) {
		paths := append(rpc.Paths(), "/healthz", "/readyz", "/healthz/..", "/api//stream/x", "//", "/arbe.v1.Nothing/Is", arbev1connect.AgentServiceWhoAmIProcedure)
		for _, path := range append(paths, door.Prefixes...) {
			for _, method := range []string{"GET", "POST", "OPTIONS", "TRACE"} {
				req, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				res, err := http.DefaultTransport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				policy := res.Header.Get("Content-Security-Policy")
				if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || res.Header.Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%s %s answers %d with %v", method, path, res.StatusCode, res.Header)
				}
			}
		}
	})
	t.Run("a service that does not exist is refused as the others are, and not by a page", func(t *testing.T) {
		res, err := http.Post(s.URL()+"/arbe.v1.Nothing/Is", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusNotImplemented || !strings.HasPrefix(string(text), `{"code":"unimplemented"`) {
			t.Errorf("it answers %d %s (%v)", res.StatusCode, text, err)
		}
	})
	t.Run("a page in a stream gets nothing from the browser of who opens it", func(t *testing.T) {
		const page = "<!doctype html><script>fetch('/arbe.v1.AgentService/CreateLoginLink', {method: 'POST'})</script>"
		c := client(t, cfg)
		link, err := c.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
		if err != nil {
			t.Fatal(err)
		}
		in, err := c.Agents.RedeemLoginLink(t.Context(), &arbev1.RedeemLoginLinkRequest{Token: strings.TrimPrefix(link.Path, "/login?token=")})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/api/stream/page", "/v1/stream/page", "/api/stream//page", "/api/stream/./page", "/api//stream/page", "/x/../v1/stream/page"} {
			for _, c := range []struct{ method, header, value string }{{"PUT", "Authorization", "Bearer " + key}, {"GET", "Cookie", "arbe_session=" + in.Session}} {
				req, err := http.NewRequestWithContext(t.Context(), c.method, s.URL()+path, strings.NewReader(page))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(c.header, c.value)
				req.Header.Set("Content-Type", "text/html")
				res, err := http.DefaultTransport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if policy := res.Header.Get("Content-Security-Policy"); c.method == "GET" && strings.Contains(string(text), "<script>") ||
					!strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") ||
					res.Header.Get("X-Content-Type-Options") != "nosniff" || res.StatusCode == http.StatusOK && c.method == "GET" {
					t.Errorf("%s %s answers %d with %v: %s", c.method, path, res.StatusCode, res.Header, text)
				}
			}
		}
	})
	t.Run("a browser's cookie carries a session and no other credential", func(t *testing.T) {
		c := client(t, cfg)
		thread := newThread(t, c)
		made, err := c.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: thread})
		if err != nil {
			t.Fatal(err)
		}
		for what, credential := range map[string]string{"a thread's token": made.Token.Token, "an API key": key} {
			for method, paths := range map[string][]string{
				"GET": {"/", "/threads/" + thread, "/live?t=thread/" + thread + "/0", "/threads/" + thread + "/entries",
					"/threads/" + thread + "/entries/1", "/threads/" + thread + "/entries/1/raw", "/api/stream/arbe-thread-" + thread},
				"POST": {"/threads/" + thread, "/threads/" + thread + "/entries", "/threads/" + thread + "/delete", "/threads/" + thread + "/commands/c/cancel",
					arbev1connect.AgentServiceWhoAmIProcedure},
			} {
				for _, path := range paths {
					req, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader("text=hello&entry="+strings.Repeat("e", 32)))
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					if strings.HasPrefix(path, "/arbe.") {
						req.Header.Set("Content-Type", "application/json")
					}
					req.AddCookie(&http.Cookie{Name: "arbe_session", Value: credential})
					res, err := http.DefaultTransport.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					text, _ := io.ReadAll(res.Body)
					res.Body.Close()
					sentToLogIn := res.StatusCode == http.StatusSeeOther && res.Header.Get("Location") == "/login"
					toldSo := strings.HasPrefix(path, "/live?") && strings.Contains(string(text), "You are logged out.")
					if res.StatusCode != http.StatusUnauthorized && !sentToLogIn && !toldSo {
						t.Errorf("with %s %s %s answers %d: %.300s", what, method, path, res.StatusCode, text)
					}
				}
			}
		}
	})
	t.Run("a page that is followed says so when its session ends", func(t *testing.T) {
		c := client(t, cfg)
		thread := newThread(t, c)
		link, err := c.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
		if err != nil {
			t.Fatal(err)
		}
		in, err := c.Agents.RedeemLoginLink(t.Context(), &arbev1.RedeemLoginLinkRequest{Token: strings.TrimPrefix(link.Path, "/login?token=")})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/live?t=thread/"+thread+"/0", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.AddCookie(&http.Cookie{Name: "arbe_session", Value: in.Session})
		res, err := http.DefaultClient.Do(req)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%v: %v", res, err)
		}
		defer res.Body.Close()
		if _, err := arbe.New(s.URL(), in.Session).Agents.EndSession(t.Context(), &arbev1.EndSessionRequest{}); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "You are logged out.") {
				return
			}
		}
		t.Errorf("it ended without a word: %v", lines.Err())
	})
}

// settings returns a configuration for this test: its own data directory and any free port.
func settings(t testing.TB) server.Config {
	t.Helper()
	dir := t.TempDir()
	// The embedded Postgres and the sandboxes run as other users, who must be able to enter their directories.
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0o755)
	}
	return server.Config{Addr: "127.0.0.1:0", DataDir: filepath.Join(dir, "data"), Local: local.Config{Runtime: "runc", Grace: time.Second},
		Maxima:   sandbox.Maxima{Limits: sandbox.Limits{DiskMB: 128}}, // sandboxes reserve their disks, here in memory
		LogLevel: slog.LevelWarn}
}

// served is like settings, on a database that is already migrated. Use it for tests of anything but a first start and the
// database. It takes a tenth of the time that the server's own database takes.
func served(t testing.TB) server.Config {
	t.Helper()
	cfg := settings(t)
	cfg.DatabaseURL = dbtest.Migrated(t)
	return cfg
}

// start runs a server in this process until the test ends.
func start(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("starting: %s", fault.From(err).Detail())
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	return s
}

// startProcess runs a server in its own process, which the test may kill.
func startProcess(t testing.TB, cfg server.Config) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{asServer + "=1"}
	return startProgram(t, cfg, cmd)
}

// startProgram starts a program that is a server, with its own environment, ours and that of the settings.
func startProgram(t testing.TB, cfg server.Config, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	os.Remove(filepath.Join(cfg.DataDir, "cli.json")) // its reappearance shows that the server serves
	cmd.Env = append(append(os.Environ(), cmd.Env...), "ARBE_DATA_DIR="+cfg.DataDir, "ARBE_ADDR="+cfg.Addr, "ARBE_LOG_LEVEL="+cfg.LogLevel.String(), "ARBE_SANDBOX_GRACE="+cfg.Local.Grace.String(), "ARBE_SANDBOX_HOST_DIRS="+strings.Join(cfg.Local.ReadOnly, ":"),
		"DATABASE_URL="+cfg.DatabaseURL, "ARBE_SECRET_KEY="+cfg.SecretKey, "ARBE_DRAIN_TIMEOUT="+cfg.DrainTimeout.String(), "ARBE_SANDBOX_MAX_DISK_MB="+strconv.Itoa(cfg.Maxima.DiskMB))
	if cfg.MachineGone > 0 {
		cmd.Env = append(cmd.Env, "ARBE_SANDBOX_MACHINE_GONE="+cfg.MachineGone.String())
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The Postgres of a killed server still writes for a while. An interrupted server stops its Postgres before the
		// directory is deleted.
		cmd.Process.Signal(os.Interrupt)
		deadline := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		cmd.Wait()
		deadline.Stop()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		if _, err := os.Stat(filepath.Join(cfg.DataDir, "cli.json")); err == nil {
			return cmd
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the server does not come up:\n%s", said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

type cliLogin struct{ Host, Token string }

func login(t testing.TB, cfg server.Config) (l cliLogin) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cfg.DataDir, "cli.json"))
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// client returns a client that is logged in as the owner, like the command line of the machine.
func client(t testing.TB, cfg server.Config) *arbe.Client {
	t.Helper()
	l := login(t, cfg)
	return arbe.New(l.Host, l.Token)
}

func newThread(t testing.TB, c *arbe.Client) string {
	t.Helper()
	homes, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: homes.Houses[0].Id})
	if err != nil {
		t.Fatal(err)
	}
	return made.Thread.Id
}

func say(t testing.TB, c *arbe.Client, thread, text string) *arbev1.Entry {
	t.Helper()
	payload, _ := json.Marshal(entry.Chat{Text: text})
	said, err := c.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: thread, Type: "chat", Payload: string(payload)})
	if err != nil {
		t.Fatal(err)
	}
	return said.Entry
}

func run(t testing.TB, c *arbe.Client, thread, line string) *arbev1.RunCommandResponse {
	t.Helper()
	ran, err := c.Threads.RunCommand(t.Context(), &arbev1.RunCommandRequest{ThreadId: thread, What: &arbev1.RunCommandRequest_Command{Command: line}})
	if err != nil {
		t.Fatal(err)
	}
	return ran
}

// await follows a thread until an event meets a condition.
func await(t testing.TB, c *arbe.Client, thread string, is func(*arbev1.TailResponse) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for event, err := range c.Tail(ctx, thread, 0) {
		if err != nil {
			t.Fatalf("following: %v", err)
		}
		if is(event) {
			return
		}
	}
	t.Fatal("it did not come")
}

func awaitEntry(t *testing.T, c *arbe.Client, thread, id string) (e *arbev1.Entry) {
	t.Helper()
	await(t, c, thread, func(event *arbev1.TailResponse) bool {
		e = event.GetEntry()
		return e.GetId() == id
	})
	return e
}

func awaitDelta(t *testing.T, c *arbe.Client, thread, id string) {
	t.Helper()
	await(t, c, thread, func(event *arbev1.TailResponse) bool { return event.GetDelta().GetEntryId() == id })
}

func decode[P entry.Payload](t *testing.T, e *arbev1.Entry) P {
	t.Helper()
	p, ok := entry.As[P](entry.Entry{Type: e.GetType(), Payload: json.RawMessage(e.GetPayload())})
	if !ok {
		t.Fatalf("it is a %s: %s", e.GetType(), e.GetPayload())
	}
	return p
}

// browser is a minimal browser that keeps cookies and follows redirects.
type browser struct {
	t *testing.T
	http.Client
}

type page struct {
	status int
	body   string
}

func newBrowser(t *testing.T) *browser {
	jar, _ := cookiejar.New(nil)
	return &browser{t, http.Client{Jar: jar}}
}

// login opens a login link and submits its form.
func (b *browser) login(link string) page {
	b.t.Helper()
	address, token, _ := strings.Cut(link, "?token=")
	return b.page(b.PostForm(address, url.Values{"token": {token}}))
}

func (b *browser) get(url string) page {
	b.t.Helper()
	return b.page(b.Get(url))
}

func (b *browser) page(res *http.Response, err error) page {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	var text bytes.Buffer
	text.ReadFrom(res.Body)
	return page{res.StatusCode, text.String()}
}
