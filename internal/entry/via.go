package entry

import (
	"bytes"
	"encoding/json"
)

// Via is the program with which a chat or command was said, if it was not a browser. It is taken from the request and
// proves nothing.
type Via struct {
	// Client is the program: one of [ViaCLI] and [ViaAPI].
	Client string `json:"client"`
	// Key is the name of the API key at that time; empty without a key and for the command line.
	Key string `json:"key,omitempty"`
}

// The values of Via.Client.
const (
	ViaCLI = "cli"
	ViaAPI = "api"
)

// String returns a short label: "CLI", "key deploy" or "API".
func (v Via) String() string {
	switch {
	case v.Client == ViaCLI:
		return "CLI"
	case v.Key != "":
		return "key " + OneLine(v.Key, 40)
	}
	return "API"
}

// Stored returns the value for an entry's payload: nil for a browser.
func (v Via) Stored() *Via {
	if v.Client == "" {
		return nil
	}
	return &v
}

// Through returns the draft of a chat or command with v in its payload. It returns other drafts, and those from a browser, unchanged.
// The draft must be valid; see [Check].
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
