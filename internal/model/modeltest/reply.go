package modeltest

// Usage counts tokens. Input does not overlap with the caches, and Output includes Reasoning.
type Usage struct{ Input, Output, CacheRead, CacheWrite, Reasoning int }

// DefaultUsage is the usage of an answer whose reply has none.
var DefaultUsage = Usage{Input: 100, Output: 20}

// DefaultProof is the proof of thinking if a reply has none.
const DefaultProof = "c2lnbmF0dXJl"

// Reply is the server's reaction to a request. The zero Reply is an empty answer.
type Reply struct {
	// Status is the HTTP status of a refused request, which Error then explains; 0 means that the request is answered.
	Status int
	Header map[string]string
	Error  Error

	// Thinking comes first, then Text, then Calls. Text is sent in parts that end at its spaces.
	Thinking string
	Text     string
	Calls    []Call
	// Proof is the proof of Thinking: a signature or, on request, encrypted content. Defaults to [DefaultProof].
	// Redacted is thinking that only the proof shows, in the dialects that have that.
	Proof    string
	Redacted bool
	// Refusal is the text with which the model refuses.
	Refusal string
	// Stop is why the answer ends; empty means the dialect's ordinary reason.
	Stop  Stop
	Usage *Usage

	// Hold makes each part after the first, or the cut there, wait for [Server.Step]. HoldHeaders makes the response itself wait for it.
	Hold        bool
	HoldHeaders bool
	// Before is called before each part is written, with its number from 1, and the part waits until it returns. Nil is none.
	Before func(part int)
	// Endless repeats Text until the client leaves.
	Endless bool
	// Cut closes the connection before the part of that number; 1 is the first part, and -1 closes it before the response.
	Cut int
	// Fail ends the answer after its parts with an error in the stream.
	Fail *Error
	// Garbage is sent unchanged instead of the answer, with ContentType (text/event-stream if empty).
	Garbage     string
	ContentType string
	// Stream writes the answer instead of the server, piece by piece. write returns false once nobody reads it.
	Stream func(write func(piece string) bool)
}

// Error is a provider's error.
type Error struct{ Type, Code, Message string }

// Stop is why an answer ends.
type Stop string

// The reasons that differ from the ordinary one.
const (
	// StopLength: the limit of tokens was reached.
	StopLength Stop = "length"
	// StopFilter: a filter of the provider ended it.
	StopFilter Stop = "filter"
	// StopPlain: an ordinary end, even after tool calls. Some servers of the chat dialect do that.
	StopPlain Stop = "plain"
)
