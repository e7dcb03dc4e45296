package codex

import "encoding/json"

// call is a tool call.
type call struct {
	id, tool  string
	arguments json.RawMessage
}

// call returns the tool call of an item. The call of any other item has no tool.
func (i item) call() call {
	c := call{id: i.ID}
	var fields any
	switch i.Type {
	case "commandExecution":
		c.tool, fields = "exec_command", map[string]string{"cmd": i.Command}
	case "fileChange":
		c.tool, fields = "apply_patch", map[string]json.RawMessage{"changes": i.Changes}
		if len(i.Changes) == 0 {
			fields = struct{}{}
		}
	case "mcpToolCall":
		if c.tool = i.Server + "." + i.Tool; len(i.Args) > 0 && i.Args[0] == '{' {
			c.arguments = i.Args
			return c
		}
		fields = struct{}{}
	case "webSearch":
		c.tool, fields = "web_search", map[string]string{"query": i.Query}
	case "collabAgentToolCall":
		c.tool, fields = i.Tool, map[string]string{"prompt": i.Prompt}
	default:
		return c
	}
	var err error
	if c.arguments, err = json.Marshal(fields); err != nil {
		c.arguments = json.RawMessage("{}")
	}
	return c
}
