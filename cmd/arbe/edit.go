package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/arbe-dev/arbe/internal/fault"
)

// edited describes an object that a person edits as text.
type edited struct {
	// noun is the word for the object: "environment". verb is the command line that reads the text from stdin.
	noun, verb string
	// text is the original text.
	text []byte
	// change applies the edited text. unchanged ends the verb if the person changed nothing.
	change    func(io.Reader) error
	unchanged func() error
}

// edit opens a text in an editor and applies the result or, when stdin is not a terminal, applies the text on stdin. A text
// that cannot be applied stays in its file, so that no work is lost.
func (a *app) edit(ctx context.Context, e edited) error {
	if !isTerminal(a.in) {
		return e.change(a.input(ctx))
	}
	file, err := os.CreateTemp("", "arbe-"+e.noun+"-*.yaml")
	if err == nil {
		_, err = file.Write(e.text)
		file.Close()
	}
	if err != nil {
		return fault.New(fault.Precondition, "cannot write a file to edit", "set TMPDIR to a directory that you may write").Because(err)
	}
	editor := first(a.getenv("VISUAL"), a.getenv("EDITOR"), "vi")
	// A shell runs the editor, because the variable may also have arguments.
	run := exec.Command("sh", "-c", editor+` "$1"`, "editor", file.Name())
	run.Stdin, run.Stdout, run.Stderr = a.in, a.out, a.err
	terminated, err := a.runEditor(run)
	if err != nil {
		if now, readErr := os.ReadFile(file.Name()); readErr == nil && bytes.Equal(e.text, now) {
			os.Remove(file.Name())
		} else {
			a.say("your text is in %s", file.Name())
		}
		if terminated {
			return exitCode(exitInterrupted)
		}
		return fault.Newf(fault.Canceled, "set EDITOR to an editor, or pipe the text in", "the editor %s failed; nothing was changed", editor).Because(err)
	}
	after, err := os.ReadFile(file.Name())
	if err == nil && bytes.Equal(e.text, after) {
		os.Remove(file.Name())
		a.say("nothing was changed")
		return e.unchanged()
	}
	if err == nil {
		err = e.change(bytes.NewReader(after))
	}
	if err != nil {
		a.say("your text is in %s; correct it, and use it with: %s < %[1]s", file.Name(), e.verb)
		return err
	}
	os.Remove(file.Name())
	return nil
}

// runEditor runs an editor until it ends, and reports whether a SIGTERM asked arbe to end. A Ctrl-C is for the editor, which
// gets it from the terminal.
func (a *app) runEditor(editor *exec.Cmd) (terminated bool, _ error) {
	coming, giveBack := a.signals.takeOver()
	defer giveBack()
	if err := editor.Start(); err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- editor.Wait() }()
	for {
		select {
		case err := <-ended:
			return terminated, err
		case came := <-coming:
			if came == syscall.SIGTERM {
				terminated = true
				_ = editor.Process.Signal(came) // an error means that the editor has ended
			}
		}
	}
}
