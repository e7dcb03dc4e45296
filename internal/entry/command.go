package entry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Command records that someone ran a command in the thread's sandbox. Its output and its end are in another entry, because
// entries never change: the [CommandResult] whose id is the [ResultID] of this entry's id.
type Command struct {
	// Command is a line for the shell. Exactly one of Command and Argv is set.
	Command string `json:"command,omitempty"`
	// Argv is a program with its arguments, run without a shell, so that no argument needs quotes.
	Argv []string `json:"argv,omitempty"`
	// SandboxID is the thread's sandbox when the command was requested; empty if there was none. The result may name a
	// different one, because a dead sandbox is replaced before the command runs.
	SandboxID string `json:"sandbox_id,omitempty"`
	// TimeoutMS is the time limit in milliseconds; 0 means the environment's limit.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// EnvironmentID is the requested environment. If it is empty, the thread's and then the house's environment is
	// used.
	EnvironmentID string `json:"environment_id,omitempty"`
	// Separate keeps standard output and error apart for the program that requested the command, which reads both completely.
	// Otherwise they are one stream, so that lines keep the order in which they were written.
	Separate bool `json:"separate,omitempty"`
	// Unlogged keeps standard output out of the log, out of artifacts, and from those who watch: only the program that requested
	// the command gets it. It needs Separate.
	Unlogged bool `json:"unlogged,omitempty"`
	// Input gives it a standard input, written by the program that requested the command. Otherwise the input is empty.
	Input bool `json:"input,omitempty"`
	// Terminal, if not nil, gives it a terminal, which the program that requested the command reads and writes.
	Terminal *Terminal `json:"terminal,omitempty"`
	// Directory is where it starts; empty means the environment's directory. A relative directory is below the environment's.
	Directory string `json:"directory,omitempty"`
	// Env holds environment variables in addition to those of its environment. Everyone who reads the thread sees them.
	Env map[string]string `json:"env,omitempty"`
	// Changes is the artifact with the changes of a run that it uses, which arbe puts into the sandbox first; empty for none.
	Changes string `json:"changes,omitempty"`
	// Via is as in [Chat].
	Via *Via `json:"via,omitempty"`
}

// Terminal is the terminal of a command.
type Terminal struct {
	// Rows and Columns are its size when the command was requested.
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
	// Kind is the value of TERM; empty means the sandbox's.
	Kind string `json:"kind,omitempty"`
	// Keep keeps the command running while nobody is connected to its terminal. Otherwise it ends after a minute.
	Keep bool `json:"keep,omitempty"`
}

// Read reports whether a program reads the complete output of the command.
func (c Command) Read() bool { return c.Separate || c.Terminal != nil }

// Written reports whether a program writes the command's input.
func (c Command) Written() bool { return c.Input || c.Terminal != nil }

const (
	// maxDirectory limits the name of a directory, maxVariables the variables of a command, and maxVariableBytes their text.
	maxDirectory, maxVariables, maxVariableBytes = 4096, 100, 64 << 10
	// maxTerminalKind limits the name of a kind of terminal.
	maxTerminalKind = 64
)

