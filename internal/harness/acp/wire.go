package acp

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// version is the protocol version.
const version = 1

type object map[string]any

// text returns v as JSON. v must consist of strings, numbers and JSON.
func text(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("{}") // an agent's invalid JSON was refused before
	}
	return out
}

func encode(v any) []byte {
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		return nil // cannot happen for strings and JSON
	}
	return out.Bytes()
}

// message is any message of the agent: a request or notification with a method, or the answer to a request of ours.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *failure        `json:"error"`
}

// failure is a JSON-RPC error.
type failure struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// String describes the error.
func (f failure) String() string {
	said := strings.TrimPrefix(f.Message, "Internal error: ")
	var data struct {
		Message string `json:"message"`
		Details string `json:"details"`
	}
	_ = json.Unmarshal(f.Data, &data) // it may be anything
	for _, more := range []string{data.Message, data.Details} {
		if more != "" && !strings.Contains(said, more) {
			said += ": " + more
		}
	}
	if said == "" {
		said = "the agent failed without saying why"
	}
	return said
}

// The errors with which we answer the agent.
const (
	noMethod  = -32601
	badParams = -32602
)

func request(id int64, method string, params any) []byte {
	return send(object{"id": id, "method": method, "params": params})
}

func notify(method string, params any) []byte {
	return send(object{"method": method, "params": params})
}

func answer(id json.RawMessage, result any) []byte {
	return send(object{"id": id, "result": result})
}

func refuse(id json.RawMessage, code int, why string) []byte {
	return send(object{"id": id, "error": object{"code": code, "message": why}})
}

func send(o object) []byte {
	o["jsonrpc"] = "2.0"
	return encode(o)
}

// isID reports whether JSON can be the id of a request: a short string or a number.
func isID(id json.RawMessage) bool {
	return len(id) > 0 && len(id) <= 200 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// headOf finds the id of a message whose line is too long to decode, and its method if it is a request.
var headOf = lazyregexp.New(`^\{"jsonrpc":"2\.0","id":(-?\d{1,18}|"[^"\\]{1,100}"),"(?:method":"([a-z_/]{1,60})"|result|error)`)

// content is text, or the output of a tool.
type content struct {
	Type string `json:"type"`
	Text string `json:"text"`
	// For a tool's output: {"type":"content","content":{...}}, or a change of a file.
	Content *content `json:"content"`
	Path    string   `json:"path"`
	OldText *string  `json:"oldText"`
	NewText string   `json:"newText"`
	// For a resource.
	URI string `json:"uri"`
}

// plain returns content as text.
func (c content) plain() string {
	switch c.Type {
	case "text":
		return c.Text
	case "content":
		if c.Content != nil && c.Content.Type != "content" {
			return c.Content.plain()
		}
		return ""
	case "diff":
		if c.OldText == nil {
			return "[wrote " + entry.OneLine(c.Path, 300) + "]"
		}
		return "[changed " + entry.OneLine(c.Path, 300) + "]"
	case "resource_link":
		return "[" + entry.OneLine(c.URI, 300) + "]"
	case "terminal":
		return ""
	}
	return "[content of the type " + entry.OneLine(c.Type, 60) + " is not kept]"
}

// update is an event of a session. The fields of tool calls are part of it.
type update struct {
	Kind      string          `json:"sessionUpdate"`
	MessageID string          `json:"messageId"`
	Content   json.RawMessage `json:"content"` // one, or a list for tools
	toolCall
}

// toolCall is an update of a tool call. Missing fields are unchanged.
type toolCall struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title"`
	Does      string          `json:"kind"`
	Status    string          `json:"status"`
	RawInput  json.RawMessage `json:"rawInput"`
	RawOutput json.RawMessage `json:"rawOutput"`
}

// permission is the agent's question before it uses a tool.
type permission struct {
	Session  string   `json:"sessionId"`
	ToolCall toolCall `json:"toolCall"`
	Options  []option `json:"options"`
}

type option struct {
	ID   string `json:"optionId"`
	Kind string `json:"kind"`
}

// choose returns an answer with the first option of one of these kinds; without one, the answer that nobody answered.
func (p permission) choose(kinds ...string) object {
	for _, kind := range kinds {
		for _, o := range p.Options {
			if o.Kind == kind {
				return object{"outcome": object{"outcome": "selected", "optionId": o.ID}}
			}
		}
	}
	return object{"outcome": object{"outcome": "cancelled"}}
}
