package model

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"charm.land/fantasy"
	"charm.land/fantasy/providers/anthropic"
	"charm.land/fantasy/providers/google"
	"charm.land/fantasy/providers/openai"
	"charm.land/fantasy/providers/openaicompat"
	"charm.land/fantasy/providers/openrouter"

	"github.com/arbe-dev/arbe/internal/entry"
)

// This file has how hard models think, and how a model gets back what it thought: its own only, with the provider's proof.

// budgets are the efforts as numbers of tokens, for models that want a number.
var budgets = map[entry.Effort]int64{entry.EffortOff: 0, entry.EffortLow: 2048, entry.EffortMedium: 8192, entry.EffortHigh: 24576}

// leastBudget is the least that Anthropic takes.
const leastBudget = 1024

// ThinkingRoom is how many tokens an answer may need for thinking with this effort, besides what it says.
func ThinkingRoom(e entry.Effort) int64 { return budgets[e] }

// NoteOn says what people should know who set this effort for a model; empty if the model does as they want.
func NoteOn(p Provider, id string, e entry.Effort) string {
	info := Lookup(p, id)
	name := Ref{string(p), id}.String()
	switch {
	case e == entry.EffortDefault || !info.Known:
		return ""
	case !info.Thinks && e != entry.EffortOff:
		return name + " cannot think, so the effort changes nothing"
	case e == entry.EffortOff && info.Thinks && !stops(p, info.levels):
		return name + " cannot stop thinking; it thinks as little as it can"
	}
	return ""
}

// stops reports whether a model that thinks can be told not to.
func stops(p Provider, levels []string) bool {
	return p == Anthropic || p == OpenRouter || slices.Contains(levels, "none")
}

// nearest returns the level that a model has for the effort that is asked for: that one or the next higher, and for no
// thinking the lowest one.
func nearest(asked entry.Effort, has []string) string {
	all := []string{"none", "minimal", "low", "medium", "high"}
	if asked != entry.EffortOff {
		all = all[slices.Index(all, string(asked)):]
	}
	for _, level := range all {
		if len(has) == 0 || slices.Contains(has, level) {
			return level
		}
	}
	return has[len(has)-1]
}

// thinking returns the options with which a provider lets its models think, and shows what they thought. limit is the most
// tokens that the answer may have; 0 if that is not known.
func (r Request) thinking(e Endpoint, id string, info Info, effort entry.Effort, limit int64) fantasy.ProviderOptions {
	thinks := info.Thinks || !info.Known
	if e.Dialect == Responses {
		o := &openai.ResponsesProviderOptions{}
		if info.Thinks || !info.Known && openai.IsResponsesReasoningModel(id) {
			// Nothing is stored there, so that what it thinks comes along, encrypted. Other models refuse this.
			o.Include = []openai.IncludeType{openai.IncludeReasoningEncryptedContent}
		}
		if thinks && effort != entry.EffortDefault {
			o.ReasoningEffort, o.ReasoningSummary = new(openai.ReasoningEffort(nearest(effort, info.levels))), new("auto")
		}
		return fantasy.ProviderOptions{openai.Name: o}
	}
	if !thinks || effort == entry.EffortDefault {
		return nil
	}
	level, budget := nearest(effort, info.levels), budgets[effort]
	if limit > 0 {
		budget = min(budget, limit/2) // there must be room for the answer
	}
	switch {
	case e.Dialect == Messages && effort == entry.EffortOff:
		return nil // it thinks only if it is told to
	case e.Dialect == Messages && slices.Contains(info.levels, "max"): // those that have it choose their budget themselves
		return fantasy.ProviderOptions{anthropic.Name: &anthropic.ProviderOptions{Effort: new(anthropic.Effort(level))}}
	case e.Dialect == Messages:
		if budget < leastBudget || !r.mayThink(e, id) {
			return nil
		}
		return fantasy.ProviderOptions{anthropic.Name: &anthropic.ProviderOptions{Thinking: &anthropic.ThinkingProviderOption{BudgetTokens: budget}}}
	case e.Dialect == Gemini:
		config := &google.ThinkingConfig{IncludeThoughts: new(effort != entry.EffortOff)}
		if len(info.levels) == 0 && strings.HasPrefix(id, "gemini-2") {
			config.ThinkingBudget = &budget
		} else {
			config.ThinkingLevel = new(strings.ToUpper(cmp.Or(level, "low")))
		}
		return fantasy.ProviderOptions{google.Name: &google.ProviderOptions{ThinkingConfig: config}}
	case e.Provider == OpenRouter && effort == entry.EffortOff:
		return fantasy.ProviderOptions{openrouter.Name: &openrouter.ProviderOptions{Reasoning: &openrouter.ReasoningOptions{Enabled: new(false)}}}
	case e.Provider == OpenRouter:
		return fantasy.ProviderOptions{openrouter.Name: &openrouter.ProviderOptions{Reasoning: &openrouter.ReasoningOptions{Effort: new(openrouter.ReasoningEffort(level))}}}
	}
	return fantasy.ProviderOptions{openaicompat.Name: &openaicompat.ProviderOptions{ReasoningEffort: new(openai.ReasoningEffort(level))}}
}

