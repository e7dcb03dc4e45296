package acp

import (
	"encoding/json"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// call is a tool call without a result.
type call struct {
	toolCall
	name    string
	content string
	// told reports that the transcript has the call, and denied that a person denied it.
	told, denied bool
}

// toolName matches the name of a tool, as opposed to a description.
var toolName = lazyregexp.New(`^[A-Za-z0-9_.:-]{1,64}$`)

// nameOf returns the name of a tool. The protocol has no names; agents put them into the title, or give only a kind.
func nameOf(c toolCall) string {
	for _, name := range []string{c.Title, c.Does} {
		if toolName.MatchString(name) {
			return name
		}
	}
	return "tool"
}

// list returns a tool's output as text.
func list(made json.RawMessage) string {
	var items []content
	if json.Unmarshal(made, &items) != nil {
		return ""
	}
	var texts []string
	for _, item := range items {
		if text := item.plain(); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

// merge copies the fields that an update sets.
func (c *call) merge(u toolCall) {
	c.ID = u.ID
	if u.Title != "" {
		c.Title = u.Title
	}
	if u.Does != "" {
		c.Does = u.Does
	}
	if u.Status != "" {
		c.Status = u.Status
	}
	if isObject(u.RawInput) {
		c.RawInput = u.RawInput
	}
	if len(u.RawOutput) > 0 {
		c.RawOutput = u.RawOutput
	}
}

func isObject(raw json.RawMessage) bool { return len(raw) > 2 && raw[0] == '{' }

// arguments returns the arguments of the call: an object, even if the agent sent none.
func (c *call) arguments() json.RawMessage {
	switch {
	case isObject(c.RawInput):
		return c.RawInput
	case c.Title != "" && c.Title != c.name:
		return text(object{"title": entry.Clip(c.Title, 1000)})
	}
	return json.RawMessage("{}")
}

func (c toolCall) size() int { return len(c.Title) + len(c.Does) + len(c.RawInput) + len(c.RawOutput) }
