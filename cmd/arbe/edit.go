package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"

	"github.com/arbe-dev/arbe/internal/fault"
)

// edited is something that a person edits as text.
type edited struct {
	// noun names it: "environment". verb is the command line that reads the text from stdin.
	noun, verb string
	// text is the original text.
	text []byte
	// change applies the edited text. unchanged ends the verb if the person changed nothing.
	change    func(io.Reader) error
	unchanged func() error
}

// edit opens a text in an editor and applies the result or, when stdin is not a terminal, applies the text on stdin. A text
// that cannot be applied stays in its file, so that no work is lost.
func (a *app) edit(e edited) error {
	if !isTerminal(a.in) {
		return e.change(a.in)
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
	if err := run.Run(); err != nil {
		if now, readErr := os.ReadFile(file.Name()); readErr == nil && bytes.Equal(e.text, now) {
			os.Remove(file.Name())
		} else {
			a.say("your text is in %s", file.Name())
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
