package stream_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// FuzzOffset parses offsets as any client may send them.
func FuzzOffset(f *testing.F) {
	for _, text := range []string{"", "-1", "now", "0", stream.Offset(0), stream.Offset(1 << 40), "9999999999999999_0", "0_9999999999999999", "1_1\n", "٣_٣"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		seq, err := stream.ParseOffset(text)
		if err != nil {
			if fault.CodeOf(err) != fault.Invalid || len(err.Error()) > 500 {
				t.Errorf("%q is refused with %v", text, err)
			}
			return
		}
		if again, err := stream.ParseOffset(stream.Offset(seq)); seq < 0 || err != nil || again != seq {
			t.Errorf("%q is %d, which is written %q, which is %d (%v)", text, seq, stream.Offset(seq), again, err)
		}
	})
}

// TestTheLogAcceptsCheckedPayloads: the database accepts every payload that passes the doors' check. A refusal by the
// database would come too late for the client.
func TestTheLogAcceptsCheckedPayloads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.stream("log")
	for _, payload := range []string{
		`{"text":"\u0000"}`, `{"text":"\ud800"}`, `{"text":"\udc00\ud800"}`, `{"text":"a","x":1e999999}`, `{"text":"a","x":-0.0e-0}`,
		`{"text":"a","x":1,"x":2}`, `{"text":"a","":{"":[]}}`, "{\"text\":\"\u2028\ufeff\U0010ffff\"}", " {\"text\"\t:\r\n\"a\"} ",
		`{"text":"a","x":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "}",
	} {
		d := entry.Draft{Author: b.member, Type: "chat", Payload: []byte(payload)}
		if err := entry.Check(d, entry.Anyone); err != nil {
			t.Errorf("%.60q is refused: %v", payload, err)
		}
		got, err := b.log.Append(t.Context(), ref, d)
		if err != nil {
			t.Errorf("%.60q is not accepted: %v", payload, err)
			continue
		}
		if read, err := b.log.Get(t.Context(), ref, got[0].ID); err != nil || string(read.Payload) != payload {
			t.Errorf("%.60q comes back as %.60q: %v", payload, read.Payload, err)
		}
	}
}

// FuzzContent checks that any content comes back unchanged.
func FuzzContent(f *testing.F) {
	for _, content := range []string{"", "[]", "[1,[2],{}]", " {\"a\": 1e9} ", "\"\x00\"", "[", "nullnull", "[null]", "\xff\xfe", "0\f", "\u00a0[]",
		"[" + strings.Repeat("1,", stream.MaxMessages) + "1]"} {
		f.Add("application/json", []byte(content))
		f.Add("Application/JSON ; charset=utf-8", []byte(content))
		f.Add("text/html", []byte(content))
		f.Add("", []byte(content))
	}
	f.Fuzz(func(t *testing.T, contentType string, content []byte) {
		drafts, err := stream.Drafts(contentType, "", content)
		if fault.CodeOf(err) == fault.Exhausted {
			var messages []json.RawMessage
			if json.Unmarshal(content, &messages) != nil || len(messages) <= stream.MaxMessages {
				t.Errorf("%d messages are refused with %v", len(messages), err)
			}
			return
		}
		if err != nil {
			if fault.CodeOf(err) != fault.Invalid || !stream.IsJSON(contentType) {
				t.Errorf("it is refused with %v", err)
			}
			return
		}
		var back [][]byte
		for _, d := range drafts {
			if !json.Valid(d.Payload) || d.ID == "" {
				t.Errorf("an entry %q is %q", d.ID, d.Payload)
			}
			back = append(back, stream.Bytes(entry.Entry{Type: d.Type, Payload: d.Payload}))
		}
		if len(drafts) > stream.MaxMessages {
			t.Errorf("%d messages are accepted", len(drafts))
		}
		if !stream.IsJSON(contentType) {
			if got := bytes.Join(back, nil); !bytes.Equal(got, content) {
				t.Errorf("%q comes back as %q", content, got)
			}
			return
		}
		got := bytes.Join(back, []byte(","))
		if trimmed := bytes.TrimLeft(content, " \t\r\n"); trimmed[0] == '[' {
			got = append(append([]byte("["), got...), ']')
		}
		var want, have bytes.Buffer
		if json.Compact(&want, content) != nil || json.Compact(&have, got) != nil || !bytes.Equal(want.Bytes(), have.Bytes()) {
			t.Errorf("%q comes back as %q", content, got)
		}
	})
}
