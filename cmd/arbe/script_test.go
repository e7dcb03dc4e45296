package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sync/errgroup"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"arbe": main})
}

// tests runs this package's tests. Processes of the same program that run as arbe do not get here.
type tests struct{ *testing.M }

func (t tests) Run() int { return dbtest.Run(t.M) }

// TestScripts plays what people type, against one server that arbe up started. In addition to testscript's commands, scripts
// have
//
//	exits CODE COMMAND…   runs a command that must exit with CODE
//	capture VAR [REGEXP]  keeps the last output in a variable, or what the group of the expression is in it
//	shows FILE REGEXP     waits until a background command has written a match to the file
//	answers FILE VERDICT  approves or denies the login whose code a background command has written to the file
//	interrupt             sends Ctrl-C to the background command
//	terminate             sends it SIGTERM
//	interrupted CODE      checks, after wait, that it exited with CODE
//
// A background command must end when it gets SIGINT, which a failed script sends and then waits. A shell does not pass the
// signal on: use exec in it, or run it with timeout.
func TestScripts(t *testing.T) {
	t.Parallel()
	// With ARBE_PUBLIC_URL, browsers use another address, but the command line must still use the server's own.
	server := startUp(t, "ARBE_PUBLIC_URL=https://arbe.example.com")
	play(t, "testdata/script", server, longThread(t, server, 2500))
}

// TestScriptsOfSeveralHouses plays the scripts that create houses. They have their own server, because the other scripts rely
// on being in one house.
func TestScriptsOfSeveralHouses(t *testing.T) {
	t.Parallel()
	play(t, "testdata/houses", startUp(t, "ARBE_PUBLIC_URL=https://arbe.example.com"), "")
}

// TestScriptsAlone plays scripts that affect the whole server, each with its own server.
func TestScriptsAlone(t *testing.T) {
	t.Parallel()
	play(t, "testdata/alone", startUp(t), "")
}

// TestANewcomersJourney plays a first day in the terminal, with a server on the newcomer's machine and one elsewhere.
func TestANewcomersJourney(t *testing.T) {
	t.Parallel()
	here, there := startFirst(t, "127.0.0.1"), startFirst(t, "127.0.0.2")
	play(t, "testdata/journey", here, "", "SERVER2="+there.host, "DATA2="+there.dataDir)
}

// play plays the scripts of a directory against a server with a long thread. It adds variables to their environment.
func play(t *testing.T, dir string, server *upServer, long string, variables ...string) {
	t.Helper()
	playWith(t, dir, server, long, nil, variables...)
}

// playWith is like [play], with additional commands.
func playWith(t *testing.T, dir string, server *upServer, long string, commands map[string]func(*testscript.TestScript, bool, []string), variables ...string) {
	t.Helper()
	all := map[string]func(*testscript.TestScript, bool, []string){
		"exits":       exits,
		"capture":     capture,
		"shows":       shows,
		"answers":     answersWith(arbe.New(server.host, server.token)),
		"interrupt":   sends(os.Interrupt),
		"terminate":   sends(syscall.SIGTERM),
		"interrupted": endsInterrupted,
	}
	maps.Copy(all, commands)
	testscript.Run(t, testscript.Params{
		Dir:                dir,
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("ARBE_DATA_DIR", server.dataDir)
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("DATA", server.dataDir)
			e.Setenv("SERVER", server.host)
			e.Setenv("STATE", server.state())
			e.Setenv("LONG", long)
			e.Vars = append(e.Vars, variables...)
			e.Values[behind{}] = &behind{}
			return writeInputs(e)
		},
		Condition: func(name string) (bool, error) {
			if name != "sandbox" {
				return false, fmt.Errorf("there is no condition %s", name)
			}
			_, err := exec.LookPath("runc")
			return err == nil, nil
		},
		Cmds: all,
	})
}

