package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// x runs a command in a thread's sandbox as if the command ran here.
func x(a *app) *cobra.Command {
	var f xFlags
	cmd := &cobra.Command{
		Use:   "x [-it] [-t THREAD | -e ENV] [--] [PROGRAM [ARG…]]",
		Short: "Run a command in the sandbox of a thread, or of a new one",
		Long:  xLong,
		Example: "  arbe x -t th4w7q2m9x -- go test ./...\n" +
			"  arbe x -t th4w7q2m9x -c 'make test | tail -20'\n" +
			"  arbe x -it -t th4w7q2m9x\n" +
			"  arbe x -it -t th4w7q2m9x -- vim README.md\n" +
			"  arbe x -e go -- go vet ./...\n" +
			"  arbe x -t th4w7q2m9x -w web --env CI=1 -- npm test\n" +
			"  arbe x -t th4w7q2m9x tar c . | tar x\n" +
			"  git archive HEAD | arbe x -t th4w7q2m9x tar x",
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error { return f.run(ctx, a, c, args) }),
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVarP(&f.thread, "thread", "t", "", "the thread (default $ARBE_THREAD)")
	flags.StringVarP(&f.line, "command", "c", "", "a shell command line, instead of a program with its arguments")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "a variable NAME=VALUE; or an environment, by id or name, for a new thread or, with -t, for a thread without a sandbox")
	flags.StringVarP(&f.directory, "workdir", "w", "", "directory in which it starts; it may be relative to the environment's directory, the default")
	flags.BoolVarP(&f.tty, "tty", "i", false, "give the command this terminal; -it is the same")
	flags.BoolVar(&f.keep, "keep", false, "with -it: keep it running when this terminal is gone")
	flags.BoolVar(&f.detach, "detach", false, "print the command's id and leave it running")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long it may take (default: the environment's limit)")
	flags.BoolVarP(&f.noStdin, "no-stdin", "n", false, "give it an empty stdin")
	a.completes(cmd, "thread", a.threads)
	a.completes(cmd, "env", a.environments)
	return cmd
}

var xLong = "Run a command in a thread's sandbox, which is created if the thread has none. With -e ENV and no thread, the\n" +
	"command runs in a new thread of that environment. The output is printed here\n" +
	"as it arrives, and arbe exits with the command's exit code. Everyone who follows the thread sees it too.\n" +
	"\n" +
	"On a terminal the command's stdout and stderr are one, so that their lines keep the order in\n" +
	"which they were written. When stdout or stderr is a pipe or a file, the two are kept apart and\n" +
	"every byte of both arrives, however many: the command waits for a slow reader. When the reader\n" +
	"goes away (head), the command is cancelled, and arbe exits with 141. On a terminal and with --json,\n" +
	"output that is too fast to follow is left out.\n" +
	"\n" +
	"Messages of arbe itself begin with \"arbe:\". If stderr is not a terminal, it has only the command's output,\n" +
	"unless arbe fails, or you passed a whole command line as one word; then it also has the cause.\n" +
	"Some exit codes are arbe's: 124 for a command that timed out, 125 for one that did not run or whose output is not\n" +
	"complete, 130 for one that was cancelled.\n" +
	"\n" +
	"The command reads arbe's stdin to its end. If that is a terminal, or with --no-stdin, the command's\n" +
	"stdin is empty.\n" +
	"\n" +
	"With -it the command uses this terminal: shells, editors and prompts work, and the command gets every key,\n" +
	"Ctrl-C too. The default PROGRAM is a shell. At the beginning of a line, ~. leaves the terminal. When arbe is gone for a\n" +
	"minute, the command ends; with --keep it stays, and arbe attach returns to it. When the command has ended, the thread\n" +
	"gets the terminal's output, but never the keys typed.\n" +
	"\n" +
	"--detach prints the id of the command as soon as it is in the thread. arbe wait waits for its end.\n" +
	"\n" +
	fmt.Sprintf("Ctrl-C sends SIGINT to the command; SIGTERM follows after %s, and SIGKILL after %s more. Each further\n", entry.CancelGrace, entry.CancelGrace) +
	"Ctrl-C sends the next signal at once, and after the last one it ends arbe.\n" +
	"\n" +
	"When arbe is killed, the command keeps running and its output goes to the thread; arbe thread cancel\n" +
	"cancels it. When the server restarts, the command keeps running too, and arbe still gets all of its\n" +
	"output. If its stdin is cut off, the command ends: at once when the server restarts, and after a\n" +
	"minute when arbe was killed. It would otherwise mistake the cut for the end of its input. Then arbe\n" +
	"exits with 125, as always when the output is not complete."

// xFlags holds the flags of arbe x.
type xFlags struct {
	thread, line, directory    string
	env                        []string
	timeout                    time.Duration
	noStdin, tty, keep, detach bool
}

// run runs the command of the flags and arguments.
func (f *xFlags) run(ctx context.Context, a *app, c *arbe.Client, args []string) error {
	req, err := f.request(args)
	if err != nil {
		return err
	}
	if err := a.commandEnvironment(ctx, c, req, f.env); err != nil {
		return err
	}
	if req.ThreadId, err = f.place(ctx, a, c, req.GetEnvironmentId(), cmp.Or(f.line, strings.Join(args, " "))); err != nil {
		return err
	}
	switch {
	case f.tty:
		return a.runTerminal(ctx, c, req, f.keep, f.detach)
	case f.detach:
		return a.runDetached(ctx, c, req)
	}
	e := execution{app: a, client: c, req: req, tells: isTerminal(a.err)}
	e.output = output{out: a.out, missed: e.missed}
	e.separate = !a.json && (!isTerminal(a.out) || !isTerminal(a.err))
	if !f.noStdin && hasInput(a.in) {
		e.stdin = a.in
	}
	e.wantedTerminal = !f.noStdin && isTerminal(a.in)
	// Ctrl-C is for the command. If the reader of the output goes away, the command is cancelled.
	ctx, end := a.handleInterrupts(ctx, e.interrupt)
	defer end()
	return e.run(ctx)
}

