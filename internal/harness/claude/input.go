package claude

import (
	"bytes"
	"encoding/json"
	"strings"
)

type object map[string]any

// says returns the input line that gives Claude Code a prompt.
func says(prompt string) []byte {
	if strings.HasPrefix(strings.TrimSpace(prompt), "/") {
		prompt = "My message is:\n" + prompt // otherwise Claude Code would take it for a command
	}
	return input(object{"type": "user", "message": object{"role": "user", "content": prompt}})
}

// input returns a line of input.
func input(o object) []byte {
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	if err := to.Encode(o); err != nil {
		panic(err) // cannot happen for strings and valid JSON
	}
	return out.Bytes()
}
