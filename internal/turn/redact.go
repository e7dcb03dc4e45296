package turn

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/secret"
)

// This file removes a turn's only secret, the key of its model's provider, from the provider's texts, because a server
// may put the key into an error or an answer.

// receive prepares the removal of the endpoint's key.
func (r *run) receive() {
	if r.key != r.endpoint.Key {
		r.key, r.redactor = r.endpoint.Key, secret.NewRedactor([]byte(r.endpoint.Key))
	}
}

// redact removes the provider's key from an answer: from the model's texts, but not from names and ids that have a
// meaning. leaks are the numbers of the tool calls that contained the key. Redacted calls would do something else, so
// they must not run.
func (r *run) redact(answer *model.Answer) (leaks []int) {
	if r.redactor == nil {
		return nil
	}
	m := &answer.Message
	m.ErrorMessage = r.redactor.String(m.ErrorMessage)
	m.Content = slices.Clone(m.Content)
	calls := 0
	for i := range m.Content {
		b := &m.Content[i]
		b.Text, b.Thinking = r.redactor.String(b.Text), r.redactor.String(b.Thinking)
		if r.redactor.String(b.ThinkingSignature) != b.ThinkingSignature {
			b.ThinkingSignature, b.Redacted = "", false // a signature that was redacted is not valid
		}
		if b.Type != entry.PiCallBlock {
			continue
		}
		name, arguments := r.redactor.String(b.Name), r.redactArguments(b.Arguments)
		if name != b.Name || !bytes.Equal(arguments, b.Arguments) {
			leaks = append(leaks, calls)
		}
		b.Name, b.Arguments = name, arguments
		calls++
	}
	return leaks
}

// redactArguments removes the provider's key from the strings of a JSON text; it returns the text itself if they do not
// contain it. It leaves the names of properties, which belong to the tool.
func (r *run) redactArguments(text json.RawMessage) json.RawMessage {
	var parsed any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&parsed) != nil {
		return text // an entry holds only JSON
	}
	found := false
	var clean func(any) any
	clean = func(v any) any {
		switch v := v.(type) {
		case string:
			without := r.redactor.String(v)
			found = found || without != v
			return without
		case []any:
			for i := range v {
				v[i] = clean(v[i])
			}
		case map[string]any:
			for name := range v {
				v[name] = clean(v[name])
			}
		}
		return v
	}
	if parsed = clean(parsed); !found {
		return text
	}
	without, _ := json.Marshal(parsed) // cannot fail for a decoded value
	return without
}

// refused returns the result of a call that is not run because it contains the provider's key.
func (r *run) refused(c entry.PiBlock) entry.PiToolResult {
	what := fault.Newf(fault.Invalid, "leave the value out; a command reads a secret that its environment binds as $NAME",
		"the call contains the secret %s, so it was not run", cmp.Or(r.endpoint.KeyName, "key of "+r.endpoint.Name))
	return entry.PiToolResult{
		Turn: r.turn.ID, ToolCallID: c.ID, ToolName: c.Name, Timestamp: time.Now().UnixMilli(), IsError: true,
		Content: []entry.PiBlock{entry.PiText(what.Error())},
	}
}
