package entry

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// MaxText is the longest text of a chat entry in bytes. Longer texts belong in a file.
const MaxText = 1<<20 - 1

// Chat is a message of a person or a bot.
type Chat struct {
	// Text is Markdown. It may contain mentions such as @handle.
	Text string `json:"text"`
	// ReplyTo is the id of the entry that it answers; empty if there is none.
	ReplyTo string `json:"reply_to,omitempty"`
	// Turn is what a bot did for this answer; nil in every other chat.
	Turn *TurnSummary `json:"turn,omitempty"`
	// Confined reports that it was said with a credential that is valid for this thread alone. It wakes no bot, because
	// bots act in the whole house. Only arbe itself sets it; see [Confine].
	Confined bool `json:"confined,omitempty"`
}

// Confine returns the draft of a chat as [Chat.Confined]; other drafts as they are. The draft is valid ([Check]).
func Confine(d Draft) Draft {
	var fields map[string]json.RawMessage // keeps the other fields, also those that this version does not know
	if d.Type != (Chat{}).Type() || json.Unmarshal(d.Payload, &fields) != nil || fields == nil {
		return d
	}
	if _, has := fields["confined"]; !has {
		end := bytes.LastIndexByte(d.Payload, '}')
		d.Payload = append(bytes.Clone(d.Payload[:end]), `,"confined":true}`...)
		return d
	}
	fields["confined"] = json.RawMessage("true")
	d.Payload, _ = json.Marshal(fields) // cannot fail, because it was JSON
	return d
}

func (Chat) Type() string { return "chat" }

// Validate requires a text that is not blank and has at most [MaxText] bytes.
func (c Chat) Validate() error {
	switch {
	case strings.TrimSpace(c.Text) == "":
		return fault.New(fault.Invalid, "text: it is empty", "write something")
	case len(c.Text) > MaxText:
		return fault.Newf(fault.Exhausted, "shorten it, or put it into a file", "text: it may have at most %d bytes, and this has %d", MaxText, len(c.Text))
	case len(c.ReplyTo) > maxID:
		return fault.New(fault.Invalid, "reply_to: it is not the id of an entry", "use the id of an entry of this thread")
	}
	return nil
}

// Plain returns the text.
func (c Chat) Plain() string { return c.Text }
