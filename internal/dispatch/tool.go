package dispatch

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/turn"
)

// This file defines the bots' tools. tools.go lists them.

// On whose behalf a tool acts, in words for people. Every tool acts for its bot, and not for the person who asked the
// bot.
const (
	runsAsBot   = "The bot, in its own name. It works in the thread's sandbox, with the secrets and the network that the environment gives to every command."
	readsAsBot  = "The bot, as a member of the house: it reads what every member can read. It changes nothing."
	speaksAsBot = "The bot, in its own name, in any thread of the house. What it says may wake other bots, and what these do follows from the same message of a person."
)

// tool returns a tool whose arguments decode into A, and whose result is text.
func tool[A any](name, description, schema string, run func(context.Context, turn.Call, A) (string, error)) turn.Tool {
	return resultTool(name, description, schema, func(ctx context.Context, c turn.Call, a A) (turn.Result, error) {
		text, err := run(ctx, c, a)
		return turn.Result{Text: text}, err
	})
}

// resultTool returns a tool whose arguments decode into A.
func resultTool[A any](name, description, schema string, run func(context.Context, turn.Call, A) (turn.Result, error)) turn.Tool {
	return turn.Tool{
		Tool: model.Tool{Name: name, Description: strings.ReplaceAll(description, "\n", " "), Schema: json.RawMessage(schema)},
		Run: func(ctx context.Context, c turn.Call) (turn.Result, error) {
			var a A
			if err := json.Unmarshal(c.Arguments, &a); err != nil {
				return turn.Result{}, fault.New(fault.Invalid, "the arguments do not fit the tool", "see the tool's schema").Because(err)
			}
			return run(ctx, c, a)
		},
	}
}

// acts sets on whose behalf a tool acts.
func acts(behalf string, t turn.Tool) turn.Tool {
	t.Behalf = behalf
	return t
}

// listing marks a tool that shows other people's texts.
func listing(t turn.Tool) turn.Tool {
	t.Lists = true
	return acts(readsAsBot, t)
}
