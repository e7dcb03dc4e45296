package command

import (
	"maps"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
)

// mostTerminalTime limits a command with a terminal, unless the operator's limit is lower. It is long, because a person works
// at a terminal for longer than an ordinary command runs, and the command ends when the person is gone.
const mostTerminalTime = 24 * time.Hour

// program returns the program to run for a command. Both outputs are one pipe, so that the log has the lines in the
// order in which they were written. A terminal instead of the pipe would also keep the order, but programs write more
// to a terminal: colours, progress bars, questions, and \r before each line break. With Separate there are two pipes.
//
// The command waits for this server when it prints faster than its output is read, because otherwise a part of the
// output would be missing in its artifact.
func program(c entry.Command, in sandbox.Handle) sandbox.Command {
	cmd := sandbox.Command{Argv: c.Program(), Dir: in.Directory(c.Directory), Merged: !c.Separate, Complete: true, Input: c.Written()}
	if t := c.Terminal; t != nil {
		cmd.Terminal = &sandbox.Terminal{TerminalSize: sandbox.TerminalSize{Rows: t.Rows, Columns: t.Columns}, Kind: t.Kind}
	}
	return cmd
}

// environment returns the variables of a command: those of the repository, then its own, and then its secrets, which take
// precedence.
func environment(c entry.Command, in sandbox.Handle, received secret.Received) map[string]string {
	if len(c.Env)+len(in.Env()) == 0 {
		return received.Env
	}
	env := map[string]string{}
	for _, variables := range []map[string]string{in.Env(), c.Env, received.Env} {
		maps.Copy(env, variables)
	}
	return env
}

// timeLimit returns the time limit of a command.
func timeLimit(c entry.Command, in sandbox.Handle) (time.Duration, error) {
	if c.Terminal != nil && c.TimeoutMS == 0 {
		return in.Most(mostTerminalTime), nil
	}
	return in.Timeout(time.Duration(c.TimeoutMS) * time.Millisecond)
}