// mayThink reports whether a model with a budget may think in its next step. Between the calls of tools Anthropic demands that
// the step before began with thinking, which it did not if another model made it, or if it was told to think only since.
func (r Request) mayThink(e Endpoint, id string) bool {
	for _, m := range slices.Backward(r.Messages) {
		switch m := m.(type) {
		case entry.PiUser:
			return true
		case entry.PiAssistant:
			if len(m.Calls()) == 0 || m.StopReason == entry.PiError || m.StopReason == entry.PiAborted {
				return true
			}
			first := m.Content[0]
			return thoughtBy(m, e, id) && first.Type == entry.PiThinkingBlock && first.ThinkingSignature != ""
		}
	}
	return true
}

// thoughtBy reports whether it was this model that gave an answer, so that it may read what it thought.
func thoughtBy(a entry.PiAssistant, e Endpoint, id string) bool {
	return a.Provider == e.Name && a.Model == id && a.API == string(e.Dialect)
}

// thought translates thinking for the model that thought it; nil if it is not sent.
func (t translator) thought(b entry.PiBlock) fantasy.MessagePart {
	part := fantasy.ReasoningPart{Text: b.Thinking}
	switch t.endpoint.Dialect {
	case Messages:
		if b.ThinkingSignature == "" {
			return nil
		}
		meta := &anthropic.ReasoningOptionMetadata{Signature: b.ThinkingSignature}
		if b.Redacted {
			meta = &anthropic.ReasoningOptionMetadata{RedactedData: b.ThinkingSignature}
		}
		part.ProviderOptions = fantasy.ProviderOptions{anthropic.Name: meta}
	case Gemini:
		signature, err := base64.StdEncoding.DecodeString(b.ThinkingSignature)
		if err != nil || len(signature) == 0 {
			return nil
		}
		part.ProviderOptions = fantasy.ProviderOptions{google.Name: &google.ReasoningMetadata{Signature: string(signature)}}
	case Responses:
		item, ok := readReasoning(b.ThinkingSignature)
		if !ok {
			return nil
		}
		if b.Thinking != "" {
			item.Summary = []reasoningSummary{{"summary_text", b.Thinking}}
		}
		return t.sealed.add(item)
	default:
		if t.endpoint.Provider == OpenRouter || b.Thinking == "" {
			return nil
		}
	}
	return part
}

// reasoningItem is what a model of the dialect responses thought: an item of an answer, and of later requests. As
// [entry.PiBlock].ThinkingSignature it is written without its summary, which is the block's text.
type reasoningItem struct {
	Type             string             `json:"type"`
	ID               string             `json:"id,omitempty"`
	Summary          []reasoningSummary `json:"summary"`
	EncryptedContent string             `json:"encrypted_content"`
}

type reasoningSummary struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// signature returns the item as it is stored; empty if it has nothing that could be sent back.
func (i reasoningItem) signature() string {
	if i.EncryptedContent == "" || len(i.ID) > maxID {
		return ""
	}
	text, err := json.Marshal(reasoningItem{"reasoning", i.ID, []reasoningSummary{}, i.EncryptedContent})
	if err != nil {
		return "" // cannot happen for strings
	}
	return string(text)
}

// readReasoning reads what signature wrote.
func readReasoning(signature string) (i reasoningItem, ok bool) {
	if json.Unmarshal([]byte(signature), &i) != nil || i.Type != "reasoning" || i.EncryptedContent == "" {
		return i, false
	}
	i.Summary = []reasoningSummary{} // not null, which is refused
	return i, true
}

// sealedThoughts are the parts of a request that fantasy leaves out. A call of a tool stands for each, whose id nobody can
// guess; the wire puts the part in its place.
type sealedThoughts struct {
	prefix string
	items  []json.RawMessage
}

func newSealedThoughts() *sealedThoughts { return &sealedThoughts{prefix: "sealed" + rand.Text()} }

// add returns what stands for an item.
func (s *sealedThoughts) add(item any) fantasy.MessagePart {
	text, err := marshal(item)
	if err != nil {
		return nil // cannot happen for strings
	}
	s.items = append(s.items, text)
	return fantasy.ToolCallPart{ToolCallID: s.prefix + strconv.Itoa(len(s.items)-1), ToolName: "sealed", Input: "{}"}
}

// find returns the item for which an id stands; nil if it stands for none.
func (s *sealedThoughts) find(id string) json.RawMessage {
	rest, ok := strings.CutPrefix(id, s.prefix)
	if at, err := strconv.Atoi(rest); ok && err == nil && at >= 0 && at < len(s.items) {
		return s.items[at]
	}
	return nil
}

// has reports whether a part stands for an item.
func (s *sealedThoughts) has(part fantasy.MessagePart) bool {
	call, isCall := part.(fantasy.ToolCallPart)
	return isCall && s.find(call.ToolCallID) != nil
}

// unseal puts the items of a request in their places.
func (s *sealedThoughts) unseal(r *http.Request) error {
	if s == nil || len(s.items) == 0 || r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close() //nolint:errcheck // it is in memory
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	var input []json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	if err := json.Unmarshal(fields["input"], &input); err != nil {
		return err
	}
	for i, text := range input {
		var item struct {
			CallID string `json:"call_id"`
		}
		if !bytes.Contains(text, []byte(s.prefix)) || json.Unmarshal(text, &item) != nil {
			continue
		}
		if sealed := s.find(item.CallID); sealed != nil {
			input[i] = sealed
		}
	}
	if fields["input"], err = marshal(input); err != nil {
		return err
	}
	if body, err = marshal(fields); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return nil
}

// marshal writes JSON in which < and & stay as they are, as the libraries write it.
func marshal(v any) (json.RawMessage, error) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	err := to.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}