// place returns the thread in which the command runs. If nothing names a thread but the flags name an environment, it creates one
// and names it after the command.
func (f *xFlags) place(ctx context.Context, a *app, c *arbe.Client, environment, command string) (string, error) {
	if environment == "" || f.thread != "" || a.getenv("ARBE_THREAD") != "" {
		return a.threadID(ctx, c, f.thread)
	}
	env, err := c.Environments.GetEnvironment(ctx, &arbev1.GetEnvironmentRequest{Id: environment})
	if err != nil {
		return "", err
	}
	made, err := c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: env.GetEnvironment().GetHouseId(), EnvironmentId: environment, Name: entry.OneLine(command, 60)})
	if id := made.GetThread().GetId(); err == nil && isTerminal(a.err) {
		a.say("arbe: in the new thread %s; the next command there is arbe x -t %s", id, id)
	}
	return made.GetThread().GetId(), err
}

// request returns the request for a command, without its thread. Its id is chosen here, so that the command can be cancelled
// before its server has answered.
func (f *xFlags) request(args []string) (*arbev1.RunCommandRequest, error) {
	req := &arbev1.RunCommandRequest{Id: uuid.NewString(), Directory: f.directory}
	switch {
	case f.tty && f.line == "" && len(args) == 0:
		req.What = &arbev1.RunCommandRequest_Command{Command: loginShell}
	case (f.line == "") == (len(args) == 0):
		return nil, fault.New(fault.Invalid, "give either a program with its arguments, or a shell command line with -c", "see arbe x --help")
	case f.timeout < 0:
		return nil, fault.New(fault.Invalid, "--timeout is negative", "give a duration such as 90s or 10m")
	case f.keep && !f.tty, f.detach && f.tty && !f.keep:
		return nil, fault.New(fault.Invalid, "--keep needs a terminal, and --detach works only without one", "give -it --keep, -it --keep --detach or --detach")
	case f.line != "":
		req.What = &arbev1.RunCommandRequest_Command{Command: f.line}
	default:
		req.What = &arbev1.RunCommandRequest_Argv{Argv: &arbev1.Argv{Args: args}}
	}
	if f.timeout > 0 {
		req.Timeout = durationpb.New(f.timeout)
	}
	return req, nil
}

// loginShell is the default command of a terminal.
const loginShell = "command -v bash >/dev/null && exec bash; exec sh"

// commandEnvironment parses the values of --env: variables, and at most one environment.
func (a *app) commandEnvironment(ctx context.Context, c *arbe.Client, req *arbev1.RunCommandRequest, values []string) (err error) {
	for _, value := range values {
		name, value, variable := strings.Cut(value, "=")
		switch {
		case variable && req.Env == nil:
			req.Env = map[string]string{name: value}
		case variable:
			req.Env[name] = value
		case req.EnvironmentId != "":
			return fault.New(fault.Invalid, "--env names two environments", "name one, and give variables as NAME=VALUE")
		default:
			if req.EnvironmentId, err = a.find(ctx, c, environmentKind, "", name); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasInput reports whether in may have input for a command. A terminal does not count, because the person types commands
// there. The null device does not count either, because it has no data.
func hasInput(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok || isTerminal(f) {
		return false
	}
	have, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	return err == nil && (nullErr != nil || !os.SameFile(have, null))
}

// cancelSteps are the signals that a cancelled command gets one after another.
var cancelSteps = []struct {
	signal arbev1.Signal
	says   string
}{
	{arbev1.Signal_SIGNAL_INT, fmt.Sprintf("sending SIGINT to the command; SIGTERM follows after %s, then SIGKILL; press Ctrl-C again to send it now", entry.CancelGrace)},
	{arbev1.Signal_SIGNAL_TERM, fmt.Sprintf("the command has not ended: sending SIGTERM; SIGKILL follows after %s; press Ctrl-C again to send it now", entry.CancelGrace)},
	{arbev1.Signal_SIGNAL_KILL, "the command has not ended: sending SIGKILL; press Ctrl-C again to leave"},
}

// interrupt makes each Ctrl-C send the command the next signal, and the last Ctrl-C end arbe, until ctx ends. The server
// sends the later signals too. interrupt also sends them when they are due, so that arbe can tell the person about each. It
// tells the person first, because the command, and with it arbe, may end as soon as the signal is sent.
func (e *execution) interrupt(ctx context.Context, interrupts <-chan os.Signal, leave func()) {
	var due <-chan time.Time
	for next := 0; ; next++ {
		select {
		case <-ctx.Done():
			return
		case <-interrupts:
		case <-due:
		}
		if next == len(cancelSteps) {
			leave()
			return
		}
		e.say("%s", cancelSteps[next].says)
		if !e.cancel(ctx, cancelSteps[next].signal) {
			leave()
			return
		}
		if due = nil; next+1 < len(cancelSteps) {
			due = time.After(entry.CancelGrace)
		}
	}
}
