package entry

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Repeated checks that e, which a log returned for d, has d's content: d or an earlier attempt to write the same was stored.
// If e is a different entry with d's id, the error is a [fault.Exists]. It reveals nothing about e, because the writer of d
// may not be allowed to read the log.
//
// JSON is compared by value. The sandbox that a command records is ignored, because it may have changed between two attempts;
// so are [Chat.Confined] and how it was said, because the second attempt may use another credential. Attachments are compared by
// their artifacts, because the first one may be deleted before the second attempt.
func Repeated(d Draft, e Entry) error {
	if e.Author == d.Author && e.Type == d.Type && sameContent(d.Type, d.Payload, e.Payload) {
		return nil
	}
	return fault.Newf(fault.Exists, "choose another id, or repeat exactly what was written with this one",
		"the id %q is already used in this thread by a different entry", d.ID)
}

func sameContent(kind string, a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if kind == (Command{}).Type() {
		var one, other Command
		if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &other) != nil {
			return false
		}
		one.SandboxID, other.SandboxID = "", ""
		one.Via, other.Via = nil, nil
		return reflect.DeepEqual(one, other)
	}
	var one, other any
	if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &other) != nil {
		return false
	}
	if kind == (Chat{}).Type() {
		for _, v := range []any{one, other} {
			if fields, ok := v.(map[string]any); ok {
				delete(fields, "confined")
				delete(fields, "via")
				onlyIDs(fields)
			}
		}
	}
	return reflect.DeepEqual(one, other)
}

// onlyIDs reduces a chat's attachments to the ids of their artifacts.
func onlyIDs(chat map[string]any) {
	list, _ := chat["attachments"].([]any)
	for i, a := range list {
		if fields, ok := a.(map[string]any); ok {
			list[i] = fields["artifact_id"]
		}
	}
	if len(list) == 0 {
		delete(chat, "attachments")
	}
}
