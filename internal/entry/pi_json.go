package entry

import (
	"encoding/json"
	"fmt"
)

// This file reads and writes the messages of pi as JSON. A field that a message lacks is not always left out, because pi expects
// some empty ones.

// MarshalJSON writes the fields of the block's type, including empty ones: pi expects them.
func (b PiBlock) MarshalJSON() ([]byte, error) {
	switch b.Type {
	case PiTextBlock:
		return json.Marshal(struct {
			Type          string `json:"type"`
			Text          string `json:"text"`
			TextSignature string `json:"textSignature,omitempty"`
		}{b.Type, b.Text, b.TextSignature})
	case PiThinkingBlock:
		return json.Marshal(struct {
			Type              string `json:"type"`
			Thinking          string `json:"thinking"`
			ThinkingSignature string `json:"thinkingSignature,omitempty"`
			Redacted          bool   `json:"redacted,omitempty"`
		}{b.Type, b.Thinking, b.ThinkingSignature, b.Redacted})
	case PiCallBlock:
		arguments := b.Arguments
		if len(arguments) == 0 {
			arguments = json.RawMessage("{}")
		}
		return json.Marshal(struct {
			Type             string          `json:"type"`
			ID               string          `json:"id"`
			Name             string          `json:"name"`
			Arguments        json.RawMessage `json:"arguments"`
			ThoughtSignature string          `json:"thoughtSignature,omitempty"`
			WholeBytes       int64           `json:"wholeBytes,omitempty"`
			ArtifactID       string          `json:"artifactId,omitempty"`
		}{b.Type, b.ID, b.Name, arguments, b.ThoughtSignature, b.WholeBytes, b.ArtifactID})
	case PiImageBlock:
		return json.Marshal(struct {
			Type       string `json:"type"`
			Data       string `json:"data"`
			MIMEType   string `json:"mimeType"`
			ArtifactID string `json:"artifactId,omitempty"`
			Width      int    `json:"width,omitempty"`
			Height     int    `json:"height,omitempty"`
		}{b.Type, b.Data, b.MIMEType, b.ArtifactID, b.Width, b.Height})
	}
	return nil, fmt.Errorf("entry: pi has no block of type %q", b.Type)
}

// piFields has all fields of a block's JSON, so that decoding needs no cases.
type piFields struct {
	Type              string          `json:"type"`
	Text              string          `json:"text"`
	TextSignature     string          `json:"textSignature"`
	Thinking          string          `json:"thinking"`
	ThinkingSignature string          `json:"thinkingSignature"`
	Redacted          bool            `json:"redacted"`
	ID                string          `json:"id"`
	Name              string          `json:"name"`
	Arguments         json.RawMessage `json:"arguments"`
	ThoughtSignature  string          `json:"thoughtSignature"`
	WholeBytes        int64           `json:"wholeBytes"`
	Data              string          `json:"data"`
	MIMEType          string          `json:"mimeType"`
	ArtifactID        string          `json:"artifactId"`
	Width             int             `json:"width"`
	Height            int             `json:"height"`
	Size              int64           `json:"-"`
}

// UnmarshalJSON reads a block. It accepts unknown types, because pi's set is open.
func (b *PiBlock) UnmarshalJSON(text []byte) error {
	var f piFields
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	*b = PiBlock(f)
	return nil
}

// piContent is the content of a message. pi also accepts a string.
type piContent []PiBlock

func (c *piContent) UnmarshalJSON(text []byte) error {
	var plain string
	if json.Unmarshal(text, &plain) == nil {
		*c = piContent{PiText(plain)}
		return nil
	}
	return json.Unmarshal(text, (*[]PiBlock)(c))
}

// MarshalJSON writes empty content as an empty list, which pi needs, not as null.
func (c piContent) MarshalJSON() ([]byte, error) {
	if c == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]PiBlock(c))
}

