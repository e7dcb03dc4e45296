// Package harness is what arbe needs to know of a coding agent's program: how it is installed and started, what its output
// means, how its session is rebuilt from a thread, and whether it succeeded.
//
// Each runtime is one folder below, and a line in package all. Nothing else knows a runtime's name. The server asks a
// [Harness] for what it shows and installs; the runner, inside a sandbox, asks it for the rest. Whatever the agent, its
// transcript has pi's shape: see [entry.PiMessage].
//
// An agent's output is untrusted: the agent works in a repository that may hold instructions to it, and runs programs. A
// [Reader] takes any bytes.
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
	// Install is how its program gets into a sandbox.
	Install() Install
	// Start returns how to start the agent, with prompt as what it works on first. session is what Rebuild or a [Reader]
	// returned for the conversation to continue; empty begins one.
	Start(job Job, session, prompt string) (Start, error)
	// Rebuild returns the files of a session that holds a conversation, and its name. The agent that continues it is given
	// the conversation and runs nothing of it again.
	Rebuild(job Job, messages []entry.PiMessage) (files []File, session string, err error)
	// Read returns the reader for the output of one process that was started with what Start returned for the same job, session
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
	// Steer: what is said while it works reaches its current work. Without it, that is its next prompt, as soon as it has
	// done the current one.
	Steer bool
	// Interrupt: it can be stopped so that it keeps what it wrote until then.
	Interrupt bool
	// Asks: it can ask people, for a yes to use tools that [Job.Ask] names, and questions of its own. Without it, it does what it
	// decides, and asks in its answer.
	Asks bool
	// Witness: its output does not tell failure from success. Who passes its model calls on must say how the last of them ended;
	// see [Seen]. It makes no calls besides those of its work.
	Witness bool
	// SameBox and FreshBox: it continues a conversation from its own files, and from files that Rebuild made.
	SameBox, FreshBox bool
	// Limits says in a sentence what it cannot do that others can; empty if there is nothing to say.
	Limits string
}

// Dialect is a protocol of models.
type Dialect string

// The dialects, by the paths that clients append to a base URL.
const (
	Chat      Dialect = "chat"      // {base}/v1/chat/completions
	Messages  Dialect = "messages"  // {base}/v1/messages
	Responses Dialect = "responses" // {base}/v1/responses
)

// Install is how a program gets into a sandbox.
type Install struct {
	// Script is a POSIX shell script that installs the pinned version into the directory $DIR. It does nothing if it has done
	// so before, leaves nothing half-installed behind, and fails with a sentence that names what is missing and how to get it.
	Script string
	// Hosts are those that the script downloads from.
	Hosts []string
	// Arguments print the version if they follow the path of the installed program; they are for diagnosis.
	Arguments []string
}

// Job is what an agent is started for.
type Job struct {
	// Program is the directory into which Install installed it.
	Program string
	// Dir is where it works, and Session a directory of its own for its configuration and session files.
	Dir, Session string
	Model        Model
	// Instructions are appended to its system prompt.
	Instructions string
	// Ask are the names of what it does only with a person's yes, in arbe's words ([entry.Tools]). An agent that cannot ask is not
	// started with any.
	Ask []string
}

// Model says which model an agent asks, and where.
type Model struct {
	// Provider and ID are for the transcript and the request.
	Provider, ID string
	Dialect      Dialect
	// BaseURL is what the dialect's path is appended to, without a slash at its end.
	BaseURL string
	// Key is the key to send. It may be worthless outside of this machine.
	Key string
	// ContextWindow and MaxTokens are the model's limits in tokens; 0 if they are not known.
	ContextWindow, MaxTokens int64
}

// File is a file to write before the agent is started.
type File struct {
	// Path is relative to [Job.Session].
	Path    string
	Content []byte
	// Program: it can be run.
	Program bool
}

// Start is how to start an agent.
type Start struct {
	// Argv begins with the path of a program. It holds no prompt and no key.
	Argv []string
	// Env is added to the environment; a name without a value ("NAME") is removed from it.
	Env   []string
	Files []File
	// Input is written to its standard input, which is then closed unless Open.
	Input []byte
	Open  bool
	// Session names the conversation for the next Start, if that is known before the agent says it.
	Session string
}

// Reader reads the output of one process of an agent. It is not safe for concurrent use.
type Reader interface {
	// Line reads a line of its standard output, without the end of line. If the line was longer than [MaxLine], cut is how
	// many bytes are missing at its end.
	Line(line []byte, cut int64) []Event
	// Steer returns the input that gives the running agent one more prompt; nil if it can take none.
	Steer(prompt string) []byte
	// Answer returns the input with which a person's answer reaches the agent that asked; nil if it can take none.
	Answer(to Ask, a Answer) []byte
	// Interrupt returns how to ask the agent to stop and to keep what it has written: the input to write, or the signal to
	// send if that is nil; neither if it cannot.
	Interrupt() (input []byte, signal syscall.Signal)
	// Decide returns how it went, when the process has ended and all its output was read.
	Decide(exit Exit) Outcome
}

// Event is what a line means. Fields that do not apply are zero.
type Event struct {
	// Message is a complete message: an [entry.PiAssistant], an [entry.PiToolResult] or an [entry.PiCompaction]. A
	// compaction's FirstKeptSeq is 0, because only who writes the log knows it.
	Message entry.Payload
	// Chunk is a piece of the message that is being written.
	Chunk *entry.PiChunk
	// Tool is the tool that begins to run, and ToolDone reports the end of one.
	Tool     string
	ToolDone bool
	// Waiting says what the agent waits for before it asks its model again, such as "overloaded; asking again in 2 s".
	Waiting string
	// Session names the conversation, for [Harness.Start].
	Session string
	// Settled: the agent has done all that it was asked. If its input is open, it ends once that is closed.
	Settled bool
	// Input is to be written to the agent's input, because it waits for an answer.
	Input []byte
	// Ask is what the agent asks people, and waits for. Unask is the id of an [Ask] for whose answer it waits no longer.
	Ask   *Ask
	Unask string
}

// Ask is what an agent asks people.
type Ask struct {
	// ID is the agent's name for it, and CallID that of the tool call that waits.
	ID, CallID string
	// Tool and Arguments are what runs if the answer is yes. The arguments are a JSON object.
	Tool      string
	Arguments json.RawMessage
	// Question: it is a question, to which the answer is words.
	Question bool
}

// Answer is what a person answers.
type Answer struct {
	Yes bool
	// Words are what they said to it; they may be empty. Nobody: there was no answer in time.
	Words  string
	Nobody bool
}

// MaxLine is how long a line may be before the rest of it is dropped, in bytes.
const MaxLine = 16 << 20

// ErrNoPrompt is what Start returns for an empty prompt: no agent can be started without one.
var ErrNoPrompt = errors.New("harness: the prompt is empty")
