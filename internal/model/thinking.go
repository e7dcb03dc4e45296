package model

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
)

// This file sets how hard models think, and returns a model's own earlier thinking to it, with the provider's proof.

// budgets are the efforts as numbers of tokens, for models that want a number.
var budgets = map[entry.Effort]int64{entry.EffortOff: 0, entry.EffortLow: 2048, entry.EffortMedium: 8192, entry.EffortHigh: 24576}

// leastBudget is the least that Anthropic accepts.
const leastBudget = 1024

// ThinkingRoom returns how many tokens an answer may need for thinking with this effort, besides its text.
func ThinkingRoom(e entry.Effort) int64 { return budgets[e] }

// NoteOn returns a note for people who set this effort for a model; empty if the model follows it.
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

// stops reports whether a thinking model can be told not to think.
func stops(p Provider, levels []string) bool {
	return p == Anthropic || p == OpenRouter || slices.Contains(levels, "none")
}

// nearest returns the model's level for a requested effort: that one or the next higher, and for no thinking the lowest
// one.
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

// Thinks reports whether a model thinks before it answers. If it is not in the catalog, its id decides.
func Thinks(p Provider, id string) bool {
	info := Lookup(p, id)
	return info.Thinks || !info.Known && responsesThinks(id)
}

// thinking returns how hard a model is told to think. limit is the largest number of tokens of the answer; 0 if
// unknown.
func (r Request) thinking(e Endpoint, id string, info Info, effort entry.Effort, limit int64) thinking {
	t := thinking{known: info.Known, thinks: info.Thinks}
	if !info.Thinks && info.Known || effort == entry.EffortDefault {
		return t
	}
	t.asked, t.level, t.budget = effort, nearest(effort, info.levels), budgets[effort]
	if limit > 0 {
		t.budget = min(t.budget, limit/2) // leave tokens for the answer
	}
	t.leveled, t.adapts = len(info.levels) > 0, slices.Contains(info.levels, "max")
	t.begins = r.mayThink(e, id)
	return t
}

// reasons reports whether an id belongs to one of OpenAI's thinking models, wherever it is served.
func reasons(id string) bool {
	for _, family := range []string{"o1", "o3", "o4", "oss"} {
		if strings.HasPrefix(id, family) || strings.Contains(id, "-"+family) {
			return true
		}
	}
	return strings.Contains(strings.ToLower(id), "gpt-5")
}

// responsesThinks reports whether a model has options for thinking.
func responsesThinks(id string) bool {
	return (reasons(id) || strings.Contains(id, "codex-") || strings.Contains(id, "computer-use")) &&
		!strings.Contains(strings.ToLower(id), "gpt-5-chat")
}

// hidesThinking reports whether a model shows its thinking only on request: Claude Opus from 4.7, and the preview of
// Mythos.
func hidesThinking(id string) bool {
	id = strings.ToLower(id)
	_, rest, _ := strings.Cut(id, "claude-opus-4-")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	minor, err := strconv.Atoi(rest[:digits])
	return err == nil && digits <= 2 && minor >= 7 || strings.Contains(id, "claude-mythos-preview")
}

// mayThink reports whether a model with a budget may think in its next step. Between tool calls, Anthropic demands that
// the previous step began with thinking. It did not if another model wrote it, or if thinking was turned on since.
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

// thoughtBy reports whether this model gave an answer, so that it may read its thinking.
func thoughtBy(a entry.PiAssistant, e Endpoint, id string) bool {
	return a.Provider == e.Name && a.Model == id && a.API == string(e.Dialect)
}

// reasoningItem is thinking in the dialect responses: an item of an answer, and of later requests.
// [entry.PiBlock].ThinkingSignature holds it without its summary, which is the block's text.
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

// signature returns the item in its stored form; empty if nothing of it could be sent back.
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

// readReasoning returns the item of a block whose signature is from signature.
func readReasoning(b entry.PiBlock) (i reasoningItem, ok bool) {
	if json.Unmarshal([]byte(b.ThinkingSignature), &i) != nil || i.Type != "reasoning" || i.EncryptedContent == "" {
		return i, false
	}
	i.Summary = []reasoningSummary{} // not null, which providers refuse
	if b.Thinking != "" {
		i.Summary = []reasoningSummary{{"summary_text", b.Thinking}}
	}
	return i, true
}
