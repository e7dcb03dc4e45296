// Package acp is the harness of coding agents that speak the Agent Client Protocol (version 1): JSON-RPC, one message per
// line, on their standard input and output. It is for agents without a harness of their own.
//
// Each agent is one profile: its program, its configuration, its abilities. The rest is the protocol, which has gaps that all
// these agents share. It cannot express failure, so whoever forwards the agent's model calls must say how they ended
// ([harness.Info.Witness]). It has no usage, retries or summaries, and accepts no history: a conversation that the agent has
// no files of is given as text, before the prompt (told.go).
//
// Agents are offered no files or terminals. They have their own.
package acp

import (
	"path"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Harness is an agent that speaks the protocol.
type Harness struct{ profile profile }

// profile describes how one agent differs from the others.
type profile struct {
	// name is the runtime's name in entries, bots and paths.
	name, title, version string
	dialects             []harness.Dialect
	install              harness.Install
	// steer means that a prompt sent while it works joins that work. asks means that it asks before it uses the tools that
	// its configuration names.
	steer, asks bool
	// tools are its names of the tools that need approval, if it also asks about calls that need none. It does not announce a
	// call that it asks about.
	tools own
	// toolOf returns the name of a call's tool from the call's id; nil if the title or the kind is the name.
	toolOf func(id string) string
	// repeatsLate means that it repeats the conversation of a session that it loads after it has said that it loaded it.
	repeatsLate bool
	// headsThoughts means that each piece of its thinking is a thought with a heading, which may be empty.
	headsThoughts bool
	// lacks describes what it cannot do, beyond the limits of the protocol.
	lacks string
	// start returns how to start it, except for the input.
	start func(harness.Job) (harness.Start, error)
}

// lacks describes what no agent can do over this protocol.
const lacks = "it cannot say whether it failed, so its run is judged by how its last model call ended; what it waits for, and summaries that it makes, are " +
	"not shown; in a new sandbox, or after a run that did not complete, it reads the conversation as text, without the middle of a long one"

// Info describes the agent.
func (h Harness) Info() harness.Info {
	p := h.profile
	limits := lacks
	if p.lacks != "" {
		limits += "; " + p.lacks
	}
	return harness.Info{Name: p.name, Title: p.title, Version: p.version, Dialects: p.dialects, Steer: p.steer, Interrupt: true, Asks: p.asks, SameBox: true,
		FreshBox: true, Witness: true, Limits: limits}
}

// Install installs the agent.
func (h Harness) Install() harness.Install { return h.profile.install }

// firstID is the id of the first request, which Start sends.
const firstID = 1

// Start starts the agent. The reader sends the prompt once there is a session.
func (h Harness) Start(job harness.Job, session, prompt string) (harness.Start, error) {
	if strings.TrimSpace(prompt) == "" {
		return harness.Start{}, harness.ErrNoPrompt
	}
	s, err := h.profile.start(job)
	if err != nil {
		return s, err
	}
	if job.Instructions != "" {
		s.Files = append(s.Files, harness.File{Path: instructions, Content: []byte(job.Instructions)})
	}
	if !strings.HasPrefix(session, told) {
		s.Session = session
	}
	s.Input, s.Open = request(firstID, "initialize", object{"protocolVersion": version, "clientInfo": object{"name": "arbe", "version": "1"},
		"clientCapabilities": object{"fs": object{"readTextFile": false, "writeTextFile": false}, "terminal": false}}), true
	return s, nil
}

// instructions is the file with the bot's instructions, in the session's directory.
const instructions = "instructions.md"

// own maps arbe's tools to an agent's own tools that do the same.
type own map[string][]string

// of returns the agent's tools that correspond to some of arbe's.
func (o own) of(names []string) (tools []string) {
	for _, name := range names {
		tools = append(tools, o[name]...)
	}
	return tools
}

// Rebuild writes the conversation for the agent to read. There is no session to continue: the agent begins one and is told
// the conversation.
func (h Harness) Rebuild(job harness.Job, messages []entry.PiMessage) ([]harness.File, string, error) {
	whole, short := conversation(messages)
	file := path.Join(job.Session, conversationFile)
	return []harness.File{{Path: conversationFile, Content: whole}}, told + introduce(short, file, len(short) < len(whole)), nil
}
