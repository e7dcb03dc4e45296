package acp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Read reads the agent's messages.
func (h Harness) Read(job harness.Job, session, prompt string) harness.Reader {
	r := &reader{profile: h.profile, job: job, session: session, next: firstID + 1, waiting: map[int64]string{firstID: "initialize"},
		calls: map[string]*call{}, asks: map[string]asking{}}
	if text, isTold := strings.CutPrefix(session, told); isTold {
		r.session, prompt = "", text+prompt
	}
	r.prompts = []string{prompt}
	return r
}

// Limits on what is remembered of an untrusted agent.
const (
	maxAsks, maxOptions = 20, 20
	// maxHeld limits what is remembered of calls without a result, in bytes.
	maxHeld = 16 << 20
)

type reader struct {
	profile profile
	job     harness.Job
	tally   harness.Tally
	session string
	// waiting holds the methods of our unanswered requests, by id.
	waiting map[int64]string
	next    int64
	// prompts are to be sent once the agent has finished its current work, and working counts those it is working on.
	prompts []string
	working int
	// begun reports that the session exists. Updates before that repeat its earlier conversation, and repeated reports that
	// there was one since the last request.
	begun, repeated bool

	// now is the current answer, and part the mark of its last block.
	now   []entry.PiBlock
	part  string
	room  harness.Room
	calls map[string]*call
	asks  map[string]asking
	// failed is the reason why it failed. done reports that it has answered its prompts, and stopped that it was interrupted.
	failed  string
	done    bool
	stopped bool
}

// asking is a question that waits for its answer.
type asking struct {
	permission
	id json.RawMessage
}

// Line reads a message.
func (r *reader) Line(text []byte, cut int64) []harness.Event {
	if cut > 0 {
		return r.long(text, cut)
	}
	var m message
	if json.Unmarshal(text, &m) != nil {
		return nil // not part of the protocol
	}
	switch {
	case m.Method == "session/update":
		return r.update(m.Params)
	case m.Method == "session/request_permission" && isID(m.ID):
		return r.ask(m.ID, m.Params)
	case m.Method != "" && isID(m.ID): // it would wait forever
		return inputs(refuse(m.ID, noMethod, "this client does not have "+entry.OneLine(m.Method, 60)+"; use tools of your own"))
	case m.Method != "":
		return nil
	}
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	method, ours := r.waiting[id]
	if err != nil || !ours {
		return nil
	}
	delete(r.waiting, id)
	return r.answered(method, m)
}

func inputs(input []byte) []harness.Event { return []harness.Event{{Input: input}} }

// long handles a message that is too long to decode, so that nothing keeps waiting for it.
func (r *reader) long(text []byte, cut int64) []harness.Event {
	if m := headOf.FindSubmatch(text[:min(len(text), 1<<10)]); m != nil {
		if len(m[2]) > 0 {
			return inputs(refuse(m[1], badParams, "this is too long"))
		}
		return r.Line(send(object{"id": json.RawMessage(m[1]), "error": object{"code": badParams, "message": "the agent's answer is too long"}}), 0)
	}
	result, ok := harness.LongResult(r.profile.name, text, cut)
	if !ok {
		return nil
	}
	c, open := r.calls[result.ToolCallID]
	if !open {
		return nil
	}
	events := r.tell(c)
	delete(r.calls, result.ToolCallID)
	result.ToolName = c.name
	return append(events, harness.Event{Message: result}, harness.Event{ToolDone: true})
}

// call sends one of our requests.
func (r *reader) call(method string, params any) []byte {
	id := r.next
	r.next++
	r.waiting[id] = method
	return request(id, method, params)
}

// answered reads the answer to one of our requests.
func (r *reader) answered(method string, m message) []harness.Event {
	switch method {
	case "session/prompt":
		return r.ended(m)
	case settled: // with an error, because agents do not have the method
		return r.loaded()
	}
	if m.Error != nil {
		return r.fail(method + ": " + m.Error.String())
	}
	switch method {
	case "initialize":
		return r.initialized(m)
	case "session/new":
		var result struct {
			Session string `json:"sessionId"`
		}
		if json.Unmarshal(m.Result, &result) != nil || result.Session == "" || len(result.Session) > 200 || strings.HasPrefix(result.Session, told) {
			return r.fail("the agent began no session")
		}
		r.session = result.Session
	case "session/load":
		if r.profile.repeatsLate {
			r.repeated = true
			return r.loaded()
		}
	}
	return r.ready()
}

