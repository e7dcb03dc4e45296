package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// botFile is a bot as a person edits it. Fields that the file lacks are nil and do not change.
type botFile struct {
	Handle       *string     `yaml:"handle,omitempty"`
	Name         *string     `yaml:"name,omitempty"`
	Instructions *string     `yaml:"instructions,omitempty"`
	Model        *string     `yaml:"model,omitempty"`
	Think        *string     `yaml:"think,omitempty"`
	Tools        *[]string   `yaml:"tools,omitempty"`
	Ask          *[]string   `yaml:"ask,omitempty"`
	Limits       *botLimits  `yaml:"limits,omitempty"`
	Policies     *[]botWaker `yaml:"policies,omitempty"`
}

// botLimits are the limits of a bot. A limit of 0 means the default.
type botLimits struct {
	TurnSteps    int32   `json:"turn_steps,omitempty" yaml:"turn_steps"`
	TurnTokens   int64   `json:"turn_tokens,omitempty" yaml:"turn_tokens"`
	TurnUSD      float64 `json:"turn_usd,omitempty" yaml:"turn_usd"`
	TurnMinutes  int32   `json:"turn_minutes,omitempty" yaml:"turn_minutes"`
	ThreadUSDDay float64 `json:"thread_usd_day,omitempty" yaml:"thread_usd_day"`
	// AnswerMinutes limits how long the bot waits for a person's answer.
	AnswerMinutes int32   `json:"answer_minutes,omitempty" yaml:"answer_minutes"`
	RunUSD        float64 `json:"run_usd,omitempty" yaml:"run_usd"`
	RunMinutes    int32   `json:"run_minutes,omitempty" yaml:"run_minutes"`
}

// botWaker is an activation policy of a bot.
type botWaker struct {
	ID      string         `yaml:"id,omitempty"`
	Name    string         `yaml:"name"`
	Trigger string         `yaml:"trigger"`
	Config  map[string]any `yaml:"config"`
	Tools   *[]string      `yaml:"tools"`
	Enabled *bool          `yaml:"enabled"`
}

func limitsOf(l *arbev1.BotLimits) botLimits {
	return botLimits{l.GetTurnSteps(), l.GetTurnTokens(), l.GetTurnUsd(), l.GetTurnMinutes(), l.GetThreadUsdDay(), l.GetAnswerMinutes(), l.GetRunUsd(), l.GetRunMinutes()}
}

func (l botLimits) message() *arbev1.BotLimits {
	return &arbev1.BotLimits{TurnSteps: l.TurnSteps, TurnTokens: l.TurnTokens, TurnUsd: l.TurnUSD, TurnMinutes: l.TurnMinutes, ThreadUsdDay: l.ThreadUSDDay, AnswerMinutes: l.AnswerMinutes,
		RunUsd: l.RunUSD, RunMinutes: l.RunMinutes}
}

func fileOf(b *arbev1.Bot) (botFile, error) {
	f := botFile{Handle: new(b.GetHandle()), Name: new(b.GetName()), Instructions: new(b.GetInstructions()), Model: new(b.GetModel()), Think: new(b.GetThink()),
		Tools: new(append([]string{}, b.GetTools()...)), Ask: new(append([]string{}, b.GetAsk()...)), Limits: new(limitsOf(b.GetLimits())), Policies: &[]botWaker{}}
	for _, p := range b.GetPolicies() {
		w := botWaker{ID: p.GetId(), Name: p.GetName(), Trigger: p.GetTrigger(), Config: map[string]any{},
			Tools: new(append([]string{}, p.GetToolIds()...)), Enabled: new(p.GetEnabled())}
		// Read it as YAML, a superset of JSON, so that whole numbers stay whole.
		if err := yaml.Unmarshal([]byte(p.GetConfig()), &w.Config); err != nil {
			return f, fault.Newf(fault.Internal, "edit it with another program", "the config of policy %s is not a JSON object", p.GetId()).Because(err)
		}
		*f.Policies = append(*f.Policies, w)
	}
	return f, nil
}

// tools returns the names of its tools as in the contract, or nil if the file does not name them.
func (w botWaker) tools() *arbev1.Names {
	if w.Tools == nil {
		return nil
	}
	return &arbev1.Names{Values: *w.Tools}
}

// config returns the policy's config as in the contract.
func (w botWaker) config() (string, error) {
	if w.Config == nil {
		return "{}", nil
	}
	text, err := json.Marshal(w.Config)
	if err != nil {
		return "", fault.Newf(fault.Invalid, "use only texts, numbers and lists", "policies: the config of %q cannot be sent", w.Name).Because(err)
	}
	return string(text), nil
}

// maxBotFile limits a bot's file. Instructions have at most 64 KiB.
const maxBotFile = 1 << 20

func readBot(from io.Reader, to *botFile) error {
	return readYAML(from, to, maxBotFile, "the bot", "arbe bot show shows what a bot looks like")
}

// text returns the file for an editor, with comments on the fields.
func (f botFile) text() ([]byte, error) {
	var doc yaml.Node
	if err := doc.Encode(f); err != nil {
		return nil, err
	}
	comment(&doc, map[string]string{
		"handle":       "people mention it as @handle",
		"instructions": "its instructions for each turn",
		"model":        "provider/model; empty is the default model of the house",
		"think":        "how hard the model thinks: " + entry.EffortWords + "; empty is the provider's default",
		"tools":        "of " + strings.Join(entry.Tools, ", "),
		"ask":          "tools for which it needs a person's approval",
		"limits":       "0 is the default",
		"policies":     "what wakes it; a policy without an id is added, and one that is left out is deleted; its tools limit those that the bot may use then, none for all",
		"trigger":      "mention, always or ambient",
	})
	var b bytes.Buffer
	b.WriteString("# A bot. Fields that you leave out do not change.\n")
	err := writeYAML(&b, &doc)
	return b.Bytes(), err
}
