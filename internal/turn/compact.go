package turn

import (
	"context"
	"strconv"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

const (
	// reserve is the share of a context window that is left free, because sizes are estimates and the answer needs room.
	reserve = 0.25
	// kept is the share of a context window that a compaction leaves as it is.
	kept = 0.3
	// summaryTokens limits a summary.
	summaryTokens = 4096
)

// budget returns how many tokens a request may have.
func (r *run) budget() int64 {
	window := int64(float64(r.window) * (1 - reserve))
	return window
}

// compact replaces the older part of the transcript by a summary, which is an entry that everyone can read.
func (r *run) compact(ctx context.Context) error {
	t := &r.transcript
	cut := t.cutAt(int64(float64(r.window) * kept))
	if cut == 0 {
		return fault.New(fault.Exhausted, "what the bot must read is longer than its model can read", "use a model with a larger context, or begin a new thread")
	}
	old := *t
	old.entries = t.entries[:cut]
	messages := old.messages()
	const ask = "the transcript grows too long to be read as a whole. Write what you need to go on without it: what was asked and by whom, " +
		"what was decided, what was done and found (with exact names, paths, commands and figures), and what is still open. Write only that."
	messages = append(messages, note(ask))
	for size(messages) > r.budget() && len(messages) > 2 {
		messages = messages[1:]
	}
	r.compactions++
	id := entry.TurnPrefix + r.turn.ID + ".compact" + strconv.Itoa(r.turn.Steps) + "." + strconv.Itoa(r.compactions)
	answer, err := r.stream(ctx, r.modelID, model.Request{System: r.prompt(), Messages: messages, MaxTokens: summaryTokens}, nil)
	r.redact(&answer)
	if countErr := r.count(ctx, id, answer); err == nil {
		err = countErr
	}
	if err != nil {
		return err
	}
	c := entry.PiCompaction{Turn: r.turn.ID, Summary: answer.Message.Text(), FirstKeptSeq: t.entries[cut].Seq, TokensBefore: size(t.messages())}
	draft := entry.NewDraft(id, r.turn.Bot, c)
	if err := entry.Check(draft, entry.Server); err != nil {
		return fault.New(fault.Unavailable, "the model did not summarise the thread", "try again, or use another model").Because(err)
	}
	if _, err := r.log.Append(ctx, r.ref, draft); err != nil {
		return err
	}
	return t.follow(ctx, r.log, r.ref)
}

// cutAt returns the index of the first entry to keep, so that those from there on have about so many tokens; 0 if
// nothing can be cut. A step stays together with the results of its calls.
func (t *transcript) cutAt(tokens int64) int {
	one := transcript{bot: t.bot, turn: t.turn, people: t.people}
	at := len(t.entries)
	for at > 0 && tokens > 0 {
		at--
		one.entries = t.entries[at : at+1]
		tokens -= size(one.messages())
	}
	for at < len(t.entries) && t.entries[at].Type == (entry.PiToolResult{}).Type() {
		at++
	}
	if at >= len(t.entries) {
		return 0
	}
	return at
}
