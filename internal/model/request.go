package model

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Request is a request to a model.
//
// Its messages may come from any model and need not be tidy: a call without a result gets one that says so, results
// move after their calls, and a result without a call becomes text. Only the text of an answer that failed or was
// stopped is sent. Thinking is sent to the model that thought it, and to no other.
type Request struct {
	// System is the system prompt; it may be empty.
	System string
	// Messages are the messages so far; the last one is a user's or a tool's. At least one is required.
	Messages []entry.PiMessage
	// Once is how many of the last messages belong to this request only. Later requests begin with the messages before
	// them, so the provider is asked to cache those.
	Once  int
	Tools []Tool
	// MaxTokens limits the answer. Defaults to the model's own default, or to 8192 where a provider demands a number.
	MaxTokens int64
	// Effort is how hard the model thinks. Defaults to the provider's default. See [NoteOn].
	Effort entry.Effort
	// Pace waits until the next n bytes of the response may be checked; end reports that they were. It lets a server
	// divide its time for responses among houses, because responses may arrive at the speed of the network. Defaults to
	// nil: nothing waits.
	Pace func(n int) (end func())
}

// defaultMaxTokens limits an answer if neither the request nor the catalog does.
const defaultMaxTokens = 8192

// toolName is the form of a tool's name that every provider accepts.
var toolName = lazyregexp.New(`^[a-zA-Z0-9_-]{1,64}$`)

// prompt is a request in a form that every dialect can write: tidy, and limited to what its model accepts.
type prompt struct {
	endpoint Endpoint
	model    string
	system   string
	messages []message
	tools    []function
	// limit is the largest number of tokens of the answer; 0 if the provider decides.
	limit    int64
	thinking thinking
}

// message is one message of a prompt. Each result of a call is a separate message, after the answer with the call.
type message struct {
	role role
	// blocks are its content. The arguments of calls are objects, and thinking has a proof that the dialect accepts.
	blocks []entry.PiBlock
	// call and tool are the id and the tool of the call whose result this is. failed reports that the call failed.
	call, tool string
	failed     bool
	// cached marks the end of the part that the provider is asked to cache.
	cached bool
}

// role is the author's role.
type role int

const (
	userRole role = iota
	modelRole
	toolRole
)

// text returns the text of the message, without thinking and images.
func (m message) text() string {
	var texts []string
	for _, b := range m.blocks {
		if b.Type == entry.PiTextBlock {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// function is a tool of a prompt. Its schema has properties and no references.
type function struct {
	name, description string
	schema            map[string]any
}

// EstimateTokens estimates the tokens of a text without a request. The estimate is rather high: an overestimated
// context is only compacted early, and an underestimated one is refused.
func EstimateTokens(text string) int64 {
	var ascii, other int64
	for _, r := range text {
		if r < 0x80 {
			ascii++
		} else {
			other++
		}
	}
	return (ascii*2+6)/7 + other // 3.5 letters of English or code, and about one character of Chinese
}

// Estimate estimates the tokens of the request.
func (r Request) Estimate() int64 {
	tokens := EstimateTokens(r.System)
	for _, t := range r.Tools {
		tokens += 16 + EstimateTokens(t.Name+t.Description+string(t.Schema))
	}
	for _, m := range r.Messages {
		tokens += EstimateMessage(m)
	}
	return tokens
}

// EstimateMessage estimates the tokens of a message.
func EstimateMessage(m entry.PiMessage) int64 {
	var blocks []entry.PiBlock
	switch m := m.(type) {
	case entry.PiUser:
		blocks = m.Content
	case entry.PiAssistant:
		blocks = m.Content
	case entry.PiToolResult:
		blocks = m.Content
	}
	tokens := int64(8)
	for _, b := range blocks {
		switch b.Type {
		case entry.PiImageBlock:
			// Anthropic counts one token per 750 pixels, and the others count fewer. 1,600 is the count of the largest
			// image that Anthropic does not shrink, and 85 that of OpenAI's smallest.
			if tokens += 1600; b.Width > 0 && b.Height > 0 {
				tokens += min(max(int64(b.Width)*int64(b.Height)/750, 85), 1600) - 1600
			}
		default:
			tokens += b.Size*2/7 + EstimateTokens(b.Text) + EstimateTokens(b.Thinking) + EstimateTokens(b.Name) + EstimateTokens(string(b.Arguments))
		}
	}
	return tokens
}

// thinking is how hard a model is told to think.
type thinking struct {
	// asked is the effort; [entry.EffortDefault] if the model is told nothing, or cannot think.
	asked entry.Effort
	// level is the model's word for it, and budget the number of tokens; leveled reports that the model has words.
	level   string
	budget  int64
	leveled bool
	// adapts reports that the model chooses its budget itself, and begins that it may start to think now.
	adapts, begins bool
	// known reports that the catalog knows whether the model thinks, and thinks whether it does.
	known, thinks bool
}
