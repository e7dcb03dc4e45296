package model

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
)

// This file is the dialect [Gemini]: Google's generateContent.

// geminiPart is a part of a message, in requests and in answers.
type geminiPart struct {
	Text             string          `json:"text,omitempty"`
	Thought          bool            `json:"thought,omitempty"`
	ThoughtSignature string          `json:"thoughtSignature,omitempty"` // in base64
	InlineData       *geminiBlob     `json:"inlineData,omitempty"`
	FunctionCall     *geminiCall     `json:"functionCall,omitempty"`
	FunctionResponse *geminiResponse `json:"functionResponse,omitempty"`
}

type geminiBlob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

type geminiCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

type geminiResponse struct {
	ID       string            `json:"id,omitempty"`
	Name     string            `json:"name"`
	Response map[string]string `json:"response"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiFunction struct {
	Name        string       `json:"name"`
	Description string       `json:"description,omitempty"`
	Parameters  geminiSchema `json:"parameters"`
}

// geminiSchema is Google's subset of JSON schema.
type geminiSchema struct {
	Type        string                   `json:"type"`
	Description string                   `json:"description,omitempty"`
	Items       *geminiSchema            `json:"items,omitempty"`
	Properties  map[string]*geminiSchema `json:"properties,omitempty"`
	Required    any                      `json:"required,omitempty"`
}

// geminiThinking is how hard a model thinks: by a level or by a budget, never both.
type geminiThinking struct {
	IncludeThoughts bool   `json:"includeThoughts,omitempty"`
	ThinkingBudget  int64  `json:"thinkingBudget,omitempty"`
	ThinkingLevel   string `json:"thinkingLevel,omitempty"`
}

// leastGeminiBudget is the least budget that Google's models accept.
const leastGeminiBudget = 128

func geminiPath(p prompt) string {
	id := p.model
	if !strings.HasPrefix(id, "models/") && !strings.HasPrefix(id, "tunedModels/") {
		id = "models/" + id
	}
	return "/v1beta/" + id + ":streamGenerateContent?alt=sse"
}

func writeGemini(p prompt) any {
	contents := geminiContents(p.messages)
	body := object{"contents": contents}
	switch gemma := strings.HasPrefix(strings.ToLower(p.model), "gemma-"); {
	case p.system == "":
	case gemma && contents[0].Role == "user": // Gemma accepts no system prompt
		contents[0].Parts = append([]geminiPart{{Text: p.system + "\n\n"}}, contents[0].Parts...)
	default:
		body["systemInstruction"] = geminiContent{"user", []geminiPart{{Text: p.system}}}
	}
	body["generationConfig"] = geminiConfig(p)
	if len(p.tools) > 0 {
		var functions []geminiFunction
		for _, f := range p.tools {
			parameters := geminiSchema{Type: "OBJECT", Properties: geminiProperties(f.schema["properties"]), Required: f.schema["required"]}
			functions = append(functions, geminiFunction{f.name, f.description, parameters})
		}
		body["tools"] = []object{{"functionDeclarations": functions}}
	}
	return body
}

func geminiContents(messages []message) (contents []geminiContent) {
	for i, m := range messages {
		parts := geminiParts(m)
		// The results of one answer's calls are one content.
		if m.role == toolRole && i > 0 && messages[i-1].role == toolRole {
			last := &contents[len(contents)-1]
			last.Parts = append(last.Parts, parts...)
			continue
		}
		role := "user"
		if m.role == modelRole {
			role = "model"
		}
		contents = append(contents, geminiContent{role, parts})
	}
	return contents
}

func geminiConfig(p prompt) object {
	config := object{}
	if p.limit > 0 {
		config["maxOutputTokens"] = p.limit
	}
	if t := p.thinking; t.asked != entry.EffortDefault {
		think := geminiThinking{IncludeThoughts: t.asked != entry.EffortOff}
		if !t.leveled && strings.HasPrefix(p.model, "gemini-2") {
			think.ThinkingBudget = max(t.budget, leastGeminiBudget)
		} else {
			think.ThinkingLevel = strings.ToUpper(cmp.Or(t.level, "low"))
		}
		config["thinkingConfig"] = think
	}
	return config
}

// geminiParts writes a message. The proof of thinking is attached to the part after it, and the thinking itself is left
// out.
func geminiParts(m message) (parts []geminiPart) {
	if m.role == toolRole {
		return []geminiPart{{FunctionResponse: &geminiResponse{m.call, m.tool, map[string]string{"result": m.text()}}}}
	}
	proof := ""
	for _, b := range m.blocks {
		part := geminiPart{}
		switch b.Type {
		case entry.PiThinkingBlock:
			proof = b.ThinkingSignature
			continue
		case entry.PiTextBlock:
			part.Text = b.Text
		case entry.PiImageBlock:
			part.InlineData = &geminiBlob{b.MIMEType, b.Data}
		case entry.PiCallBlock:
			part.FunctionCall = &geminiCall{b.ID, b.Name, b.Arguments}
		}
		part.ThoughtSignature, proof = proof, ""
		parts = append(parts, part)
	}
	return parts
}

// geminiSchemaOf writes the schema of a value. A type that Google does not have becomes a string.
func geminiSchemaOf(schema any) *geminiSchema {
	s := &geminiSchema{Type: "STRING"}
	from, _ := schema.(map[string]any)
	s.Description, _ = from["description"].(string)
	switch kind, _ := from["type"].(string); kind {
	case "number", "integer", "boolean", "array", "object":
		s.Type = strings.ToUpper(kind)
	}
	switch s.Type {
	case "ARRAY":
		if items, ok := from["items"].(map[string]any); ok {
			s.Items = geminiSchemaOf(items)
		}
	case "OBJECT":
		s.Properties = geminiProperties(from["properties"])
	}
	return s
}

func geminiProperties(properties any) map[string]*geminiSchema {
	schemas := map[string]*geminiSchema{}
	from, _ := properties.(map[string]any)
	for name, property := range from {
		schemas[name] = geminiSchemaOf(property)
	}
	return schemas
}

// geminiReader reads chunks of an answer. A text or a thought continues until another part begins.
type geminiReader struct {
	*stream
	part     int    // the number of parts so far
	writes   string // the key of the open text; empty if there is none
	thinks   string // the key of the open thought
	hasCalls bool
	ends     finish
}

func newGeminiReader(s *stream) reader { return &geminiReader{stream: s} }

func (g *geminiReader) read(data []byte) (finish, error) {
	var chunk struct {
		Candidates []struct {
			Content      geminiContent `json:"content"`
			FinishReason string        `json:"finishReason"`
		} `json:"candidates"`
		PromptFeedback struct {
			BlockReason string `json:"blockReason"`
		} `json:"promptFeedback"`
	}
	if err := decode(data, &chunk); err != nil {
		return "", err
	}
	if chunk.PromptFeedback.BlockReason != "" {
		return endFilter, nil
	}
	if len(chunk.Candidates) == 0 {
		return "", nil
	}
	for _, part := range chunk.Candidates[0].Content.Parts {
		if err := g.take(part); err != nil {
			return "", err
		}
	}
	if reason := chunk.Candidates[0].FinishReason; reason != "" {
		g.ends = geminiFinish(reason)
	}
	return "", nil // its usage may follow
}

func geminiFinish(reason string) finish {
	switch reason {
	case "MAX_TOKENS":
		return endLength
	case "SAFETY", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY":
		return endFilter
	case "RECITATION", "LANGUAGE", "MALFORMED_FUNCTION_CALL":
		return endError
	}
	return endPlain
}

func (g *geminiReader) end() finish {
	if g.hasCalls {
		return endPlain
	}
	return g.ends
}

func (g *geminiReader) take(part geminiPart) error {
	switch {
	case part.Text != "" && part.Thought:
		g.said(g.writes)
		g.writes, g.thinks = "", cmp.Or(g.thinks, g.key())
		return g.think(g.thinks, part.Text)
	case part.Text != "":
		g.writes = cmp.Or(g.writes, g.key())
		if err := g.prove(part.ThoughtSignature); err != nil {
			return err
		}
		return g.say(g.writes, part.Text)
	case part.FunctionCall != nil:
		return g.takeCall(part)
	}
	return nil
}

func (g *geminiReader) takeCall(part geminiPart) error {
	g.said(g.writes)
	g.writes, g.hasCalls = "", true
	if err := g.prove(part.ThoughtSignature); err != nil {
		return err
	}
	key, call := g.key(), part.FunctionCall
	args := string(call.Args)
	if args == "null" {
		args = ""
	}
	if err := g.call(key, call.ID, call.Name); err != nil {
		return err
	}
	args = cmp.Or(args, "{}")
	if err := g.argue(key, args); err != nil {
		return err
	}
	return g.called(key, args)
}

// key returns the key of a new part.
func (g *geminiReader) key() string {
	g.part++
	return strconv.Itoa(g.part)
}

// prove ends the open thought, if there is one. Its proof arrives with the part after it.
func (g *geminiReader) prove(proof string) error {
	key := cmp.Or(g.thinks, g.key())
	g.thinks = ""
	if _, err := base64.StdEncoding.DecodeString(proof); err != nil {
		return outOfBounds("it sends a proof of thinking that is not base64")
	}
	err := g.stream.prove(key, proof, false)
	g.thought(key)
	return err
}
