package dispatch

import (
	"context"
	"slices"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/turn"
)

// Tools returns the tools that a bot of the scope's house can have, or those of every bot of the house if bot is empty.
// Today all bots can have the same tools. A tool acts for its bot, and sees everything in the bot's house.
func (d *Dispatcher) Tools(_ context.Context, _ db.Scope, _ string) ([]turn.Tool, error) {
	return d.tools, nil
}

// newTools returns the tools of this package.
func (d *Dispatcher) newTools() []turn.Tool {
	return slices.Concat(d.commandTools(), d.fileTools(), []turn.Tool{
		listing(tool(entry.ReadThreadTool, readThreadAbout, readThreadSchema, d.readForBot)),
		acts(readsAsBot, resultTool(entry.ReadArtifactTool, readArtifactAbout, readArtifactSchema, d.readArtifactForBot)),
	}, d.threadTools(), d.delegateTools(), newFetcher(d.config.Fetch).tools())
}
