package bot

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/etag"
	"github.com/arbe-dev/arbe/internal/fault"
)

// The triggers that this version knows.
const (
	// Mention: a text mentions the bot, or a person replies to it, or speaks where it answers without being mentioned.
	Mention = "mention"
	// Always: everything that is said, after the policy's cooldown.
	Always = "always"
	// Ambient: everything that is said, once people have been silent for a while, if a model finds it relevant.
	Ambient = "ambient"
)

const (
	// MaxPolicies limits the policies of a bot, and MaxScope the threads that one policy may name.
	MaxPolicies = 50
	MaxScope    = 200
	// maxConfig limits a config, in bytes.
	maxConfig = 64 << 10
	// maxWait is the longest delay or cooldown of a policy.
	maxWait = 24 * time.Hour
	// maxAmbientInstructions limits the instructions of an ambient policy, in bytes.
	maxAmbientInstructions = 8 << 10
)

// Policy is an activation policy (seed 004): something that wakes a bot.
type Policy struct {
	// ID is empty for a policy that is not stored yet. Bot is the id of the bot that owns it.
	ID, Bot string
	// Name is for people.
	Name string
	// Trigger is [Mention], [Always] or [Ambient]. A policy of another version may have another trigger, which is ignored.
	Trigger string
	// Config is a JSON object with the trigger's settings; see [Settings].
	Config json.RawMessage
	// Resources are the ids of the resources it concerns. This version only stores them.
	Resources []string
	// Tools restricts the bot's tools in turns that the policy begins; empty for no restriction.
	Tools                []string
	Enabled              bool
	CreatedAt, UpdatedAt time.Time
}

// Settings is the config of a policy with a known trigger.
type Settings struct {
	// Scope lists the ids of the threads in which it applies; empty for every thread of the house.
	Scope []string `json:"scope_ids,omitempty"`
	// Direct restricts it to direct messages to the bot. Only [Always] has it.
	Direct bool `json:"direct,omitempty"`
	// DelayMS is how long people must have been silent, in milliseconds. Only [Ambient] has it, and it is required there.
	DelayMS int64 `json:"delay_ms,omitempty"`
	// CooldownMS is how long after its last turn in a thread the bot stays silent there, in milliseconds. [Mention] has none.
	CooldownMS int64 `json:"cooldown_ms,omitempty"`
	// Instructions tell the model what is relevant. Only [Ambient] has them.
	Instructions string `json:"instructions,omitempty"`
}

// Known reports whether this version understands the policy's trigger.
func (p Policy) Known() bool {
	return p.Trigger == Mention || p.Trigger == Always || p.Trigger == Ambient
}

// Settings returns the config. A policy with an unknown trigger has the zero Settings.
func (p Policy) Settings() (Settings, error) {
	var s Settings
	if !p.Known() || len(p.Config) == 0 {
		return s, nil
	}
	d := json.NewDecoder(bytes.NewReader(p.Config))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Settings{}, fault.Newf(fault.Invalid, "use scope_ids, and for always direct and cooldown_ms, for ambient delay_ms, cooldown_ms and instructions",
			"config: it does not fit the trigger %s", p.Trigger).Because(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Settings{}, fault.New(fault.Invalid, "config: it is more than one JSON object", "send one JSON object")
	}
	return s, nil
}

// newPolicies returns the policies of a new bot.
var newPolicies = []Policy{
	{Name: "mentions", Trigger: Mention, Config: json.RawMessage(`{}`), Enabled: true},
	{Name: "direct messages", Trigger: Always, Config: json.RawMessage(`{"direct": true}`), Enabled: true},
}