var (
	variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,199}$`)
	terminalKind = lazyregexp.New(`^[A-Za-z0-9+._-]*$`)
)

// checkContext validates the directory, variables and terminal of a command.
func (c Command) checkContext() error {
	size := 0
	for name, value := range c.Env {
		if !variableName.MatchString(name) {
			return fault.Newf(fault.Invalid, "use letters, digits and _", "env: %q is not the name of an environment variable", name)
		}
		size += len(name) + len(value)
	}
	t := c.Terminal
	switch {
	case len(c.Directory) > maxDirectory || !utf8.ValidString(c.Directory) || strings.ContainsRune(c.Directory, 0):
		return fault.New(fault.Invalid, "directory: it is not the name of a directory", "give an absolute path, or one relative to the working directory")
	case len(c.Env) > maxVariables || size > maxVariableBytes:
		return fault.Newf(fault.Invalid, "put them into a file", "env: more than %d variables, or %d bytes", maxVariables, maxVariableBytes)
	case strings.ContainsRune(strings.Join(slices.Collect(maps.Values(c.Env)), ""), 0):
		return fault.New(fault.Invalid, "env: it has a NUL byte", "remove the NUL byte")
	case c.Unlogged && !c.Separate:
		return fault.New(fault.Invalid, "unlogged: only a program that reads the outputs separately can get what the log does not keep", "set separate, too")
	case t != nil && (c.Separate || c.Input):
		return fault.New(fault.Invalid, "terminal: a command with a terminal has no other input and output", "leave out separate and input")
	case t != nil && (len(t.Kind) > maxTerminalKind || !terminalKind.MatchString(t.Kind)):
		return fault.New(fault.Invalid, "terminal.kind: it is not the name of a terminal", "give the value of TERM, such as xterm-256color")
	}
	return nil
}

func (Command) Type() string { return "command" }

// parts: a command that a tool call runs is a part of the call, too.
func (Command) parts(e Entry) []Part {
	parts := []Part{{Work{CommandWork, e.ID}, Opens}}
	if result, ran := strings.CutSuffix(e.ID, CallCommandID("")); ran && TurnOf(e.ID) != "" {
		parts = append(parts, Part{Work{CallWork, result}, Updates})
	}
	return parts
}

// Validate requires exactly one of a line and an argument list. It refuses NUL bytes, because such a command would be
// accepted and fail only at its start.
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
	return c.checkContext()
}

// Plain returns the command after a prompt: "$ ls -l".
func (c Command) Plain() string { return "$ " + c.Line() }

// Line returns the command as one line for a shell.
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

// Program returns the arguments to execute in the sandbox: the argument list itself, or a shell with the line.
func (c Command) Program() []string {
	if len(c.Argv) > 0 {
		return c.Argv
	}
	return []string{"/bin/sh", "-c", c.Command}
}

// quote quotes w so that a shell reads it as one word.
func quote(w string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%"
	if w != "" && strings.Trim(w, plain) == "" {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// ParseCommand reports whether a text is a shell command, "/run make test" or "!make test", and returns the command
// "make test". Any other text is a chat.
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

// CancelGrace is the time that a cancelled command has to clean up: between SIGINT and SIGTERM, and again before it is
// killed.
const CancelGrace = 10 * time.Second

// ResultID returns the id of the [CommandResult] of the command entry with this id. It is derived, so that a command has one
// result even if several servers write it: a log stores one entry per id.
func ResultID(commandID string) string { return commandID + resultSuffix }

// resultSuffix ends the ids of results. Ids of other entries must not end in it; see [Check].
const resultSuffix = ".result"

// CommandWaiting records that a command could not start at once, and what it waits for.
type CommandWaiting struct {
	// CommandID is the id of the [Command] entry.
	CommandID string `json:"command_id"`
	// For is the reason for the wait, one of the Wait constants.
	For string `json:"for"`
	// Limit is the number of commands that may run there at once; 0 if it waits for a server or a machine.
	Limit int `json:"limit,omitempty"`
}

// The values of CommandWaiting.For: a command waits for the end of another command of its thread or house, for a free server,
// or for the return of the machine that its sandbox is on.
const (
	WaitThread  = "thread"
	WaitHouse   = "house"
	WaitServer  = "server"
	WaitMachine = "machine"
)

func (CommandWaiting) Type() string { return "signal.dispatch.command_waiting" }

func (w CommandWaiting) parts(Entry) []Part { return []Part{{Work{CommandWork, w.CommandID}, Notes}} }

func (w CommandWaiting) Validate() error {
	switch {
	case w.CommandID == "":
		return fault.New(fault.Invalid, "command_id: it is empty", "give the id of the command entry")
	case w.For != WaitThread && w.For != WaitHouse && w.For != WaitServer && w.For != WaitMachine:
		return fault.New(fault.Invalid, "for: it is not known", "use thread, house, server or machine")
	}
	return nil
}

func (w CommandWaiting) Plain() string {
	if w.For == WaitServer {
		return "the command waits until a server has room for it"
	}
	if w.For == WaitMachine {
		return "the command waits for the machine of its sandbox, which is away; it runs when the machine is back"
	}
	if w.Limit == 1 {
		return fmt.Sprintf("the command waits: a %s runs one command at a time", w.For)
	}
	return fmt.Sprintf("the command waits: a %s runs %d commands at a time", w.For, w.Limit)
}

// CommandResult records the end and the output of a command.
type CommandResult struct {
	// CommandID is the id of the [Command] entry.
	CommandID string `json:"command_id"`
	// SandboxID is the sandbox that it ran in, or may have run in; empty if it never ran.
	SandboxID string `json:"sandbox_id,omitempty"`
	// ExitCode is the command's own exit code; 124 after a time-out, 128+n if signal n ended it, -1 if it never ran or
	// its end is unknown.
	ExitCode int `json:"exit_code"`
	// Output is the output of both streams, in the order of writing (with [Command].Separate in the order of reading, which
	// may differ, and with [Command].Unlogged without standard output), as UTF-8: invalid bytes are U+FFFD, and NUL is U+2400. For a large output it is the beginning.
	Output string `json:"output"`
	// OutputTail is the end of a large output; empty if Output is complete.
	OutputTail string `json:"output_tail,omitempty"`
	// OutputBytes is the size of the whole output, in bytes of the text in Output.
	OutputBytes int64 `json:"output_bytes"`
	// Truncated reports that the part between Output and OutputTail is missing.
	Truncated bool `json:"truncated,omitempty"`
	// ArtifactID is the artifact with the original bytes of a truncated output; empty if it could not be stored.
	// ArtifactBytes is its size, which cannot be compared with OutputBytes, the size of the text. ArtifactPart reports that
	// the artifact has only the beginning of the output.
	ArtifactID    string `json:"artifact_id,omitempty"`
	ArtifactBytes int64  `json:"artifact_bytes,omitempty"`
	ArtifactPart  bool   `json:"artifact_part,omitempty"`
	// RawBytes is the number of bytes that a command with [Command].Separate printed. It can differ from OutputBytes, because
	// each invalid byte becomes three bytes of text.
	RawBytes int64 `json:"raw_bytes,omitempty"`
	// Terminal reports that the output went to a terminal and so has control sequences; see [TerminalText].
	Terminal bool `json:"terminal,omitempty"`
	// DurationMS is how long the command ran, in milliseconds.
	DurationMS int64 `json:"duration_ms"`
	// TimedOut, Cancelled and OutOfMemory tell why the command was ended from outside.
	TimedOut    bool `json:"timed_out,omitempty"`
	Cancelled   bool `json:"cancelled,omitempty"`
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// CancelledBy is the agent that cancelled it. Signal is the strongest signal sent for that; empty if the command had not
	// begun, or if the sandbox does not report it.
	CancelledBy string `json:"cancelled_by,omitempty"`
	Signal      string `json:"signal,omitempty"`
	// MissingFiles are the names of files of messages that were not in [FilesFolder] when it began, because they are large or
	// could not be written.
	MissingFiles []string `json:"missing_files,omitempty"`
	// Error tells why the command could not run or why its end is unknown, and what to do; otherwise it is empty.
	Error string `json:"error,omitempty"`
}

func (CommandResult) Type() string { return "command_result" }

func (r CommandResult) parts(Entry) []Part {
	return []Part{{Work{CommandWork, r.CommandID}, Completes}}
}

func (r CommandResult) agents() []string { return []string{r.CancelledBy} }

func (r CommandResult) Validate() error {
	if r.CommandID == "" {
		return fault.New(fault.Invalid, "command_id: it is empty", "give the id of the command entry")
	}
	return nil
}

// Omitted returns the number of bytes between Output and OutputTail.
func (r CommandResult) Omitted() int64 {
	if !r.Truncated {
		return 0
	}
	return max(max(r.OutputBytes, 0)-int64(len(r.Output))-int64(len(r.OutputTail)), 0)
}

// Failed reports that the command did not run, was ended from outside, or ended with an exit code other than 0.
func (r CommandResult) Failed() bool {
	return r.ExitCode != 0 || r.Error != "" || r.TimedOut || r.Cancelled || r.OutOfMemory
}

// Outcome returns a short description of the end: "exit 0 · 1.2s", "cancelled · 3s".
func (r CommandResult) Outcome() string {
	took := (time.Duration(r.DurationMS) * time.Millisecond).Round(10 * time.Millisecond).String()
	switch {
	case r.Error != "" && r.SandboxID == "":
		return "did not run"
	case r.Error != "":
		return "interrupted · " + took
	case r.Cancelled && r.Signal != "" && r.ExitCode >= 0:
		return fmt.Sprintf("cancelled with %s · exit %d · %s", r.Signal, r.ExitCode, took)
	case r.Cancelled:
		return "cancelled · " + took
	case r.TimedOut:
		return "timed out · " + took
	case r.OutOfMemory:
		return fmt.Sprintf("out of memory · exit %d · %s", r.ExitCode, took)
	}
	return fmt.Sprintf("exit %d · %s", r.ExitCode, took)
}

// Missing says which files of messages it did not find; empty if it found all: "not in ~/files when this began: plan-k3v9x2mq.pdf".
func (r CommandResult) Missing() string {
	if len(r.MissingFiles) == 0 {
		return ""
	}
	names, more := r.MissingFiles, ""
	if n := len(names) - shownMissing; n > 0 {
		names, more = names[:shownMissing], fmt.Sprintf(" and %d more", n)
	}
	return "not in ~/" + FilesFolder + " when this began: " + strings.Join(names, ", ") + more
}

// shownMissing limits the names in [CommandResult.Missing].
const shownMissing = 10

// Plain returns the output, with a note where bytes are missing, and the outcome.
func (r CommandResult) Plain() string {
	where := ""
	if r.ArtifactID != "" {
		where = ": see artifact " + r.ArtifactID
	}
	return r.plain(fmt.Sprintf("\n… %d bytes omitted%s …\n", r.Omitted(), where), "")
}

// Within is Plain for a model, which reads about limit bytes of the output: the beginning and the end. It tells the length of
// the output, and where to find all of it.
func (r CommandResult) Within(limit int) string {
	if r.Terminal {
		r.Output, r.OutputTail, r.Terminal = TerminalText(r.Output), TerminalText(r.OutputTail), false
	}
	if !r.Truncated && len(r.Output) <= limit {
		return r.Plain()
	}
	size, tail := max(r.OutputBytes, int64(len(r.Output)+len(r.OutputTail))), r.OutputTail
	cut := r.Truncated
	if !cut {
		tail = r.Output[len(r.Output)-limit/2:]
	}
	r.Truncated = true
	r.Output = strings.ToValidUTF8(r.Output[:min(len(r.Output), limit/2)], "")
	r.OutputTail = strings.ToValidUTF8(tail[max(len(tail)-limit/2, 0):], "")
	var where string
	switch {
	case r.ArtifactID == "":
		where = "the command's result in the thread has more of it"
		if !cut {
			where = "the command's result in the thread has all of it"
		}
	case r.ArtifactPart:
		where = fmt.Sprintf("artifact %s has the first %d bytes of it", r.ArtifactID, r.ArtifactBytes)
	default:
		where = fmt.Sprintf("artifact %s has all of it", r.ArtifactID)
	}
	omitted := size - int64(len(r.Output)+len(r.OutputTail))
	return r.plain(fmt.Sprintf("\n… %d bytes left out …\n", omitted), fmt.Sprintf("[the output is %d bytes long, of which %d are left out above; %s]\n", size, omitted, where))
}

// plain returns the output with a note in its gap, and a line about it before the outcome.
func (r CommandResult) plain(gap, about string) string {
	if r.Terminal {
		r.Output, r.OutputTail = TerminalText(r.Output), TerminalText(r.OutputTail)
	}
	var b strings.Builder
	b.WriteString(r.Output)
	if r.Truncated {
		b.WriteString(gap + r.OutputTail)
	}
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(about)
	if missing := r.Missing(); missing != "" {
		b.WriteString("[" + missing + "]\n")
	}
	if r.Error != "" {
		b.WriteString(r.Error + "\n")
	}
	b.WriteString("[" + r.Outcome() + "]")
	return b.String()
}
