package entry

import (
	"fmt"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Command says that someone ran a command on the thread's sandbox (run_command, seed 000). Its output
// and its end are told by the [CommandResult] whose id is [ResultID] of this entry's id.
type Command struct {
	// Command is a line for the shell. Exactly one of Command and Argv is set.
	Command string `json:"command,omitempty"`
	// Argv is a program with its arguments, run without a shell.
	Argv []string `json:"argv,omitempty"`
	// SandboxID is the sandbox the thread was on when it was asked; empty when there was none yet.
	SandboxID string `json:"sandbox_id,omitempty"`
	// TimeoutMS bounds it, in milliseconds; 0 is the environment's limit.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// EnvironmentID is the recipe asked for; empty follows the thread, then the house.
	EnvironmentID string `json:"environment_id,omitempty"`
}

// Type is "command".
func (Command) Type() string { return "command" }

// Validate asks for exactly one of a line and an argument list, and for no NUL byte anywhere.
func (c Command) Validate() error {
	line, argv := strings.TrimSpace(c.Command) != "", len(c.Argv) > 0 && c.Argv[0] != ""
	switch {
	case line == argv:
		return fault.New(fault.Invalid, "command: there is nothing to run", `give a line, such as "ls -l", or a program with its arguments`)
	case strings.ContainsRune(c.Command+strings.Join(c.Argv, ""), 0):
		return fault.New(fault.Invalid, "command: it has a NUL byte", "remove the NUL byte")
	case strings.ContainsRune(c.EnvironmentID, 0):
		return fault.New(fault.Invalid, "environment_id: it has a NUL byte", "remove the NUL byte")
	case c.TimeoutMS < 0:
		return fault.New(fault.Invalid, "timeout_ms: it is negative", "give a positive number of milliseconds, or none")
	}
	return nil
}

// Plain is the command after a prompt: "$ ls -l".
func (c Command) Plain() string { return "$ " + c.Line() }

// Line is the command as one line a shell would take.
func (c Command) Line() string {
	if len(c.Argv) == 0 {
		return c.Command
	}
	words := make([]string, len(c.Argv))
	for i, w := range c.Argv {
		words[i] = quote(w)
	}
	return strings.Join(words, " ")
}

// Program is what is executed in the box: the argument list as it is, or the line through a shell.
func (c Command) Program() []string {
	if len(c.Argv) > 0 {
		return c.Argv
	}
	return []string{"/bin/sh", "-c", c.Command}
}

// quote writes w so that a shell reads it as one word.
func quote(w string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%"
	if w != "" && strings.Trim(w, plain) == "" {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// ParseCommand tells whether a line of a composer is a command for the shell, "/run make test" or
// "!make test", and returns the command: "make test". A text that is neither is something to say.
func ParseCommand(text string) (command string, ok bool) {
	text = strings.TrimSpace(text)
	if rest, found := strings.CutPrefix(text, "!"); found {
		command = strings.TrimSpace(rest)
	} else if rest, found := strings.CutPrefix(text, "/run"); found && (rest == "" || strings.TrimLeft(rest, " \t\n") != rest) {
		command = strings.TrimSpace(rest)
	} else {
		return "", false
	}
	return command, true
}

// ResultID is the id of the [CommandResult] of the command entry with this id. That it is derived makes
// a command have one result, whoever writes it.
func ResultID(commandID string) string { return commandID + resultSuffix }

// resultSuffix ends the ids of results, and of nothing else.
const resultSuffix = ".result"

// CommandResult says how a command ended, and what it printed.
type CommandResult struct {
	// CommandID is the id of the [Command] entry.
	CommandID string `json:"command_id"`
	// SandboxID is the sandbox it ran on; empty when it never ran.
	SandboxID string `json:"sandbox_id,omitempty"`
	// ExitCode is the command's own; 124 for one that ran out of time, 128+n for one ended by signal n,
	// -1 when it never ran or nobody knows how it ended.
	ExitCode int `json:"exit_code"`
	// Output is what it printed, both streams as they came, as UTF-8 with invalid bytes replaced. Of
	// a large output it is the head.
	Output string `json:"output"`
	// OutputTail is the end of a large output; empty when Output is all.
	OutputTail string `json:"output_tail,omitempty"`
	// OutputBytes is how much was printed in all.
	OutputBytes int64 `json:"output_bytes"`
	// Truncated says that something between Output and OutputTail was left out.
	Truncated bool `json:"truncated,omitempty"`
	// DurationMS is how long it ran, in milliseconds.
	DurationMS int64 `json:"duration_ms"`
	// TimedOut, Cancelled and OutOfMemory say why it did not end by itself.
	TimedOut    bool `json:"timed_out,omitempty"`
	Cancelled   bool `json:"cancelled,omitempty"`
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// Error says why it could not run, and what to do; empty when it ran.
	Error string `json:"error,omitempty"`
}

// Type is "command_result".
func (CommandResult) Type() string { return "command_result" }

// Validate asks for the command's id.
func (r CommandResult) Validate() error {
	if r.CommandID == "" {
		return fault.New(fault.Invalid, "command_id: it is empty", "give the id of the command entry")
	}
	return nil
}

// Omitted is how many bytes were left out between Output and OutputTail.
func (r CommandResult) Omitted() int64 {
	if !r.Truncated {
		return 0
	}
	return max(r.OutputBytes-int64(len(r.Output))-int64(len(r.OutputTail)), 0)
}

// Verdict says in a few words how it ended: "exit 0 · 1.2s", "cancelled · 3s".
func (r CommandResult) Verdict() string {
	took := (time.Duration(r.DurationMS) * time.Millisecond).Round(10 * time.Millisecond).String()
	switch {
	case r.Error != "":
		return "did not run"
	case r.Cancelled:
		return "cancelled · " + took
	case r.TimedOut:
		return "out of time · " + took
	case r.OutOfMemory:
		return fmt.Sprintf("out of memory · exit %d · %s", r.ExitCode, took)
	}
	return fmt.Sprintf("exit %d · %s", r.ExitCode, took)
}

// Plain is the output with what was left out stated, and the verdict.
func (r CommandResult) Plain() string {
	var b strings.Builder
	b.WriteString(r.Output)
	if r.Truncated {
		fmt.Fprintf(&b, "\n… %d bytes left out …\n%s", r.Omitted(), r.OutputTail)
	}
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	if r.Error != "" {
		b.WriteString(r.Error + "\n")
	}
	b.WriteString("[" + r.Verdict() + "]")
	return b.String()
}
