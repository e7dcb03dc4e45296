package entry

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// The entries in this file record changes of a house's bots, as those in member.go record changes of its people. The removal
// of a bot is a [MemberRemoved].

// BotCreated records that its author created a bot.
type BotCreated struct {
	AgentID string `json:"agent_id"`
	// Handle is how people mention it, without the @.
	Handle string `json:"handle"`
	Name   string `json:"name"`
	// By is the author's name.
	By string `json:"by"`
}

func (BotCreated) Type() string { return "signal.house.bot_created" }

func (b BotCreated) Validate() error { return needsAgent(b.AgentID) }

// Plain returns a sentence: "Ada created the bot @reviewer".
func (b BotCreated) Plain() string { return b.By + " created the bot @" + b.Handle }

// BotChanged records that its author changed a bot or what wakes it.
type BotChanged struct {
	AgentID string `json:"agent_id"`
	// Handle and Name are the bot's after the change.
	Handle string `json:"handle"`
	Name   string `json:"name"`
	// Changed names what was changed: "instructions", "model". It omits the values, because instructions are long.
	Changed []string `json:"changed"`
	// By is the author's name.
	By string `json:"by"`
}

func (BotChanged) Type() string { return "signal.house.bot_changed" }

func (b BotChanged) Validate() error {
	if err := needsAgent(b.AgentID); err != nil {
		return err
	}
	if len(b.Changed) == 0 {
		return fault.New(fault.Invalid, "changed: it is empty", "say what was changed")
	}
	return nil
}

// Plain returns a sentence: "Ada changed the bot @reviewer: model, tools".
func (b BotChanged) Plain() string {
	return b.By + " changed the bot @" + b.Handle + ": " + strings.Join(b.Changed, ", ")
}
