package entry

import (
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