// clean validates and normalizes a policy.
func (p *Policy) clean() (err error) {
	p.Trigger = strings.TrimSpace(p.Trigger)
	if p.Name, err = entry.Name("name", p.Name, MaxName); err != nil {
		return err
	}
	if p.Name == "" {
		p.Name = p.Trigger
	}
	if len(p.Config) == 0 {
		p.Config = json.RawMessage(`{}`)
	}
	switch {
	case p.Trigger == "" || len(p.Trigger) > 60 || strings.Trim(p.Trigger, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return fault.New(fault.Invalid, "trigger: it must be a word in lowercase letters", "use mention, always or ambient")
	case len(p.Config) > maxConfig:
		return fault.Newf(fault.Invalid, "shorten it", "config: at most %d KiB", maxConfig>>10)
	case !utf8.Valid(p.Config) || !json.Valid(p.Config) || !bytes.HasPrefix(bytes.TrimSpace(p.Config), []byte("{")):
		return fault.New(fault.Invalid, "config: it is not a JSON object", `send one, such as {"scope_ids": ["…"]}`)
	case bytes.Contains(p.Config, []byte(`\u0000`)):
		return fault.New(fault.Invalid, `config: it has the character \u0000`, "leave it out")
	}
	if err := cleanIDs("resource_ids", p.Resources); err != nil {
		return err
	}
	if p.Tools, err = CleanTools("tool_ids", p.Tools); err != nil {
		return err
	}
	p.Resources = append([]string{}, p.Resources...) // the database would store nil as null
	s, err := p.Settings()
	if err != nil {
		return err
	}
	return s.validate(p.Trigger)
}

// checkTrigger refuses a trigger that this version does not know, because the policy would never wake the bot.
func checkTrigger(trigger string) error {
	if p := (Policy{Trigger: strings.TrimSpace(trigger)}); !p.Known() {
		return fault.Newf(fault.Invalid, "use mention, always or ambient", "trigger: there is no trigger %.60q", trigger)
	}
	return nil
}

func cleanIDs(field string, ids []string) error {
	if len(ids) > MaxScope {
		return fault.Newf(fault.Invalid, "name fewer", "%s: at most %d", field, MaxScope)
	}
	if slices.ContainsFunc(ids, func(id string) bool { return id == "" || len(id) > 64 || strings.Trim(id, idLetters) != "" }) {
		return fault.Newf(fault.Invalid, "use ids as lists show them", "%s: one of them is not an id", field)
	}
	return nil
}

const idLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"

// validate checks that settings have only fields that their trigger uses.
func (s Settings) validate(trigger string) error {
	if err := cleanIDs("config.scope_ids", s.Scope); err != nil {
		return err
	}
	most := maxWait.Milliseconds()
	switch {
	case s.DelayMS < 0 || s.DelayMS > most:
		return fault.Newf(fault.Invalid, "give milliseconds", "config.delay_ms: it must be from 0 to %d", most)
	case s.CooldownMS < 0 || s.CooldownMS > most:
		return fault.Newf(fault.Invalid, "give milliseconds", "config.cooldown_ms: it must be from 0 to %d", most)
	case trigger == Mention && s.CooldownMS > 0:
		return fault.New(fault.Invalid, "config.cooldown_ms: a mention is always answered", "leave it out")
	case trigger != Always && s.Direct:
		return fault.New(fault.Invalid, "config.direct: only the trigger always has it", "leave it out")
	case trigger != Ambient && s.DelayMS > 0:
		return fault.New(fault.Invalid, "config.delay_ms: only the trigger ambient has it", "leave it out")
	case trigger != Ambient && s.Instructions != "":
		return fault.New(fault.Invalid, "config.instructions: only the trigger ambient has them", "leave them out")
	case trigger == Ambient && s.DelayMS == 0:
		return fault.New(fault.Invalid, "config.delay_ms: it is missing", "say for how many milliseconds people must be silent, such as 30000")
	case len(s.Instructions) > maxAmbientInstructions:
		return fault.Newf(fault.Invalid, "shorten them", "config.instructions: at most %d KiB", maxAmbientInstructions>>10)
	}
	return nil
}

// PolicyChange describes a change of a policy. Nil fields are left unchanged.
type PolicyChange struct {
	Name, Trigger    *string
	Config           json.RawMessage
	Resources, Tools *[]string
	Enabled          *bool
	// ETag is the version that the change was made for; empty changes any version.
	ETag string
}

// apply returns the policy after a change.
func (p Policy) apply(c PolicyChange) Policy {
	set(&p.Name, c.Name)
	set(&p.Trigger, c.Trigger)
	set(&p.Resources, c.Resources)
	set(&p.Tools, c.Tools)
	set(&p.Enabled, c.Enabled)
	if c.Config != nil {
		p.Config = c.Config
	}
	return p
}

// ETag names the version of what [Bots.EditPolicy] changes.
func (p Policy) ETag() string {
	return etag.Of(p.Name, p.Trigger, p.Config, p.Resources, p.Tools, p.Enabled)
}

// same reports whether two states of a policy are equal in everything that people change.
func (p Policy) same(q Policy) bool {
	return p.Name == q.Name && p.Trigger == q.Trigger && bytes.Equal(p.Config, q.Config) && p.Enabled == q.Enabled &&
		slices.Equal(p.Resources, q.Resources) && slices.Equal(p.Tools, q.Tools)
}

func policyFromRow(r query.ActivationPolicy) Policy {
	return Policy{ID: r.ID, Bot: r.AgentID, Name: r.Name, Trigger: r.Trigger, Config: r.Config, Resources: r.ResourceIds, Tools: r.ToolIds,
		Enabled: r.Enabled, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
}
