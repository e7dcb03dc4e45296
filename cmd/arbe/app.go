package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/arbe-dev/arbe/internal/export"
)

// app holds what all verbs share: the person's streams and flags, and the way to the server.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	signals  *signals

	// The flags of every verb.
	json, quiet                        bool
	filter                             formatter // nil without --jq and --template
	pager                              *pager    // nil without a terminal, or if nothing is paged
	hostFlag, profileFlag, dataDirFlag string

	// chosen is the server to talk to. It is chosen once, so that all calls of a verb go to the same server.
	chosen *target

	// started is set once a verb runs, because an error before that is a mistake in the command line.
	started bool

	// unhelped is the error of printing help as JSON. Cobra's help functions cannot return one.
	unhelped error
}

// say prints a message for the person, as opposed to data.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// show prints one object: its id with --quiet, its view with --json, otherwise the result of plain.
func (a *app) show(id string, view any, plain func() string) error {
	switch {
	case a.json:
		return a.printJSON(view)
	case a.quiet:
		_, err := fmt.Fprintln(a.out, id)
		return err
	}
	_, err := fmt.Fprintln(a.out, strings.TrimSuffix(plain(), "\n"))
	return err
}

// formatter prints what --jq or --template makes of a value of --json.
type formatter interface {
	print(ctx context.Context, out io.Writer, view any) error
}

// printJSON prints one value of --json, or what --jq or --template makes of it.
func (a *app) printJSON(view any) error {
	if a.filter != nil {
		return a.filter.print(a.signals.next(), a.out, view)
	}
	return export.EncodeJSON(a.out, view)
}

// when formats a time: on a terminal as an age, otherwise exactly, because a script needs the exact time.
func (a *app) when(t time.Time) string {
	if !isTerminal(a.out) {
		return t.UTC().Format(time.RFC3339)
	}
	return age(t)
}

// age says how long ago a time is, or, if that is more than a day, when it was.
func age(t time.Time) string {
	switch ago := time.Since(t); {
	case ago < time.Minute:
		return "just now"
	case ago < time.Hour:
		return fmt.Sprintf("%d min ago", int(ago.Minutes()))
	case ago < 24*time.Hour:
		return fmt.Sprintf("%d h ago", int(ago.Hours()))
	}
	return t.Local().Format("2006-01-02 15:04")
}

// dim makes text faint on a terminal that shows colours, unless NO_COLOR is set.
func (a *app) dim(text string) string { return a.dimOn(a.out, text) }

// dimErr is like [app.dim], for stderr.
func (a *app) dimErr(text string) string { return a.dimOn(a.err, text) }

func (a *app) dimOn(stream any, text string) string {
	if !a.colours(stream) {
		return text
	}
	return "\x1b[2m" + text + "\x1b[0m"
}

// colours reports whether a stream gets colours: a terminal that shows them, unless NO_COLOR is set, and everything else only
// with CLICOLOR_FORCE.
func (a *app) colours(stream any) bool {
	force := a.getenv("CLICOLOR_FORCE")
	forced := force != "" && force != "0"
	return a.getenv("NO_COLOR") == "" && (forced || isTerminal(stream) && a.getenv("TERM") != "dumb")
}

// isTerminal reports whether a stream is a terminal. The file's mode is not enough, because /dev/null and /dev/full are
// character devices too.
func isTerminal(stream any) bool {
	if p, ok := stream.(*pager); ok {
		stream = p.screen
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// signals handles each Ctrl-C and SIGTERM that the process gets. The first signal ends the verb's context, unless the verb
// has taken over the signals. The next one ends the process, because the verb then waits for something that ignores its
// context. The last signal decides the exit code. A nil *signals never gets any.
type signals struct {
	end  context.CancelFunc // ends the verb's context
	exit func(code int)

	mu    sync.Mutex
	last  os.Signal
	ended bool
	taker chan<- os.Signal // nil if no verb has taken them over

	coming    context.Context // ends with the next signal; nil if nobody waits for it
	endComing context.CancelFunc
}

// pager is the stdout of a verb on a terminal. It keeps output that fits on the screen, and prints it at the end. Longer
// output goes to the pager program, which then gets the keys of the terminal.
type pager struct {
	app           *app
	screen        *os.File
	program       string
	columns, rows int

	kept    bytes.Buffer
	running *exec.Cmd
	in      io.WriteCloser
	left    bool // the person has left the program and wants no more output
	// giveBack returns the signals.
	giveBack   func()
	terminated atomic.Bool
}

// target is a server and the credential for it.
type target struct {
	// Host is the address to call, and URL the address for browsers.
	Host, URL string
	Token     string
	// Profile is the profile with both addresses, if any.
	Profile string
	// Why says how the server was chosen. Credential says where the token comes from, and is empty without a token.
	Why, Credential string
}

// exitInterrupted is the exit code of a program that Ctrl-C ended. A verb that returns it exits with 143 if SIGTERM ended it.
const exitInterrupted = 130
