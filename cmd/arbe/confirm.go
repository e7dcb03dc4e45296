package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/arbe-dev/arbe/internal/fault"
)

// destroying is the annotation of a destructive verb. Its value is the flag that makes the verb destructive, or "" if the
// verb always is.
const destroying = "destroying"

// destroys marks a destructive verb: with the flag of this name, or always if the name is empty. The verb gets --yes, and
// calls [app.confirm] before it destroys anything.
func destroys(cmd *cobra.Command, yes *bool, with string) {
	cmd.Annotations = map[string]string{destroying: with}
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask; required where there is no terminal")
}

// checkConfirmable refuses a destructive verb without --yes if nobody can be asked. It runs before the verb, so that a script
// fails whatever the arguments are.
func (a *app) checkConfirmable(cmd *cobra.Command) error {
	with, is := cmd.Annotations[destroying]
	yes, _ := cmd.Flags().GetBool("yes")
	if !is || yes || with != "" && !cmd.Flags().Changed(with) || a.canAsk() {
		return nil
	}
	what := cmd.CommandPath()
	if with != "" {
		what += " --" + with
	}
	return fault.New(fault.Invalid, what+" cannot be undone, and there is no terminal to ask on", "pass --yes to do it without a question")
}

// canAsk reports whether a person can see and answer a question.
func (a *app) canAsk() bool { return isTerminal(a.in) && isTerminal(a.out) && isTerminal(a.err) }

// confirm asks the person before a destructive action, unless they passed --yes.
func (a *app) confirm(ctx context.Context, yes bool, question string, args ...any) error {
	if yes {
		return nil
	}
	fmt.Fprintf(a.err, question+" [y/N] ", args...)
	answer, err := answer(ctx, func() (string, error) { return bufio.NewReader(a.in).ReadString('\n') })
	if ctx.Err() != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fault.New(fault.Canceled, "nothing was changed", "answer y, or pass --yes")
}

// answer reads what a person types, or a program writes, until Ctrl-C ends the wait. It reads in a goroutine, because a read from a
// terminal or a pipe cannot be cancelled.
func answer[T any](ctx context.Context, read func() (T, error)) (value T, err error) {
	type given struct {
		value T
		err   error
	}
	done := make(chan given, 1)
	go func() {
		value, err := read()
		done <- given{value, err}
	}()
	select {
	case g := <-done:
		return g.value, g.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// askHidden asks for input that the terminal does not show. Stdin must be a terminal.
func (a *app) askHidden(ctx context.Context, question string, args ...any) (text string, err error) {
	in, _ := a.in.(*os.File)
	fmt.Fprintf(a.err, question, args...)
	before, _ := term.GetState(int(in.Fd()))
	text, err = answer(ctx, func() (string, error) {
		text, err := term.ReadPassword(int(in.Fd()))
		return string(text), err
	})
	fmt.Fprintln(a.err)
	if ctx.Err() != nil { // the read continues, and leaves the terminal without echo
		_ = term.Restore(int(in.Fd()), before)
	}
	return text, err
}

// deletedView is the output of a deleting verb for programs.
type deletedView struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// revokedView is the output of a revoking verb for programs.
type revokedView struct {
	ID      string `json:"id"`
	Revoked bool   `json:"revoked"`
}
