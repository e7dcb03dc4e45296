package dispatch

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Speaker is the author of a chat or command. The caller has checked that they may write to the thread.
type Speaker struct {
	db.Scope
	// MayRun returns a [fault.Forbidden] unless the speaker may also run commands in the thread. It is called only for a
	// message that is a command or delegates a task. If it is nil, the speaker may not.
	MayRun func(context.Context) error
	// Confined reports that the speaker's credential is valid for this thread only: their chats are [entry.Chat.Confined].
	Confined bool
	// Via is how they speak. Defaults to a browser.
	Via entry.Via
}

// runs reports whether the speaker may run commands.
func (s Speaker) runs(ctx context.Context) (bool, error) {
	if s.MayRun == nil {
		return false, nil
	}
	err := s.MayRun(ctx)
	if fault.CodeOf(err) == fault.Forbidden {
		return false, nil
	}
	return err == nil, err
}

// composedIn returns the text of a chat, and whether that text may have a special meaning: a command, known or unknown, an
// escape, or a directive.
func composedIn(d entry.Draft) (text string, composed bool) {
	// Most chats contain neither the mark of a command nor a JSON escape that could hide one. Avoid decoding those.
	if d.Type != (entry.Chat{}).Type() || !bytes.ContainsAny(d.Payload, `!\`) && !bytes.Contains(d.Payload, []byte("/run")) && !bytes.Contains(d.Payload, []byte("/think")) && !bytes.Contains(d.Payload, []byte(`"/`)) {
		return "", false
	}
	var c entry.Chat
	if json.Unmarshal(d.Payload, &c) != nil {
		return "", false
	}
	_, command := entry.ParseCommand(c.Text)
	_, unknown := entry.UnknownCommand(c.Text)
	_, _, directive, _ := entry.ThinkDirective(c.Text)
	_, _, delegation := entry.ParseDelegation(c.Text)
	return c.Text, command || delegation || unknown || directive || entry.Unescaped(c.Text) != c.Text
}
