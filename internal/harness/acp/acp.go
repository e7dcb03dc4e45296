// Package acp is the harness of coding agents that speak the Agent Client Protocol (version 1): JSON-RPC, a message a line, on
// their standard input and output. It is for agents that have no harness of their own.
//
// Each agent is one profile: its program, its configuration, what it can do. Everything else is the protocol, and so is what all of
// them lack: the protocol has no word for failure, so that who passes the agent's model calls on must say how they ended
// ([harness.Info.Witness]); it has no usage, no retries and no summaries, and takes no history. A conversation without the agent's own
// files is given as text, in front of the prompt (told.go).
//
// Nothing is offered to agents: no files, no terminals. They have their own.
package acp

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Harness is an agent that speaks the protocol.
type Harness struct{ profile profile }

// profile is what differs between agents.
type profile struct {
	// name is the runtime's name in entries, bots and paths.
	name, title, version string
	dialects             []harness.Dialect
	install              harness.Install
	// steer: a prompt that comes while it works is part of that work. asks: it asks before it uses what its configuration names.
	steer, asks bool
	// lacks says what else than all agents of the protocol it cannot do.
	lacks string
	// start returns how to start it, without input.
	start func(harness.Job) (harness.Start, error)
}

// lacks is what no agent can do over the protocol.
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

// Start starts the agent. Its reader gives it the prompt, once it has a session.
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

// own are the tools of an agent that do what a tool of arbe's does.
type own map[string][]string

// of returns the agent's tools for some of arbe's.
func (o own) of(names []string) (tools []string) {
	for _, name := range names {
		tools = append(tools, o[name]...)
	}
	return tools
}

type object map[string]any

// text returns the JSON of what has no other values than strings, numbers and JSON.
func text(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("{}") // an agent's JSON that is none was refused before
	}
	return out
}

// Rebuild writes the conversation for the agent to read. There is no session: the agent begins one, and is told the conversation.
func (h Harness) Rebuild(job harness.Job, messages []entry.PiMessage) ([]harness.File, string, error) {
	whole, short := conversation(messages)
	file := path.Join(job.Session, conversationFile)
	return []harness.File{{Path: conversationFile, Content: whole}}, told + introduce(short, file, len(short) < len(whole)), nil
}
