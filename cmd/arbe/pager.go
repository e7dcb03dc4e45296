package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// paged lists the verbs whose output a person reads from its beginning, by name in any group. With one of the flags, the verb
// prints things as they happen, and is not paged.
var paged = map[string][]string{
	"help": nil, "list": {"follow", "watch"}, "show": nil, "read": {"follow"}, "search": nil, "inbox": nil, "why": nil, "logs": nil,
	"config": nil, "tools": nil, "runtimes": nil, "result": nil, "export": nil,
}

// pageVerb sends the output of a verb through the pager, if the output may be long.
func (a *app) pageVerb(cmd *cobra.Command) {
	goesOn, is := paged[cmd.Name()]
	for _, flag := range goesOn {
		if on, err := cmd.Flags().GetBool(flag); err == nil && on {
			return
		}
	}
	if is || cmd.HasSubCommands() {
		a.page(cmd)
	}
}

// page sends everything printed from now on through the person's pager, if a person reads it and it becomes longer than the
// screen.
func (a *app) page(cmd *cobra.Command) {
	out, isFile := a.out.(*os.File)
	if !isFile || !isTerminal(out) || a.json || a.quiet {
		return
	}
	program := a.pagerProgram()
	if off, _ := cmd.Flags().GetBool("no-pager"); off || program == "" {
		return
	}
	columns, rows, err := term.GetSize(int(out.Fd()))
	if err != nil || columns <= 0 || rows <= 1 {
		return
	}
	a.pager = &pager{app: a, screen: out, program: program, columns: columns, rows: rows}
	a.out = a.pager
	cmd.Root().SetOut(a.pager)
}

// pagerProgram returns the command line of the pager, or "" if the person wants no pager.
func (a *app) pagerProgram() string {
	program := first(a.getenv("ARBE_PAGER"), a.getenv("PAGER"))
	switch {
	case a.getenv("TERM") == "dumb" || program == "cat":
		return ""
	case program != "":
		return program
	}
	if _, err := exec.LookPath("less"); err != nil {
		return ""
	}
	return "less"
}

// errLeftPager reports that the person has seen enough.
var errLeftPager = errors.New("the pager was left")

// Write implements [io.Writer].
func (p *pager) Write(text []byte) (int, error) {
	if p.running == nil {
		p.kept.Write(text)
		if linesOf(p.kept.String(), p.columns) < p.rows {
			return len(text), nil
		}
		if err := p.start(); err != nil {
			return 0, err
		}
		_, err := p.pass(p.kept.Bytes())
		p.kept.Reset()
		return len(text), err
	}
	return p.pass(text)
}

func (p *pager) pass(text []byte) (int, error) {
	n, err := p.in.Write(text)
	if errors.Is(err, syscall.EPIPE) {
		p.left = true
		return n, errLeftPager
	}
	return n, err
}

// start starts the program. From then on, Ctrl-C is for the program, and SIGTERM ends both it and arbe.
func (p *pager) start() error {
	cmd := exec.Command("sh", "-c", p.program)
	cmd.Stdout, cmd.Stderr = p.screen, os.Stderr
	cmd.Env = os.Environ()
	for name, usual := range map[string]string{"LESS": "FRX", "LV": "-c"} { // git's values
		if _, set := os.LookupEnv(name); !set {
			cmd.Env = append(cmd.Env, name+"="+usual)
		}
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return p.failed(err)
	}
	p.running, p.in = cmd, in
	coming, giveBack := p.app.signals.takeOver()
	ended := make(chan struct{})
	p.giveBack = func() { close(ended); giveBack() }
	go func() {
		for {
			select {
			case <-ended:
				return
			case came := <-coming:
				if came == syscall.SIGTERM {
					p.terminated.Store(true)
					_ = cmd.Process.Signal(came) // an error means that the program has ended
					in.Close()
				}
			}
		}
	}()
	return nil
}

// close prints the kept output, or waits until the person has left the program. err is the verb's error.
func (p *pager) close(err error) error {
	if p.running == nil {
		_, writeErr := p.screen.Write(p.kept.Bytes())
		return errors.Join(err, writeErr)
	}
	p.in.Close()
	waitErr := p.running.Wait()
	p.giveBack()
	if p.terminated.Load() {
		return exitCode(exitInterrupted)
	}
	if exit, ok := errors.AsType[*exec.ExitError](waitErr); ok && (exit.ExitCode() == 126 || exit.ExitCode() == 127) {
		return p.failed(waitErr)
	}
	if p.left {
		return nil
	}
	return err
}

func (p *pager) failed(err error) error {
	return fault.Newf(fault.Precondition, "set ARBE_PAGER to a pager, or pass --no-pager", "the pager %q cannot be run", p.program).Because(err)
}

// linesOf returns how many lines a text takes on a terminal with this many columns. Every character counts as one column
// wide, because a line more or less does no harm.
func linesOf(text string, columns int) (lines int) {
	for line := range strings.Lines(text) {
		width := utf8.RuneCountInString(entry.Colours.ReplaceAllString(strings.TrimSuffix(line, "\n"), ""))
		lines += max(1, (width+columns-1)/columns)
	}
	return lines
}
