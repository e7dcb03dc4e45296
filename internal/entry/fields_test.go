package entry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// A payload means the same to every reader, whatever its JSON library makes of names.
func TestAPayloadIsReadOneWay(t *testing.T) {
	t.Parallel()
	for payload, good := range map[string]bool{
		`{"text": "hi"}`:                 true,
		`{"type": "chat", "text": "hi"}`: true,
		`{"text": "hi", "more": {"text": 1, "Text": 2, "type": 3}}`:                true,
		`{"text": "hi", "extra": 1, "extra": 2}`:                                   true, // nobody reads it
		`{"type": "command_result", "text": "hi"}`:                                 false,
		`{"type": "chat", "type": "command_result", "text": "hi"}`:                 false,
		`{"type": "command_result", "type": "chat", "text": "hi"}`:                 false,
		`{"type": "command_result", "Type": "chat", "text": "hi"}`:                 false,
		`{"t\u0079pe": "command_result", "text": "hi"}`:                            false,
		`{"type": null, "text": "hi"}`:                                             false,
		`{"type": ["chat"], "text": "hi"}`:                                         false,
		`{"text": "for people", "text": "for programs"}`:                           false,
		`{"text": "for programs", "TEXT": "for people"}`:                           false,
		`{"Text": "for people"}`:                                                   false,
		`{"text": "hi", "reply_to": "a", "Reply_To": "b"}`:                         false,
		`{"text": "hi", "a": [` + strings.Repeat(`"x",`, 9) + `"x"], "texT": "b"}`: false,
	} {
		err := entry.Check(entry.Draft{ID: "x", Type: "chat", Payload: json.RawMessage(payload)}, entry.Anyone)
		if good && err != nil || !good && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", payload, err)
		}
	}
	// Every field of every kind.
	for _, k := range entry.Kinds() {
		for _, name := range []string{"type", "Type", "TYPE"} {
			payload := json.RawMessage(fmt.Sprintf(`{%q: "another"}`, name))
			if err := entry.Check(entry.Draft{ID: "x", Type: k.Type, Payload: payload}, entry.Server); fault.CodeOf(err) != fault.Invalid {
				t.Errorf("%s takes %s: %v", k.Type, payload, err)
			}
		}
	}
}