// initialized begins or loads the session.
func (r *reader) initialized(m message) []harness.Event {
	var result struct {
		Version int `json:"protocolVersion"`
	}
	if json.Unmarshal(m.Result, &result) != nil || result.Version != version {
		return r.fail(fmt.Sprintf("the agent speaks version %d of the protocol, and this is version %d", result.Version, version))
	}
	params := object{"cwd": r.job.Dir, "mcpServers": []any{}}
	if r.session == "" {
		return inputs(r.call("session/new", params))
	}
	params["sessionId"] = r.session
	return inputs(r.call("session/load", params))
}

// settled is a method that agents answer without any effect. An agent that repeats a conversation, and waits until each part
// is written, repeats at least one part between two answers.
const settled = "_arbe/settled"

// loaded waits until the agent has repeated all of an earlier conversation.
func (r *reader) loaded() []harness.Event {
	if !r.repeated {
		return r.ready()
	}
	r.repeated = false
	return inputs(r.call(settled, object{}))
}

// ready gives the agent its first prompt.
func (r *reader) ready() []harness.Event {
	r.begun = true
	return []harness.Event{{Session: r.session, Input: r.prompt()}}
}

// fail stops an agent that cannot work.
func (r *reader) fail(why string) []harness.Event {
	r.failed = why
	return []harness.Event{{Settled: true}}
}

// prompt sends the agent its waiting prompts.
func (r *reader) prompt() []byte {
	given := strings.Join(r.prompts, "\n\n")
	r.prompts = nil
	if first := strings.TrimSpace(given); strings.HasPrefix(first, "/") || strings.HasPrefix(first, "$") {
		given = "My message is:\n" + given // otherwise the agent would take it for a command
	}
	r.working++
	r.done = false
	return r.call("session/prompt", object{"sessionId": r.session, "prompt": []object{{"type": "text", "text": given}}})
}

// update reads an event of the session.
func (r *reader) update(params json.RawMessage) []harness.Event {
	var p struct {
		Session string `json:"sessionId"`
		Update  update `json:"update"`
	}
	if json.Unmarshal(params, &p) != nil || p.Session != r.session {
		return nil
	}
	if !r.begun {
		switch p.Update.Kind {
		case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call":
			r.repeated = true
		}
		return nil
	}
	switch u := p.Update; u.Kind {
	case "agent_message_chunk":
		return r.say(entry.PiTextBlock, u)
	case "agent_thought_chunk":
		return r.say(entry.PiThinkingBlock, u)
	case "tool_call":
		return r.begin(u)
	case "tool_call_update":
		if c, open := r.calls[u.ID]; open {
			return r.follow(c, u)
		}
	}
	return nil
}

// say adds to the current answer. Text of another message begins another answer.
func (r *reader) say(kind string, u update) []harness.Event {
	words := r.words(kind, u)
	if words == "" {
		return nil
	}
	events := r.resultsOfDenied()
	part, last := kind+u.MessageID, len(r.now)-1
	if last >= 0 && r.part != part && kind == entry.PiTextBlock && r.now[last].Type == kind {
		events, last = append(events, r.flush(entry.PiStopped)...), -1
	}
	if last < 0 || r.part != part || r.now[last].Type != kind {
		if !r.room.Block() {
			return events
		}
		r.now = append(r.now, entry.PiBlock{Type: kind})
		last++
	}
	r.part = part
	piece := entry.PiChunk{Kind: "text", Block: last, Text: words}
	if b := &r.now[last]; kind == entry.PiTextBlock {
		b.Text += words
	} else {
		b.Thinking += words
		piece.Kind = "thinking"
	}
	return append(events, harness.Event{Chunk: &piece})
}

// words returns the text of an update, as far as there is room.
func (r *reader) words(kind string, u update) string {
	var c content
	if json.Unmarshal(u.Content, &c) != nil {
		return ""
	}
	words := c.plain()
	if kind == entry.PiThinkingBlock && r.profile.headsThoughts {
		words = strings.TrimPrefix(words, "****\n")
		if n := len(r.now); n > 0 && r.now[n-1].Type == kind {
			words = "\n\n" + words
		}
	}
	return r.room.Piece(words)
}

