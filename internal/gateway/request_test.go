package gateway

import (
	"bytes"
	"encoding/json"
	"testing"
)

// The gateway reads the same fields as a JSON parser, from every text that is JSON.
func FuzzEachField(f *testing.F) {
	for _, text := range []string{`{}`, ` { } `, `{"model":"a"}`, `{"a":[{"b":"}\""}],"model" : "x\\", "c":1 }`, `{"a":1`, `{"a":}`, `{"a" 1}`, `{,}`, `{"a":1,}`, `{"a":"x"}{}`,
		`{"mod\u0065l":"x"}`, `[]`, `"a"`, ``, `{"a":[}`, `{"a":1 2}`, `{"a":tru}`, "{\"a\":\"\x01\"}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := map[string]string{}
		whole := eachField(text, func(name string, value []byte) bool { got[name] = string(value); return true })
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) != nil || want == nil {
			if whole && json.Valid(text) {
				t.Errorf("%q is accepted as an object", text)
			}
			return
		}
		if !whole || len(got) != len(want) {
			t.Errorf("of %q it reads %q (%t)", text, got, whole)
		}
		for name, value := range want {
			if got[name] != string(bytes.TrimSpace(value)) {
				t.Errorf("of %q it reads %q as %q", text, name, got[name])
			}
		}
	})
}
