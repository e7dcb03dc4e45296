package claude

import "encoding/json"

type usage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

type line struct {
	Type    string  `json:"type"`
	Subtype string  `json:"subtype"`
	Session string  `json:"session_id"`
	Parent  string  `json:"parent_tool_use_id"`
	Message message `json:"message"`
	Event   event   `json:"event"`
	Replay  bool    `json:"isReplay"`

	// For a question, or its end.
	RequestID string  `json:"request_id"`
	Request   request `json:"request"`

	// For the last line.
	IsError  bool   `json:"is_error"`
	Result   string `json:"result"`
	Terminal string `json:"terminal_reason"`

	// For a retry.
	Attempt int64   `json:"attempt"`
	Max     int64   `json:"max_retries"`
	DelayMS float64 `json:"retry_delay_ms"`
	Error   string  `json:"error"`
}

type message struct {
	ID      string `json:"id"`
	Role    string `json:"role"`
	Model   string `json:"model"`
	Content blocks `json:"content"`
	Usage   usage  `json:"usage"`
}

// event is an event of the provider's stream.
type event struct {
	Type    string  `json:"type"`
	Index   int     `json:"index"`
	Message message `json:"message"`
	Block   block   `json:"content_block"`
	Delta   struct {
		Type       string `json:"type"`
		Text       string `json:"text"`
		Thinking   string `json:"thinking"`
		JSON       string `json:"partial_json"`
		StopReason string `json:"stop_reason"`
	} `json:"delta"`
	Usage usage `json:"usage"`
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	CallID    string          `json:"tool_use_id"`
	Content   blocks          `json:"content"`
	IsError   bool            `json:"is_error"`
}

// blocks is a list, or a string that stands for one text block.
type blocks []block

func (b *blocks) UnmarshalJSON(text []byte) error {
	var plain string
	if json.Unmarshal(text, &plain) == nil {
		*b = blocks{{Type: "text", Text: plain}}
		return nil
	}
	return json.Unmarshal(text, (*[]block)(b))
}

// request is a request of Claude Code.
type request struct {
	Subtype   string          `json:"subtype"`
	Tool      string          `json:"tool_name"`
	CallID    string          `json:"tool_use_id"`
	Arguments json.RawMessage `json:"input"`
}
