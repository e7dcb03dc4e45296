package model

import (
	"bytes"
	"encoding/json"
)

// maxCost is the most that a call costs, in US dollars, whatever the provider reports.
const maxCost = 10_000

// note records the parts of an event that do not belong to the answer.
func (w *wire) note(data []byte) {
	w.data = true
	has := func(word string) bool { return bytes.Contains(data, []byte(word)) }
	// Most events are pieces of text, which the dialect decodes.
	if has(`"usage`) && !has(`"usage":null`) || has(`"error`) || has("refusal") || w.id == "" && has(`"id"`) {
		w.aside(data)
	}
}

// aside has the fields, in all four dialects, that matter here.
type aside struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"`
	Code     json.RawMessage `json:"code"`
	Message  json.RawMessage `json:"message"` // messages: an object; an error of responses: a string
	Delta    json.RawMessage `json:"delta"`
	Error    *wireError      `json:"error"`
	Usage    *wireUsage      `json:"usage"`
	Response *struct {
		ID    string     `json:"id"`
		Error *wireError `json:"error"`
		Usage *wireUsage `json:"usage"`
	} `json:"response"`
	Choices []struct {
		Delta struct {
			Refusal string `json:"refusal"`
		} `json:"delta"`
	} `json:"choices"`
	ResponseID    string `json:"responseId"`
	UsageMetadata *struct {
		Prompt     int64 `json:"promptTokenCount"`
		ToolPrompt int64 `json:"toolUsePromptTokenCount"`
		Cached     int64 `json:"cachedContentTokenCount"`
		Candidates int64 `json:"candidatesTokenCount"`
		Thoughts   int64 `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
}

// wireUsage has the field names of all dialects.
type wireUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	Prompt     *int64 `json:"prompt_tokens"`
	Completion *int64 `json:"completion_tokens"`
	PromptIn   *struct {
		Cached     int64 `json:"cached_tokens"`
		CacheWrite int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	InputIn *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Cost *float64 `json:"cost"`
}

func (w *wire) aside(data []byte) {
	var e aside
	if passable(json.Unmarshal(data, &e)) != nil {
		return
	}
	w.noteError(e)
	w.noteTyped(e)
	for _, choice := range e.Choices {
		w.refuse(choice.Delta.Refusal)
	}
	if w.id == "" && w.endpoint.Dialect == Chat {
		w.id = e.ID
	}
	if e.ResponseID != "" {
		w.id = e.ResponseID
	}
	if e.Response != nil {
		w.id = e.Response.ID
		w.use(e.Response.Usage)
	}
	w.use(e.Usage)
	if u := e.UsageMetadata; u != nil {
		// Each chunk has the numbers of all chunks so far.
		w.usage = Usage{Input: clamp(clamp(u.Prompt) + clamp(u.ToolPrompt) - clamp(u.Cached)), CacheRead: clamp(u.Cached),
			Output: clamp(clamp(u.Candidates) + clamp(u.Thoughts))}
	}
}

// noteError keeps the error of an event.
func (w *wire) noteError(e aside) {
	switch {
	case e.Error != nil && !e.Error.empty():
		w.said = *e.Error
	case e.Response != nil && e.Response.Error != nil && !e.Response.Error.empty():
		w.said = *e.Response.Error
	case e.Type == "error":
		w.said = wireError{Code: e.Code}
		json.Unmarshal(e.Message, &w.said.Message) //nolint:errcheck // then there is no message
	}
}

// noteTyped reads what only events of some types have.
func (w *wire) noteTyped(e aside) {
	switch e.Type {
	case "message_start":
		var message struct {
			ID    string     `json:"id"`
			Usage *wireUsage `json:"usage"`
		}
		if passable(json.Unmarshal(e.Message, &message)) == nil {
			w.id = message.ID
			w.use(message.Usage)
		}
	case "response.refusal.delta":
		var text string
		if json.Unmarshal(e.Delta, &text) == nil {
			w.refuse(text)
		}
	}
}

// refuse adds to a refusal. Refusals are short, so it stops at a limit.
func (w *wire) refuse(text string) {
	if w.refusal.Len() < 16<<10 {
		w.refusal.WriteString(text)
	}
}

// clamp keeps a server's number in a range in which prices cannot overflow.
func clamp(tokens int64) int64 { return min(max(tokens, 0), 1e9) }

// use records the usage so far. Later numbers replace earlier ones; a missing number changes nothing.
func (w *wire) use(u *wireUsage) {
	if u == nil {
		return
	}
	set := func(to *int64, from *int64) {
		if from != nil {
			*to = clamp(*from)
		}
	}
	set(&w.usage.CacheWrite, u.CacheWrite)
	set(&w.usage.CacheRead, u.CacheRead)
	if u.PromptIn != nil {
		w.usage.CacheRead, w.usage.CacheWrite = clamp(u.PromptIn.Cached), clamp(u.PromptIn.CacheWrite)
	}
	if u.InputIn != nil {
		w.usage.CacheRead = clamp(u.InputIn.Cached)
	}
	set(&w.usage.Output, u.Output)
	set(&w.usage.Output, u.Completion)
	set(&w.usage.Input, u.Input)
	set(&w.usage.Input, u.Prompt)
	if u.Prompt != nil || u.Input != nil && w.endpoint.Dialect == Responses { // OpenAI's input includes the caches
		w.usage.Input = max(w.usage.Input-w.usage.CacheRead-w.usage.CacheWrite, 0)
	}
	if u.Cost != nil && w.endpoint.Provider == OpenRouter && *u.Cost >= 0 {
		w.cost, w.hasCost = min(*u.Cost, maxCost), true
	}
}

// price returns the cost of a call: the provider's figure, or else the price of its tokens. known is false if neither
// is known.
func (w *wire) price(model string, u Usage) (cost Money, known bool) {
	if w.hasCost {
		return Money(w.cost * float64(Dollar)), true
	}
	if price := Lookup(w.endpoint.Provider, model).Price; price != nil {
		return price.Of(u), true
	}
	return 0, false
}