// longThread creates a thread whose log has two signals and then this many chats.
func longThread(t *testing.T, server *upServer, lines int) (id string) {
	t.Helper()
	ctx, c := t.Context(), arbe.New(server.host, server.token)
	houses, err := allHouses(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	created, err := c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: houses[0].GetId(), Name: "long"})
	if err != nil {
		t.Fatal(err)
	}
	id = created.GetThread().GetId()
	for _, status := range []arbev1.ThreadStatus{arbev1.ThreadStatus_THREAD_STATUS_CLOSED, arbev1.ThreadStatus_THREAD_STATUS_OPEN} {
		if _, err := c.Threads.UpdateThread(ctx, &arbev1.UpdateThreadRequest{Id: id, Status: &status}); err != nil {
			t.Fatal(err)
		}
	}
	var writers errgroup.Group
	writers.SetLimit(20)
	for range lines {
		writers.Go(func() error {
			_, err := c.Entries.Append(ctx, &arbev1.AppendRequest{ThreadId: id, Type: "chat", Payload: `{"text":"line"}`})
			return err
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	return id
}

// writeInputs creates the files that are too large for a script.
func writeInputs(e *testscript.Env) error {
	tooLong, counted := filepath.Join(e.WorkDir, "too-long"), filepath.Join(e.WorkDir, "counted")
	e.Setenv("TOO_LONG", tooLong)
	e.Setenv("COUNTED", counted)
	var numbers strings.Builder
	for n := range 20000 {
		numbers.WriteString(strconv.Itoa(n+1) + "\n")
	}
	return errors.Join(
		os.WriteFile(tooLong, []byte(strings.Repeat("é", 1<<20)), 0o600),
		os.WriteFile(counted, []byte(numbers.String()), 0o600))
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	got := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	wantCode(ts, args[0], got)
}

func wantCode(ts *testscript.TestScript, want string, got int) {
	if want != strconv.Itoa(got) {
		ts.Fatalf("it exited with %d, want %s", got, want)
	}
}

func capture(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.TrimSpace(ts.ReadFile("stdout"))
	if len(args) > 1 {
		found := regexp.MustCompile(args[1]).FindStringSubmatch(text)
		if len(found) < 2 {
			ts.Fatalf("there is no %s in %q", args[1], text)
		}
		text = found[1]
	}
	ts.Setenv(args[0], text)
}

func shows(ts *testscript.TestScript, _ bool, args []string) {
	want, path := regexp.MustCompile("(?m)"+args[1]), ts.MkAbs(args[0])
	for until := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(path) // the file may not exist yet
		if want.Match(text) {
			return
		}
		if time.Now().After(until) {
			ts.Fatalf("%s never showed %s but %q", args[0], args[1], text)
		}
	}
}

// answersWith answers the login of a program as the person of a client. The script waits until the code is there.
func answersWith(c *arbe.Client) func(*testscript.TestScript, bool, []string) {
	verdicts := map[string]arbev1.Verdict{"approve": arbev1.Verdict_VERDICT_APPROVE, "deny": arbev1.Verdict_VERDICT_DENY}
	return func(ts *testscript.TestScript, _ bool, args []string) {
		code := regexp.MustCompile(`\b[A-Z]{4}-[A-Z]{4}\b`).FindString(ts.ReadFile(args[0]))
		_, err := c.Agents.AnswerDeviceLogin(context.Background(), &arbev1.AnswerDeviceLoginRequest{UserCode: code, Verdict: verdicts[args[1]]})
		ts.Check(err)
	}
}

// behind is the background command that a script sent a signal to.
type behind struct{ cmd *exec.Cmd }

func sends(s os.Signal) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, _ []string) {
		cmd := ts.BackgroundCmds()[0]
		ts.Value(behind{}).(*behind).cmd = cmd
		ts.Check(cmd.Process.Signal(s))
	}
}

func endsInterrupted(ts *testscript.TestScript, _ bool, args []string) {
	wantCode(ts, args[0], ts.Value(behind{}).(*behind).cmd.ProcessState.ExitCode())
}
