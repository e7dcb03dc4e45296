package harness

import (
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Exit describes how a process ended.
type Exit struct {
	// Code is its exit status; -1 if a signal killed it.
	Code   int
	Signal syscall.Signal
	// Stderr is the end of its standard error.
	Stderr string
}

// String returns "exit status 1" or "killed by signal 9 (killed)".
func (e Exit) String() string {
	if e.Code < 0 {
		return "killed by signal " + strconv.Itoa(int(e.Signal)) + " (" + e.Signal.String() + ")"
	}
	return "exit status " + strconv.Itoa(e.Code)
}

// Outcome describes how the work of an agent ended.
type Outcome struct {
	// Failed is the reason, in a sentence for people, if it failed.
	Failed string
	// Stop is the reason why its last answer ended; empty if there was none.
	Stop entry.PiStop
	// Text is its last text.
	Text string
	// Rest is the answer that the agent did not finish, for the log. It is nil if the agent finished its last answer.
	Rest entry.Payload
}

// Cut returns the outcome with an answer that the agent did not finish. It leaves out the calls, which did not begin.
func (o Outcome) Cut(a entry.PiAssistant) Outcome {
	a.Content = slices.DeleteFunc(slices.Clone(a.Content), func(b entry.PiBlock) bool { return b.Type == entry.PiCallBlock })
	if len(a.Content) > 0 {
		a.StopReason = entry.PiAborted
		o.Rest = a
	}
	return o
}

// The causes that agents have in common.
const (
	NoOutput  = "no output: the model answered with nothing"
	NoAnswer  = "no output: the agent ended before its model answered"
	CutLength = "the answer was cut: it reached the model's limit of tokens"
)

// Seen describes how the last call of an agent's model ended, as seen by whoever forwarded it. The zero value means that
// there was no call.
type Seen struct {
	// Called reports that there was a call, and Answered that its whole answer was forwarded, or at least its end.
	Called, Answered bool
	// Status is the model's HTTP status; 0 if it did not answer. Stop is the reason why the answer ended; empty if unknown.
	Status int
	Stop   entry.PiStop
}

// Failed returns why an agent whose last call ended this way has failed, whatever it claims; empty if it may have succeeded.
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

// Tally is the part of a transcript that [Reader]s count, so that they all decide alike. The zero value is ready to use.
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

// Fresh forgets how earlier answers ended, because the agent was given something else to do. The text stays.
func (t *Tally) Fresh() { t.answers = 0; t.last = entry.PiAssistant{} }

// Decide judges the transcript and the exit together. failed is another reason for failure, if there is one. Decide takes the
// first of: failed; a model's error; an answer that was cut off, even if it has text, because the agent did not finish; an
// unexpected exit; an answer without any text.
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

// LastLine returns the last line of a text that is not blank, shortened to 300 bytes.
func LastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return entry.OneLine(lines[len(lines)-1], 300)
}