// take returns the pending text as an answer.
func (r *reader) take(stop entry.PiStop) entry.PiAssistant {
	a := entry.PiAssistant{Harness: r.profile.name, Content: r.now, API: apis[r.job.Model.Dialect], Provider: r.job.Model.Provider, Model: r.job.Model.ID, StopReason: stop}
	r.now, r.part, r.room = nil, "", harness.Room{}
	return a
}

// apis maps the dialects to pi's names for them.
var apis = map[harness.Dialect]string{harness.Chat: "openai-completions", harness.Messages: "anthropic-messages", harness.Responses: "openai-responses",
	harness.Gemini: "google-generative-ai"}

// flush ends the current answer, and counts it even if it is empty.
func (r *reader) flush(stop entry.PiStop) []harness.Event {
	a := r.take(stop)
	if stop == entry.PiError {
		a.ErrorMessage = r.failed
	}
	r.tally.Add(a)
	if len(a.Content) == 0 && stop != entry.PiError {
		return nil
	}
	return []harness.Event{{Message: a}}
}

// ended reads the agent's answer to a prompt.
func (r *reader) ended(m message) []harness.Event {
	r.working--
	var result struct {
		Stop string `json:"stopReason"`
	}
	stop, known := stops[""], false
	r.failed = ""
	if m.Error != nil {
		r.failed = m.Error.String()
	} else if _ = json.Unmarshal(m.Result, &result); true { // anything else matches no reason below
		if stop, known = stops[result.Stop]; !known {
			stop, r.failed = entry.PiError, "the agent ended for a reason that the protocol does not have: "+entry.OneLine(result.Stop, 60)
		} else if why := causes[result.Stop]; why != "" {
			r.failed = why
		}
	}
	if r.working > 0 && r.failed == "" { // this answers a prompt that it got in the meantime
		return nil
	}
	events := slices.Concat(r.resultsOfDenied(), r.flush(stop), r.unaskAll())
	if len(r.prompts) > 0 && r.failed == "" && !r.stopped && stop != entry.PiAborted && r.working == 0 {
		r.tally.Fresh()
		return append(events, inputs(r.prompt())...)
	}
	if r.working == 0 {
		r.done = true
		events = append(events, harness.Event{Settled: true})
	}
	return events
}

// stops maps the protocol's reasons for the end of an answer to ours, and causes those that are failures to texts.
var (
	stops = map[string]entry.PiStop{"": entry.PiError, "end_turn": entry.PiStopped, "max_tokens": entry.PiLength, "max_turn_requests": entry.PiError,
		"refusal": entry.PiError, "cancelled": entry.PiAborted}
	causes = map[string]string{"": "the agent did not say why it ended", "max_turn_requests": "the agent ended at its limit of model calls",
		"refusal": "the agent refused to go on"}
)

// Steer gives the agent another prompt, if it can take one while it works.
func (r *reader) Steer(prompt string) []byte {
	switch {
	case !r.profile.steer || r.stopped || r.done || r.failed != "":
		return nil
	case !r.begun:
		r.prompts = append(r.prompts, prompt)
		return []byte{}
	}
	held := r.prompts // the text that follows a refusal is sent when the agent has finished its current work
	r.prompts = []string{prompt}
	input := r.prompt()
	r.prompts = held
	return input
}

// Interrupt ends the current work and its questions. Work done so far is kept.
func (r *reader) Interrupt() ([]byte, syscall.Signal) {
	r.stopped = true
	if r.working == 0 {
		return nil, syscall.SIGTERM
	}
	input := notify("session/cancel", object{"sessionId": r.session})
	for _, a := range r.asks {
		input = append(input, answer(a.id, permission{}.choose())...)
	}
	return input, 0
}

// Decide judges by the answer to the last prompt. The exit status of the process matters only without one.
func (r *reader) Decide(exit harness.Exit) harness.Outcome {
	failed := r.failed
	var cut entry.PiAssistant
	if !r.done {
		cut = r.take(entry.PiToolUse) // it ended in the middle of an answer
	}
	switch {
	case failed == "" && r.stopped:
		failed = "the agent was interrupted"
	case !r.done && failed == "":
		r.tally.Add(cut)
		return r.tally.Decide("", exit).Cut(cut)
	}
	return r.tally.Decide(failed, harness.Exit{}).Cut(cut)
}
