package model

import (
	"encoding/json"
	"html"
	"strings"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// wireError is a provider's error. Codes are strings, or numbers at OpenRouter and Google.
type wireError struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
	Status  string          `json:"status"`
	Message string          `json:"message"`
}

// UnmarshalJSON also reads a string, as the message.
func (e *wireError) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &e.Message)
	}
	type plain wireError
	return json.Unmarshal(data, (*plain)(e))
}

func (e wireError) empty() bool {
	return e.Type == "" && len(e.Code) == 0 && e.Status == "" && e.Message == ""
}

func (e wireError) code() string { return strings.Trim(string(e.Code), `"`) }

// readError reads the body of a refused request.
func readError(body []byte) wireError {
	var one struct {
		Error   wireError `json:"error"`
		Message string    `json:"message"`
		Detail  string    `json:"detail"`
	}
	var several []json.RawMessage // sometimes Google's
	if json.Unmarshal(body, &several) == nil && len(several) > 0 {
		body = several[0]
	}
	if passable(json.Unmarshal(body, &one)) != nil {
		return wireError{}
	}
	if !one.Error.empty() {
		return one.Error
	}
	if one.Message == "" {
		one.Message = one.Detail
	}
	return wireError{Message: one.Message}
}

// notText matches the invisible parts of a web page, and its tags.
var notText = lazyregexp.New(`(?is)<(script|style|head)\b.*?(</(script|style|head)\s*>|$)|<!--.*?(-->|$)|<[^>]*(>|$)`)

// pageText returns the text of a web page, or plain text unchanged. It is untrusted.
func pageText(page []byte) string {
	return strings.Join(strings.Fields(html.UnescapeString(notText.ReplaceAllString(strings.ToValidUTF8(string(page), "\uFFFD"), " "))), " ")
}
