package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

// This file keeps a transcript as short as its model and its price allow. When a question begins, entries that bots
// have read before are summarised once they are long. Entries that no bot has read are left out, because summarising
// them would cost as much as reading them. Within a turn, old results of tools are shortened first.

const (
	// reserve is the share of a context window that is left free, because sizes are estimates and the answer needs room.
	reserve = 0.25
	// kept is the share of a context window that stays unchanged when the window is nearly full.
	kept = 0.3
	// summaryTokens and summaryBytes limit a summary. It is read with each question, so with a small window it is
	// limited to a share of what is read.
	summaryTokens, summaryBytes, summaryShare = 4096, 16 << 10, 4
	// maxFits is how often a question tries to begin with fewer entries.
	maxFits = 4
	// maxRefused is how often a model is asked again after it called a tool where none may be called.
	maxRefused = 2
)

// budget returns how many tokens a request may have.
func (r *run) budget() int64 {
	return int64(float64(r.window) * (1 - reserve))
}

// request returns a request to the model, with everything that must be the same in all requests of the thread. once are
// messages of this request only.
func (r *run) request(messages []entry.PiMessage, once ...entry.PiMessage) model.Request {
	request := model.Request{System: r.prompt(), Messages: append(messages[:len(messages):len(messages)], once...), Once: len(once), Effort: cmp.Or(r.turn.Think(), r.bot.Think)}
	for _, t := range r.tools {
		request.Tools = append(request.Tools, t.Tool)
	}
	return request
}

// long reports whether a request is longer than it should be: a turn begins with little, and then may grow as far as its
// model's window allows.
func (r *run) long(request model.Request) bool {
	if !r.fitted && r.turn.Steps == 0 && (!r.transcript.reached || size(request.Messages) > r.most()) {
		return true
	}
	return request.Estimate() > r.budget()
}

// compact makes the transcript shorter.
func (r *run) compact(ctx context.Context) error {
	t := &r.transcript
	if !r.fitted && r.turn.Steps == 0 {
		err := r.fit(ctx)
		r.fitted = err == nil
		return err
	}
	keep := int64(float64(r.window) * kept)
	over := r.request(t.messages()).Estimate() - r.budget()
	if over > 0 && t.shorten(over+r.budget()/4, keep) { // more than necessary, so that the next steps send the same text again
		return nil
	}
	cut := t.cutAt(keep)
	if cut == 0 {
		return fault.New(fault.Exhausted, "what the bot must read is longer than its model can read", "use a model with a larger context, or begin a new thread")
	}
	_, err := r.forget(ctx, cut, true)
	return err
}

