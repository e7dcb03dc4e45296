package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// x runs a command on a thread's sandbox as if it ran here.
func x(a *app) *cobra.Command {
	var thread, line, environment string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "x [-t THREAD] -- PROGRAM [ARG…]",
		Short: "Run a command on the sandbox of a thread",
		Long: "Run a command on the sandbox of a thread, which is made if there is none. Its output comes here\n" +
			"as it is printed, and arbe exits with its exit code. Everyone who follows the thread sees it too.\n" +
			"Ctrl-C stops the command; a second Ctrl-C leaves it to its fate.",
		Example: "  arbe x -t th4w7q2m9x -- go test ./...\n" +
			"  arbe x -t th4w7q2m9x -c 'make test | tail -20'",
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			// The id is ours, so that the command can be stopped before its server has answered.
			req := &arbev1.RunCommandRequest{Id: uuid.NewString(), EnvironmentId: environment}
			switch {
			case (line == "") == (len(args) == 0):
				return fault.New(fault.Invalid, "give either a program with its arguments or -c with a line for the shell", "see arbe x --help")
			case timeout < 0:
				return fault.New(fault.Invalid, "--timeout is negative", "give a duration such as 90s or 10m")
			case line != "":
				req.What = &arbev1.RunCommandRequest_Command{Command: line}
			default:
				req.What = &arbev1.RunCommandRequest_Argv{Argv: &arbev1.Argv{Args: args}}
			}
			if timeout > 0 {
				req.Timeout = durationpb.New(timeout)
			}
			if req.ThreadId, err = a.theThread(thread); err != nil {
				return err
			}
			e := execution{app: a, client: c, req: req, output: output{out: a.out, missed: a.missed, patient: !isTerminal(a.out)}}
			// Ctrl-C is meant for the command, so it must not end our own calls.
			ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
			defer leave()
			defer e.interruptible(ctx, leave)()
			return e.run(ctx)
		}),
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVarP(&thread, "thread", "t", "", "the thread (default $ARBE_THREAD)")
	flags.StringVarP(&line, "command", "c", "", "a line for the shell, in place of a program with its arguments")
	flags.StringVar(&environment, "env", "", "recipe of the sandbox, if the thread has none yet")
	flags.DurationVar(&timeout, "timeout", 0, "how long it may take (default: the environment's limit)")
	a.completes(cmd, "thread", a.threads)
	a.completes(cmd, "env", a.environments)
	return cmd
}

// missed tells that a part of a command's output did not come here.
func (a *app) missed(bytes int64) {
	a.say("… %d bytes left out …", bytes)
}

// interruptible sends the first Ctrl-C to the command, and makes the second one leave. The function it
// returns ends that.
func (e *execution) interruptible(ctx context.Context, leave func()) (stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			if n > 0 || !e.cancel(ctx) {
				leave()
				return
			}
		}
	}()
	return func() { signal.Stop(signals) }
}
