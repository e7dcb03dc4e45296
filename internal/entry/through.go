package entry

import (
	"bytes"
	"encoding/json"
)

// Through returns the draft of a chat or command with v in its payload. It returns other drafts, and those from a browser,
// unchanged. The draft must be valid; see [Check].
func Through(d Draft, v Via) Draft {
	if v.Client == "" || d.Type != (Chat{}).Type() && d.Type != (Command{}).Type() {
		return d
	}
	end := bytes.LastIndexByte(d.Payload, '}')
	if end < 0 {
		return d
	}
	text, _ := json.Marshal(v) // cannot fail for strings
	comma := ","
	if bytes.Equal(bytes.TrimSpace(d.Payload[:end]), []byte("{")) {
		comma = ""
	}
	d.Payload = append(bytes.Clone(d.Payload[:end]), comma+`"via":`+string(text)+"}"...)
	return d
}

// ViaOf returns the Via of a chat or command: zero for one from a browser, and for other entries.
func ViaOf(e Entry) Via {
	var via *Via
	switch p, _ := Decode(e); p := p.(type) {
	case Chat:
		via = p.Via
	case Command:
		via = p.Via
	}
	if via == nil {
		return Via{}
	}
	return *via
}