// fit shortens the transcript to the size at which a turn begins.
func (r *run) fit(ctx context.Context) error {
	t := &r.transcript
	for range maxFits {
		if t.reached && size(t.messages()) <= r.most() {
			return nil
		}
		cut := t.cutAt(r.most() / 2)
		read := 0
		if t.reached {
			read = t.read()
		}
		if read > 0 {
			cut = min(cut, read)
		}
		if cut <= t.lead {
			t.admit()
			return nil
		}
		stored, err := r.forget(ctx, cut, read > 0)
		if err != nil {
			return err
		}
		if !stored {
			if err := r.recall(ctx); err != nil {
				return err
			}
			if err := r.introduce(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// summary is what a model wrote, the model's ref, and the entry that has it.
type summary struct {
	text, model string
	draft       entry.Draft
}

// summarise makes the model write a summary of the entries before an index, or of as many as it can read. at is the
// index of the first entry that the summary does not cover.
func (r *run) summarise(ctx context.Context, cut int) (s summary, at int, err error) {
	t := &r.transcript
	whole := t.messages()
	ask := func(at int) entry.PiUser {
		begins := ""
		for _, m := range t.part(t.entries[at : at+1]).messages() {
			switch m := m.(type) {
			case entry.PiUser:
				begins = m.Text()
			case entry.PiAssistant:
				begins = m.Plain()
			}
		}
		return note(fmt.Sprintf("the thread grows too long to be sent as a whole each time. Write a summary that takes the place of what was said before "+
			"entry %d, which begins as quoted here. It is for all who go on in this thread. Say what was asked and by whom, what was decided, what was "+
			"done and found (with exact names, paths, commands and figures), and what is still open; keep what an earlier summary has of that. Call no "+
			"tool. Write only that.", t.entries[at].Seq), oneLine(begins, quoted))
	}
	// It continues the last request, so that most of it is read from the provider's cache.
	request := r.request(whole, ask(cut))
	for request.Estimate() > r.budget() {
		old := *t
		old.entries = t.entries[:cut]
		if request = r.request(old.messages(), ask(cut)); request.Estimate() <= r.budget() {
			break
		}
		for cut = cut * 3 / 4; cut > t.lead && t.entries[cut].Type == (entry.PiToolResult{}).Type(); {
			cut--
		}
		if cut <= t.lead {
			return s, 0, errNoText
		}
	}
	most := min(summaryTokens, r.most()/summaryShare)
	request.MaxTokens = most + model.ThinkingRoom(request.Effort)
	r.calls++
	id := fmt.Sprintf("%s%s.compact%d.%s", entry.TurnPrefix, r.turn.ID, r.turn.Steps, entry.StepCall(r.turn.Attempts, r.calls))
	answer, err := r.say(ctx, r.modelID, request, id)
	if err != nil {
		return s, 0, err
	}
	// The server of a model may ignore the limits, and text in the database cannot have zero bytes.
	text := strings.Map(printable, strings.ToValidUTF8(answer.Message.Text(), "\uFFFD"))
	text = entry.Clip(strings.TrimSpace(text), min(summaryBytes, int(4*most)))
	c := entry.PiCompaction{Turn: r.turn.ID, Summary: text, FirstKeptSeq: t.entries[cut].Seq, TokensBefore: size(whole)}
	by := model.Ref{Endpoint: answer.Message.Provider, Model: answer.Message.Model}
	s = summary{c.Summary, by.String(), entry.NewDraft(id, r.turn.Bot, c)}
	if entry.Check(s.draft, entry.Server) != nil {
		return s, 0, errNoText
	}
	return s, cut, nil
}

// errNoText reports that a model wrote no text although it was asked for one.
var errNoText = fault.New(fault.Unavailable, "the model did not write what it was asked for", "try again, or use another model")

// unsummarised reports whether an error of summarise comes from the entries or from the model and would therefore
// recur.
func unsummarised(err error) bool {
	if failed, isModel := errors.AsType[*model.Error](err); isModel {
		return failed.Kind == model.Overflow || failed.Kind == model.Refusal
	}
	return errors.Is(err, errNoText)
}

// say asks a model for a text. The request offers the tools, because it must begin like the others, but calls are
// refused. id names the call in what the turn used.
func (r *run) say(ctx context.Context, modelID string, request model.Request, id string) (model.Answer, error) {
	for refused := 0; ; refused++ {
		answer, err := r.stream(ctx, modelID, request, nil)
		r.redact(&answer)
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout) // the usage counts even if the time is up
		countErr := r.count(lasting, fmt.Sprint(id, ".", refused), answer)
		cancel()
		if err == nil {
			err = countErr
		}
		calls := answer.Message.Calls()
		if err != nil || answer.Message.StopReason != entry.PiToolUse || len(calls) == 0 {
			return answer, err
		}
		if refused == maxRefused {
			return answer, errNoText
		}
		request.Messages = append(request.Messages, answer.Message)
		for _, c := range calls {
			request.Messages = append(request.Messages, entry.PiToolResult{ToolCallID: c.ID, ToolName: c.Name, IsError: true,
				Content: []entry.PiBlock{entry.PiText("no tool can be called now; write the text that was asked for")}})
		}
		request.Once += 1 + len(calls)
	}
}

// read returns the index after the last entry that an earlier turn wrote; 0 if there is none. A bot has read everything
// before it.
func (t *transcript) read() int {
	for i := len(t.entries) - 1; i >= t.lead; i-- {
		if e := t.entries[i]; entry.TurnOf(e.ID) != "" && entry.TurnOf(e.ID) != t.turn && e.Type != (entry.Skipped{}).Type() {
			return i + 1
		}
	}
	return 0
}

// cutAt returns the index of the first entry to keep, so that the kept entries have about so many tokens; 0 if nothing
// can be cut. A step stays together with the results of its calls.
func (t *transcript) cutAt(tokens int64) int {
	at := len(t.entries)
	for at > t.lead && tokens > 0 {
		at--
		tokens -= size(t.part(t.entries[at : at+1]).messages())
	}
	for at < len(t.entries) && t.entries[at].Type == (entry.PiToolResult{}).Type() {
		at++
	}
	if at >= len(t.entries) || at <= t.lead {
		return 0
	}
	return at
}
