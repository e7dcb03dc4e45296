package entry_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// FuzzPayload checks entries from strangers: each is refused with a reason, or is valid for its kind. Whatever is in a log
// can be shown.
func FuzzPayload(f *testing.F) {
	for _, p := range samples {
		d := entry.NewDraft("id", "author", p)
		f.Add(d.Type, d.ID, []byte(d.Payload))
	}
	for _, payload := range []string{`null`, `[]`, `{"text":1e999}`, `{"text":"\ud800"}`, `{"text":"\u0000"}`, "{\"text\":\"\xff\"}",
		`{"exit_code":9223372036854775807,"output_bytes":-9223372036854775808,"duration_ms":9223372036854775807,"truncated":true,"command_id":"c"}`,
		`{"output":"abc","output_bytes":-9223372036854775808,"truncated":true,"command_id":"c"}`,
		`{"text":"a","text":"b","TEXT":"c"}`, strings.Repeat("[", 10_001), `{"argv":[null],"timeout_ms":-1}`, `{"steps":[{}],"sandbox_id":"b"}`} {
		for _, k := range entry.Kinds() {
			f.Add(k.Type, "id.result", []byte(payload))
		}
	}
	f.Fuzz(func(t *testing.T, kind, id string, payload []byte) {
		d := entry.Draft{ID: id, Type: kind, Payload: payload}
		server, anyone := entry.Check(d, entry.Server), entry.Check(d, entry.Anyone)
		for _, err := range []error{server, anyone} {
			if code := fault.CodeOf(err); err != nil && code != fault.Invalid && code != fault.Forbidden && code != fault.Exhausted {
				t.Errorf("it is refused with %v", err)
			}
			if err != nil && (fault.From(err).Next == "" || len(err.Error()) > 1000) {
				t.Errorf("of why it is refused it says %q", err)
			}
		}
		if anyone == nil && server != nil {
			t.Errorf("everybody may write it, and arbe may not: %v", server)
		}
		e := entry.Entry{ID: id, Type: kind, Payload: payload}
		p, ok := entry.Decode(e)
		if server == nil {
			if !ok || !json.Valid(payload) || !utf8.Valid(payload) || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
				t.Errorf("it is taken, and is not what its kind says: %v", p)
			}
		}
		if !ok {
			return
		}
		plain := p.Plain()
		if utf8.Valid(payload) && !utf8.ValidString(plain) {
			t.Errorf("in plain words it is not UTF-8: %q", plain)
		}
		if r, ok := entry.As[entry.CommandResult](e); ok && (r.Omitted() < 0 || r.Omitted() > max(r.OutputBytes, 0)) {
			t.Errorf("of %d bytes it leaves %d out", r.OutputBytes, r.Omitted())
		}
		if c, ok := entry.As[entry.Command](e); ok && server == nil && len(c.Program()) == 0 {
			t.Error("it runs nothing")
		}
	})
}

// FuzzName checks names that people choose.
func FuzzName(f *testing.F) {
	for _, name := range []string{"", " a\u00a0", "a\nb", "\xff", "\u202eabc", strings.Repeat("é", 300)} {
		f.Add(name, 200)
	}
	f.Fuzz(func(t *testing.T, name string, limit int) {
		got, err := entry.Name("name", name, limit)
		if err != nil {
			if fault.CodeOf(err) != fault.Invalid {
				t.Error(err)
			}
			return
		}
		if !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) || utf8.RuneCountInString(got) > limit {
			t.Errorf("%q is taken", got)
		}
		if again, err := entry.Name("name", got, limit); err != nil || again != got {
			t.Errorf("%q is tidied to %q, and that to %q (%v)", name, got, again, err)
		}
	})
}
