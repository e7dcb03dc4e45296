// Package harness describes coding agents' programs to arbe: how to install and start one, what its output means, how to
// rebuild its session from a thread, and how to tell whether it succeeded.
//
// Each runtime is one folder below, and a line in package all. Nothing else knows a runtime's name. The server asks a
// [Harness] for what it shows and installs; the runner, inside a sandbox, asks it for the rest. Every agent's transcript has
// pi's shape: see [entry.PiMessage].
//
// An agent's output is untrusted: the agent works in a repository that may contain instructions to it, and runs programs. A
// [Reader] must cope with any bytes.
package harness

import (
	"encoding/json"
	"errors"
	"syscall"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Harness is one runtime. Its methods do no I/O and may be called concurrently.
type Harness interface {
	Info() Info
	// Install returns how to install its program in a sandbox.
	Install() Install
	// Start returns how to start the agent with its first prompt. session names the conversation to continue, as returned by
	// Rebuild or a [Reader]; empty begins one.
	Start(job Job, session, prompt string) (Start, error)
	// Rebuild returns the files and the name of a session with a given conversation. An agent that continues it knows the
	// conversation and runs none of it again.
	Rebuild(job Job, messages []entry.PiMessage) (files []File, session string, err error)
	// Read returns the reader for the output of one process, which was started as Start returned for the same job, session
	// and prompt.
	Read(job Job, session, prompt string) Reader
}

// Info describes a runtime.
type Info struct {
	// Name is its name in entries, bots and paths, such as "pi"; Title is for people.
	Name, Title string
	// Version is the version that Install installs.
	Version string
	// Dialects are the protocols in which it can ask a model, the preferred one first.
	Dialects []Dialect
	// Steer means that messages sent while it works reach its current work. Without it, they become its next prompt, after
	// the current one.
	Steer bool
	// Interrupt means that it can be stopped without losing its work so far.
	Interrupt bool
	// Asks means that it can ask people: for approval to use tools that [Job.Ask] names, and questions of its own. Without
	// it, the agent acts as it decides, and asks questions in its answer.
	Asks bool
	// Witness means that its output does not distinguish failure from success. Whoever forwards its model calls must say how
	// the last one ended; see [Seen]. It makes no calls besides those of its work.
	Witness bool
	// SameBox and FreshBox mean that it continues a conversation from its own files, and from files made by Rebuild.
	SameBox, FreshBox bool
	// Limits is a sentence about what it cannot do but others can; empty if there is nothing.
	Limits string
}

// Dialect is a protocol of models.
type Dialect string

// The dialects, by the paths that clients append to a base URL.
const (
	Chat      Dialect = "chat"      // {base}/v1/chat/completions
	Messages  Dialect = "messages"  // {base}/v1/messages
	Responses Dialect = "responses" // {base}/v1/responses
	Gemini    Dialect = "gemini"    // {base}/v1beta/models/MODEL:streamGenerateContent
)

// Install describes how to install a program in a sandbox.
type Install struct {
	// Script is a POSIX shell script that installs the pinned version into the directory $DIR. It does nothing if the program
	// is already installed, and never leaves a partial installation. If it fails, it prints a sentence that names what is
	// missing and how to get it.
	Script string
	// Hosts are the hosts that the script downloads from.
	Hosts []string
	// Arguments make the installed program print its version, for diagnosis.
	Arguments []string
}

// Job describes the work for which an agent is started.
type Job struct {
	// Program is the directory into which Install installed it.
	Program string
	// Dir is the directory in which it works, and Session its own directory for configuration and session files.
	Dir, Session string
	Model        Model
	// Instructions are appended to its system prompt.
	Instructions string
	// Ask lists the tools that need a person's approval, by arbe's names ([entry.Tools]). It is empty for an agent that
	// cannot ask.
	Ask []string
}

// Model is the model that an agent asks, and its address.
type Model struct {
	// Provider and ID are for the transcript and the request.
	Provider, ID string
	Dialect      Dialect
	// BaseURL is the address to which the dialect's path is appended. It does not end with a slash.
	BaseURL string
	// Key is the key to send. It may be valid on this machine only.
	Key string
	// ContextWindow and MaxTokens are the model's limits in tokens; 0 if they are not known.
	ContextWindow, MaxTokens int64
	// Thinks means that the model thinks before it answers.
	Thinks bool
}

// File is a file to write before the agent is started.
type File struct {
	// Path is relative to [Job.Session].
	Path    string
	Content []byte
	// Program makes it executable.
	Program bool
}

// Start describes how to start an agent.
type Start struct {
	// Argv begins with the path of a program. It holds no prompt and no key.
	Argv []string
	// Env is added to the environment; a name without a value ("NAME") is removed from it.
	Env   []string
	Files []File
	// Input is written to its standard input, which is then closed unless Open.
	Input []byte
	Open  bool
	// Session names the conversation for the next Start, if it is known before the agent reports it.
	Session string
}

// Reader reads the output of one process of an agent. It is not safe for concurrent use.
type Reader interface {
	// Line reads a line of its standard output, without the end of line. If the line was longer than [MaxLine], cut is the
	// number of bytes missing at its end.
	Line(line []byte, cut int64) []Event
	// Steer returns the input that gives the running agent another prompt; nil if it cannot take one.
	Steer(prompt string) []byte
	// Answer returns the input that gives the agent a person's answer to its question; nil if it cannot take one.
	Answer(to Ask, a Answer) []byte
	// Interrupt returns how to ask the agent to stop and keep its work: the input to write or, if that is nil, the signal to
	// send; neither if it cannot.
	Interrupt() (input []byte, signal syscall.Signal)
	// Decide returns the outcome, once the process has ended and all its output was read.
	Decide(exit Exit) Outcome
}

// Event is the meaning of a line. Fields that do not apply are zero.
type Event struct {
	// Message is a complete message: an [entry.PiAssistant], an [entry.PiToolResult] or an [entry.PiCompaction]. A
	// compaction's FirstKeptSeq is 0, because only the writer of the log knows it.
	Message entry.Payload
	// Chunk is a piece of the current message.
	Chunk *entry.PiChunk
	// Tool is a tool that begins to run, and ToolDone reports the end of one.
	Tool     string
	ToolDone bool
	// Waiting describes what the agent waits for before it asks its model again, such as "overloaded; asking again in 2 s".
	Waiting string
	// Session names the conversation, for [Harness.Start].
	Session string
	// Settled reports that the agent has done everything it was asked. If its input is open, it ends once that is closed.
	Settled bool
	// Input must be written to the agent's input, because the agent waits for an answer.
	Input []byte
	// Ask is a question to people, whose answer the agent waits for. Unask is the id of an [Ask] that it no longer waits for.
	Ask   *Ask
	Unask string
}

// Ask is a question of an agent to people.
type Ask struct {
	// ID is the agent's name for it, and CallID the id of the waiting tool call.
	ID, CallID string
	// Tool runs with Arguments, a JSON object, if the answer is yes.
	Tool      string
	Arguments json.RawMessage
	// Question means that the answer is text, not yes or no.
	Question bool
}

// Answer is a person's answer to an [Ask].
type Answer struct {
	Yes bool
	// Words is their text, which may be empty. Nobody means that there was no answer in time.
	Words  string
	Nobody bool
}

// MaxLine limits a line, in bytes. The rest of a longer line is dropped.
const MaxLine = 16 << 20

// ErrNoPrompt is returned by Start for an empty prompt: no agent can start without one.
var ErrNoPrompt = errors.New("harness: the prompt is empty")
