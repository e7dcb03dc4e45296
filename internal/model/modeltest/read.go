package modeltest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// content is a string or a list of parts, depending on the dialect.
type content []part

type part struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
	Data      string `json:"data"`

	// Anthropic's calls and results.
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   content         `json:"content"`
	IsError   bool            `json:"is_error"`
}

func (c *content) UnmarshalJSON(text []byte) error {
	var plain string
	if json.Unmarshal(text, &plain) == nil {
		*c = content{{Type: "text", Text: plain}}
		return nil
	}
	return json.Unmarshal(text, (*[]part)(c))
}

func (c content) text() string {
	var texts []string
	for _, p := range c {
		if p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// head has the fields that all dialects share. Requests without streaming are refused, because arbe always streams.
type head struct {
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
}

func (h head) check() error {
	switch {
	case h.Model == "":
		return errors.New("you must provide a model parameter")
	case !h.Stream:
		return errors.New("modeltest only streams")
	}
	return nil
}

func (r *Request) readChat() error {
	var body struct {
		head
		Messages []struct {
			Role       string  `json:"role"`
			Content    content `json:"content"`
			Reasoning  string  `json:"reasoning_content"`
			ToolCallID string  `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string                           `json:"id"`
				Function struct{ Name, Arguments string } `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Function struct{ Name string } `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return err
	}
	r.Model = body.Model
	for _, m := range body.Messages {
		if m.Role == "system" || m.Role == "developer" {
			r.System += m.Content.text()
			continue
		}
		message := Message{Role: m.Role, Text: m.Content.text(), Thinking: m.Reasoning, CallID: m.ToolCallID}
		for _, c := range m.ToolCalls {
			message.Calls = append(message.Calls, Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		r.Messages = append(r.Messages, message)
	}
	for _, tool := range body.Tools {
		r.Tools = append(r.Tools, tool.Function.Name)
	}
	return body.check()
}

func (r *Request) readMessages() error {
	var body struct {
		head
		MaxTokens int     `json:"max_tokens"`
		System    content `json:"system"`
		Messages  []struct {
			Role    string  `json:"role"`
			Content content `json:"content"`
		} `json:"messages"`
		Tools []struct{ Name string } `json:"tools"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return err
	}
	r.Model, r.System = body.Model, body.System.text()
	for _, m := range body.Messages {
		message := Message{Role: m.Role}
		var said content
		for _, p := range m.Content {
			switch p.Type {
			case "text":
				said = append(said, p)
			case "thinking":
				message.Thinking, message.Proof = message.Thinking+p.Thinking, message.Proof+p.Signature
			case "redacted_thinking":
				message.Proof += p.Data
			case "tool_use":
				message.Calls = append(message.Calls, Call{ID: p.ID, Name: p.Name, Arguments: string(p.Input)})
			case "tool_result":
				r.Messages = append(r.Messages, Message{Role: "tool", Text: p.Content.text(), CallID: p.ToolUseID, IsError: p.IsError})
			}
		}
		message.Text = said.text()
		if m.Role == "assistant" || len(said) > 0 {
			r.Messages = append(r.Messages, message)
		}
	}
	for _, tool := range body.Tools {
		r.Tools = append(r.Tools, tool.Name)
	}
	if body.MaxTokens < 1 {
		return errors.New("max_tokens: Field required")
	}
	return body.check()
}

func (r *Request) readResponses() error {
	var body struct {
		head
		Instructions string `json:"instructions"`
		Input        []struct {
			Type      string  `json:"type"`
			Role      string  `json:"role"`
			Content   content `json:"content"`
			CallID    string  `json:"call_id"`
			Name      string  `json:"name"`
			Arguments string  `json:"arguments"`
			Output    string  `json:"output"`
			Encrypted string  `json:"encrypted_content"`
			Summary   content `json:"summary"`
		} `json:"input"`
		Include []string                `json:"include"`
		Store   *bool                   `json:"store"`
		Tools   []struct{ Name string } `json:"tools"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return err
	}
	r.Model, r.System = body.Model, body.Instructions
	r.Encrypted = slices.Contains(body.Include, "reasoning.encrypted_content") && body.Store != nil && !*body.Store
	for i, item := range body.Input {
		switch {
		case item.Type == "reasoning":
			if next := i + 1; next == len(body.Input) || body.Input[next].Type != "function_call" && body.Input[next].Role != "assistant" {
				return errors.New("a reasoning item was provided without its required following item")
			} else if item.Encrypted == "" || item.Summary == nil {
				return errors.New("a reasoning item needs its encrypted_content, because nothing is stored, and its summary")
			}
			r.Messages = append(r.Messages, Message{Role: "assistant", Thinking: item.Summary.text(), Proof: item.Encrypted})
		case item.Type == "function_call":
			call := Call{ID: item.CallID, Name: item.Name, Arguments: item.Arguments}
			if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == "assistant" {
				r.Messages[n-1].Calls = append(r.Messages[n-1].Calls, call)
			} else {
				r.Messages = append(r.Messages, Message{Role: "assistant", Calls: []Call{call}})
			}
		case item.Type == "function_call_output":
			r.Messages = append(r.Messages, Message{Role: "tool", Text: item.Output, CallID: item.CallID})
		case item.Role == "system" || item.Role == "developer":
			r.System += item.Content.text()
		default:
			message := Message{Role: item.Role, Text: item.Content.text()}
			if n := len(r.Messages); n > 0 && body.Input[i-1].Type == "reasoning" {
				message.Thinking, message.Proof = r.Messages[n-1].Thinking, r.Messages[n-1].Proof
				r.Messages = r.Messages[:n-1]
			}
			r.Messages = append(r.Messages, message)
		}
	}
	for _, tool := range body.Tools {
		r.Tools = append(r.Tools, tool.Name)
	}
	return body.check()
}

func (r *Request) readGemini() error {
	type parts []struct {
		Text         string
		Thought      bool
		Signature    string `json:"thoughtSignature"`
		FunctionCall *struct {
			ID, Name string
			Args     json.RawMessage
		} `json:"functionCall"`
		FunctionResponse *struct {
			ID, Name string
			Response json.RawMessage
		} `json:"functionResponse"`
	}
	var body struct {
		Contents []struct {
			Role  string
			Parts parts
		}
		System struct{ Parts parts } `json:"systemInstruction"`
		Tools  []struct {
			Functions []struct{ Name string } `json:"functionDeclarations"`
		}
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return err
	}
	for _, p := range body.System.Parts {
		r.System += p.Text
	}
	for _, c := range body.Contents {
		message := Message{Role: c.Role}
		if c.Role == "model" {
			message.Role = "assistant"
		}
		said := false
		for _, p := range c.Parts {
			message.Proof += p.Signature
			switch {
			case p.FunctionCall != nil:
				message.Calls = append(message.Calls, Call{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Arguments: string(p.FunctionCall.Args)})
			case p.FunctionResponse != nil:
				r.Messages = append(r.Messages, Message{Role: "tool", Text: string(p.FunctionResponse.Response), CallID: p.FunctionResponse.ID})
			case p.Thought:
				message.Thinking += p.Text
			default:
				message.Text, said = message.Text+p.Text, true
			}
		}
		if message.Role == "assistant" || said {
			r.Messages = append(r.Messages, message)
		}
	}
	for _, t := range body.Tools {
		for _, f := range t.Functions {
			r.Tools = append(r.Tools, f.Name)
		}
	}
	return nil
}