// The shapes on the wire. The messages themselves have no field for their role, so it cannot be wrong.
type (
	piUserJSON struct {
		Role      string    `json:"role"`
		Content   piContent `json:"content"`
		Timestamp int64     `json:"timestamp"`
	}
	piAssistantJSON struct {
		Role         string    `json:"role"`
		Harness      string    `json:"harness,omitempty"`
		Turn         string    `json:"turn,omitempty"`
		Content      piContent `json:"content"`
		API          string    `json:"api"`
		Provider     string    `json:"provider"`
		Model        string    `json:"model"`
		ResponseID   string    `json:"responseId,omitempty"`
		Usage        PiUsage   `json:"usage"`
		StopReason   PiStop    `json:"stopReason"`
		ErrorMessage string    `json:"errorMessage,omitempty"`
		Timestamp    int64     `json:"timestamp"`
		DurationMS   int64     `json:"durationMs,omitempty"`
	}
	piToolResultJSON struct {
		Role       string     `json:"role"`
		Harness    string     `json:"harness,omitempty"`
		Turn       string     `json:"turn,omitempty"`
		ToolCallID string     `json:"toolCallId"`
		ToolName   string     `json:"toolName"`
		Content    piContent  `json:"content"`
		Details    *PiDetails `json:"details,omitempty"`
		IsError    bool       `json:"isError"`
		Timestamp  int64      `json:"timestamp"`
		DurationMS int64      `json:"durationMs,omitempty"`
	}
)

// MarshalJSON writes pi's shape.
func (u PiUser) MarshalJSON() ([]byte, error) {
	return json.Marshal(piUserJSON{u.PiRole(), u.Content, u.Timestamp})
}

// MarshalJSON writes pi's shape.
func (a PiAssistant) MarshalJSON() ([]byte, error) {
	return json.Marshal(piAssistantJSON{a.PiRole(), a.Harness, a.Turn, a.Content, a.API, a.Provider, a.Model, a.ResponseID, a.Usage,
		a.StopReason, a.ErrorMessage, a.Timestamp, a.DurationMS})
}

// MarshalJSON writes pi's shape.
func (r PiToolResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(piToolResultJSON{r.PiRole(), r.Harness, r.Turn, r.ToolCallID, r.ToolName, r.Content, r.Details, r.IsError, r.Timestamp, r.DurationMS})
}

// UnmarshalJSON reads pi's shape, and refuses a message with another role.
func (u *PiUser) UnmarshalJSON(text []byte) error {
	var j piUserJSON
	if err := readPi(text, &j, &j.Role, u.PiRole()); err != nil {
		return err
	}
	*u = PiUser{j.Content, j.Timestamp}
	return nil
}

// UnmarshalJSON reads pi's shape, and refuses a message with another role.
func (a *PiAssistant) UnmarshalJSON(text []byte) error {
	var j piAssistantJSON
	if err := readPi(text, &j, &j.Role, a.PiRole()); err != nil {
		return err
	}
	*a = PiAssistant{j.Harness, j.Turn, j.Content, j.API, j.Provider, j.Model, j.ResponseID, j.Usage, j.StopReason, j.ErrorMessage,
		j.Timestamp, j.DurationMS}
	return nil
}

// UnmarshalJSON reads pi's shape, and refuses a message with another role.
func (r *PiToolResult) UnmarshalJSON(text []byte) error {
	var j piToolResultJSON
	if err := readPi(text, &j, &j.Role, r.PiRole()); err != nil {
		return err
	}
	*r = PiToolResult{j.Harness, j.Turn, j.ToolCallID, j.ToolName, j.Content, j.Details, j.IsError, j.Timestamp, j.DurationMS}
	return nil
}

func readPi(text []byte, into any, role *string, want string) error {
	if err := json.Unmarshal(text, into); err != nil {
		return err
	}
	if *role != "" && *role != want {
		return fmt.Errorf("entry: the message's role is %q, not %q", *role, want)
	}
	return nil
}
