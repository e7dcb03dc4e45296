package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

func TestAPersonSeesWhatIsSaidOfTheirCommand(t *testing.T) {
	t.Parallel()
	waiting := entry.CommandWaiting{CommandID: "mine", For: entry.WaitThread, Limit: 8}
	for name, c := range map[string]struct {
		app   app
		piped bool
		says  entry.Payload
		want  string
	}{
		"by the thread's limit":  {says: waiting, want: "arbe: the command waits: a thread runs 8 commands at a time\n"},
		"not of another command": {says: entry.CommandWaiting{CommandID: "other", For: entry.WaitServer}},
		"that it was kept from a host": {says: entry.HostRefused{CommandID: "mine", EnvironmentID: "v1", Host: "example.com", Program: "curl"},
			want: "arbe: curl was kept from example.com; allow it with: arbe env allow v1 example.com\n"},
		"not that another one was": {says: entry.HostRefused{CommandID: "other", EnvironmentID: "v1", Host: "example.com"}},
		"not of something else":    {says: entry.Chat{Text: "hello"}},
		"not when it is quiet":     {app: app{quiet: true}, says: waiting},
		"not beside JSON for it":   {app: app{json: true}, says: waiting},
		"not in a pipe":            {piped: true, says: waiting},
		"by a house's limit of 1":  {says: entry.CommandWaiting{CommandID: "mine", For: entry.WaitHouse, Limit: 1}, want: "arbe: the command waits: a house runs one command at a time\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			c.app.err = &said
			e := &execution{app: &c.app, req: &arbev1.RunCommandRequest{Id: "mine"}, tells: !c.piped}
			e.notes(c.says)
			if said.String() != c.want {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}

// TestALineInOneWord checks the hint for a whole line that was taken for the name of a program. The hint is on stderr, so that
// programs that read stdout do not receive it.
func TestALineInOneWord(t *testing.T) {
	t.Parallel()
	const hint = "arbe: all of \"echo hi\" was taken as the name of a program; to run a shell command line, use -c\n"
	for name, c := range map[string]struct {
		app   app
		tells bool
		argv  []string
		exit  int
		want  string
	}{
		"on a terminal":               {tells: true, argv: []string{"echo hi"}, exit: 127, want: hint},
		"in a pipe":                   {argv: []string{"echo hi"}, exit: 127, want: hint},
		"beside JSON":                 {app: app{json: true}, argv: []string{"echo hi"}, exit: 127, want: hint},
		"not when it is quiet":        {app: app{quiet: true}, argv: []string{"echo hi"}, exit: 127},
		"not of one word":             {argv: []string{"echo"}, exit: 127},
		"not of a line with its args": {argv: []string{"my program", "hi"}, exit: 127},
		"not of a program that ran":   {argv: []string{"my program"}, exit: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var printed, said strings.Builder
			c.app.out, c.app.err = &printed, &said
			req := &arbev1.RunCommandRequest{Id: "mine", What: &arbev1.RunCommandRequest_Argv{Argv: &arbev1.Argv{Args: c.argv}}}
			e := &execution{app: &c.app, req: req, separate: !c.tells && !c.app.json, tells: c.tells, output: output{out: &printed}}
			payload, err := json.Marshal(entry.CommandResult{CommandID: "mine", ExitCode: c.exit})
			if err != nil {
				t.Fatal(err)
			}
			err = e.end(&arbev1.Entry{Id: "mine.result", Type: entry.CommandResult{}.Type(), Payload: string(payload)})
			if code, ok := errors.AsType[exitCode](err); !ok || int(code) != c.exit {
				t.Errorf("it ends with %v", err)
			}
			if said.String() != c.want {
				t.Errorf("stderr has %q", said.String())
			}
			if strings.Contains(printed.String(), "was taken for") {
				t.Errorf("stdout has %q", printed.String())
			}
		})
	}
}

// endedCommand is a successful command whose output arrives after its result.
type endedCommand struct {
	arbev1connect.UnimplementedThreadServiceHandler
	arbev1connect.UnimplementedEntryServiceHandler
	// read is closed once the client has the result.
	read chan struct{}
}

func (c *endedCommand) RunCommand(context.Context, *arbev1.RunCommandRequest) (*arbev1.RunCommandResponse, error) {
	return &arbev1.RunCommandResponse{Entry: &arbev1.Entry{Seq: 1, Type: "command", Payload: `{}`}, ResultId: "result"}, nil
}

func (c *endedCommand) ReadOutput(ctx context.Context, req *arbev1.ReadOutputRequest) (*arbev1.ReadOutputResponse, error) {
	select {
	case <-c.read:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if req.GetPosition() > 0 {
		return &arbev1.ReadOutputResponse{Ended: true}, nil
	}
	return &arbev1.ReadOutputResponse{Pieces: []*arbev1.OutputPiece{{Stream: arbev1.OutputStream_OUTPUT_STREAM_STDOUT, Data: []byte("hi\n")}}, Position: 3}, nil
}

func (c *endedCommand) CancelCommand(context.Context, *arbev1.CancelCommandRequest) (*arbev1.CancelCommandResponse, error) {
	return &arbev1.CancelCommandResponse{}, nil
}

func (c *endedCommand) Tail(ctx context.Context, _ *arbev1.TailRequest, to *connect.ServerStream[arbev1.TailResponse]) error {
	result := &arbev1.Entry{Seq: 2, Id: "result", Type: "command_result", Payload: `{"output":"hi\n","output_bytes":3}`}
	if err := to.Send(&arbev1.TailResponse{Event: &arbev1.TailResponse_Entry{Entry: result}}); err != nil {
		return err
	}
	<-ctx.Done() // the client leaves after the result
	close(c.read)
	return nil
}

// A fullAfter is an output with room for this many writes.
type fullAfter int

func (f *fullAfter) Write(p []byte) (int, error) {
	if *f--; *f < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

func TestAnOutputThatCannotBeWrittenIsNotTheEndOfTheCommand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		json bool
		room fullAfter
		says string
	}{
		"what it prints":          {says: "arbe: the command's output cannot be written: no space left on device\n"},
		"the command's entry":     {json: true, says: `{"error":{"code":"internal","reason":"INTERNAL","message":"the command's output cannot be written: no space left on device","next":""}}` + "\n"},
		"the entry of its result": {json: true, room: 1, says: `{"error":{"code":"internal","reason":"INTERNAL","message":"the command's output cannot be written: no space left on device","next":""}}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := &endedCommand{read: make(chan struct{})}
			mux := http.NewServeMux()
			mux.Handle(arbev1connect.NewThreadServiceHandler(command))
			mux.Handle(arbev1connect.NewEntryServiceHandler(command))
			server := httptest.NewServer(mux)
			defer server.Close()
			var said strings.Builder
			a := &app{json: c.json, out: &c.room, err: &said}
			e := &execution{app: a, client: arbe.New(server.URL, ""), req: &arbev1.RunCommandRequest{Id: "id", ThreadId: "thread"}, separate: !c.json}
			if code, ok := errors.AsType[exitCode](e.run(t.Context())); !ok || code != exitNotRun {
				t.Errorf("it exits with %v, want %d", code, exitNotRun)
			}
			if said.String() != c.says {
				t.Errorf("it says %q, want %q", said.String(), c.says)
			}
		})
	}
}

// signalled is a command that records the signals it gets, and does not end.
type signalled struct {
	arbev1connect.ThreadServiceClient
	mu   sync.Mutex
	sent []string
}

func (s *signalled) signals() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.sent, " ")
}

func (s *signalled) CancelCommand(_ context.Context, req *arbev1.CancelCommandRequest) (*arbev1.CancelCommandResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, strings.TrimPrefix(req.GetSignal().String(), "SIGNAL_"))
	return &arbev1.CancelCommandResponse{}, nil
}

func TestEachCtrlCSendsTheNextSignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		command, interrupts := &signalled{}, make(chan os.Signal)
		var left atomic.Bool
		var said strings.Builder
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e := &execution{app: &app{err: &said}, tells: true, client: &arbe.Client{Services: arbe.Services{Threads: command}}, req: &arbev1.RunCommandRequest{}}
		began := time.Now()
		go e.interrupt(ctx, interrupts, func() { left.Store(true) })
		for _, want := range []string{"INT", "INT TERM", "INT TERM KILL"} {
			interrupts <- os.Interrupt
			synctest.Wait()
			if got := command.signals(); got != want || left.Load() {
				t.Errorf("it is sent %s, want %s; arbe left: %t", got, want, left.Load())
			}
		}
		interrupts <- os.Interrupt
		if synctest.Wait(); !left.Load() || time.Since(began) > 0 {
			t.Errorf("after the last signal and %s, arbe left: %t", time.Since(began), left.Load())
		}
		if lines := strings.Split(strings.TrimSpace(said.String()), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "arbe: sending SIGINT to the command; SIGTERM follows after 10s") || !strings.HasPrefix(lines[1], "arbe: the command has not ended: sending SIGTERM") {
			t.Errorf("it says %q", lines)
		}
	})
}

func TestOneCtrlCSendsEverySignalInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		command, interrupts := &signalled{}, make(chan os.Signal)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e := &execution{app: &app{err: io.Discard}, client: &arbe.Client{Services: arbe.Services{Threads: command}}, req: &arbev1.RunCommandRequest{}}
		go e.interrupt(ctx, interrupts, func() { t.Error("arbe left") })
		interrupts <- os.Interrupt
		for _, want := range []string{"INT", "INT TERM", "INT TERM KILL", "INT TERM KILL"} {
			synctest.Wait()
			if got := command.signals(); got != want {
				t.Errorf("it is sent %s, want %s", got, want)
			}
			time.Sleep(entry.CancelGrace)
		}
	})
}
