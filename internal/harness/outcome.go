package harness

import (
	"strconv"
	"strings"
	"syscall"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Exit is how a process ended.
type Exit struct {
	// Code is its exit status; -1 if a signal killed it.
	Code   int
	Signal syscall.Signal
	// Stderr is the end of what it wrote to its standard error.
	Stderr string
}

// String is "exit status 1" or "killed by signal 9 (killed)".
func (e Exit) String() string {
	if e.Code < 0 {
		return "killed by signal " + strconv.Itoa(int(e.Signal)) + " (" + e.Signal.String() + ")"
	}
	return "exit status " + strconv.Itoa(e.Code)
}

// Outcome is how the work of an agent ended.
type Outcome struct {
	// Failed says why it failed, in a sentence for people; empty if it did not.
	Failed string
	// Stop is why its last answer ended; empty if there was none.
	Stop entry.PiStop
	// Text is what it said last.
	Text string
}

// The causes that agents have in common.
const (
	NoOutput  = "no output: the model answered with nothing"
	NoAnswer  = "no output: the agent ended before its model answered"
	CutLength = "the answer was cut: it reached the model's limit of tokens"
)

// Seen is how the last call of an agent's model ended, as who passed it on saw it. The zero value is that there was none.
type Seen struct {
	// Called: there was a call. Answered: its whole answer was passed on, or its end at least.
	Called, Answered bool
	// Status is the model's HTTP status; 0 if it did not answer. Stop is why the answer ended; empty if that is not known.
	Status int
	Stop   entry.PiStop
}

// Failed says why an agent whose last call ended so has not succeeded, whatever it says itself; empty if it may have.
func (s Seen) Failed() string {
	switch {
	case !s.Called:
		return NoAnswer
	case s.Status >= 400:
		return "the model refused the last request (HTTP " + strconv.Itoa(s.Status) + ")"
	case s.Status == 0 && !s.Answered:
		return "the model did not answer the last request"
	case s.Stop == entry.PiLength:
		return CutLength
	case s.Stop == entry.PiError:
		return "the model's last answer failed"
	case !s.Answered:
		return "the model's last answer did not end"
	case s.Stop == entry.PiToolUse:
		return "the agent ended in the middle of its work"
	}
	return ""
}

// Tally is what [Reader]s count of a transcript, so that they decide alike. The zero value is ready to use.
type Tally struct {
	last    entry.PiAssistant
	answers int
	text    string
}

// Add counts a message.
func (t *Tally) Add(p entry.Payload) {
	a, ok := p.(entry.PiAssistant)
	if !ok {
		return
	}
	t.answers++
	t.last = a
	if text := strings.TrimSpace(a.Text()); text != "" {
		t.text = text
	}
}

// Fresh forgets how the earlier answers ended, because the agent was given something else to do; what it said stays.
func (t *Tally) Fresh() { t.answers = 0; t.last = entry.PiAssistant{} }

// Decide judges from the transcript and the exit together. failed is what else says that the agent failed; empty if nothing
// does. In this order: what says that it failed; a model's error; an answer that was cut, even if it has text, because the
// agent did not end by itself; an unexpected end; an answer without any text.
func (t *Tally) Decide(failed string, exit Exit) Outcome {
	o := Outcome{Failed: failed, Stop: t.last.StopReason, Text: t.text}
	switch {
	case o.Failed != "":
	case o.Stop == entry.PiError:
		o.Failed = t.last.ErrorMessage
		if o.Failed == "" {
			o.Failed = "the model's answer failed"
		}
	case o.Stop == entry.PiAborted:
		o.Failed = "the agent was interrupted"
	case o.Stop == entry.PiLength:
		o.Failed = CutLength
	case exit.Code != 0:
		o.Failed = "the agent ended unexpectedly: " + exit.String()
		if line := LastLine(exit.Stderr); line != "" {
			o.Failed += ": " + line
		}
	case t.answers == 0:
		o.Failed = NoAnswer
	case o.Stop == entry.PiToolUse:
		o.Failed = "the agent ended in the middle of its work"
	case strings.TrimSpace(t.last.Text()) == "":
		o.Failed = NoOutput
	}
	return o
}

// LastLine returns the last line of a text that is not blank, on one line of at most 300 bytes.
func LastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return entry.OneLine(lines[len(lines)-1], 300)
}
