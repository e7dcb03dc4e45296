package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/stream"
)

// This file keeps a transcript as short as its model and its price allow. When a question begins, entries that bots
// have read before are summarised once they are long. Entries that no bot has read are left out, because summarising
// them would cost as much as reading them. Within a turn, old results of tools are shortened first.

const (
	// kept is the share of a context window that stays unchanged when the window is nearly full.
	kept = 0.3
	// summaryTokens and summaryBytes limit a summary. The model reads it with each question, so with a small window it is
	// limited to a share of what the model reads.
	summaryTokens, summaryBytes, summaryShare = 4096, 16 << 10, 4
	// maxFits is how often a question tries to begin with fewer entries.
	maxFits = 4
	// maxRefused is how often a model is asked again after it called a tool although it may not.
	maxRefused = 2
)

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
	if over > 0 && t.shorten(over+r.budget()/4, keep) { // more than necessary, so that the next steps can send the same text
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
			if read = t.read(); read > 0 {
				cut = min(cut, read)
			}
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

// summary has the text of a summary, the ref of the model that wrote it, and its entry.
type summary struct {
	text, model string
	draft       entry.Draft
}

// summarise makes the model write a summary of the entries before an index, or of as many as it can read. at is the
// index of the first entry that the summary does not cover.
func (r *run) summarise(ctx context.Context, cut int) (s summary, at int, err error) {
	t := &r.transcript
	all := t.messages()
	request, cut, err := r.askForSummary(all, cut)
	if err != nil {
		return s, 0, err
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
	c := entry.PiCompaction{Turn: r.turn.ID, Summary: text, FirstKeptSeq: t.entries[cut].Seq, TokensBefore: size(all)}
	by := model.Ref{Endpoint: answer.Message.Provider, Model: answer.Message.Model}
	s = summary{c.Summary, by.String(), entry.NewDraft(id, r.turn.Bot, c)}
	if entry.Check(s.draft, entry.Server) != nil {
		return s, 0, errNoText
	}
	return s, cut, nil
}

// askForSummary returns the request for a summary of the entries before an index, or before an earlier one if these are
// too many.
func (r *run) askForSummary(all []entry.PiMessage, cut int) (request model.Request, at int, err error) {
	t := &r.transcript
	// It continues the last request, so that most of it is read from the provider's cache.
	request = r.request(all, t.summaryOrder(cut))
	for request.Estimate() > r.budget() {
		old := *t
		old.entries = t.entries[:cut]
		if request = r.request(old.messages(), t.summaryOrder(cut)); request.Estimate() <= r.budget() {
			break
		}
		for cut = cut * 3 / 4; cut > t.lead && t.entries[cut].Type == (entry.PiToolResult{}).Type(); {
			cut--
		}
		if cut <= t.lead {
			return request, 0, errNoText
		}
	}
	return request, cut, nil
}

// summaryOrder tells the model to write a summary of the entries before an index.
func (t *transcript) summaryOrder(at int) entry.PiUser {
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

// say asks a model for a text. The request offers the tools, because it must begin like the others, but say refuses
// calls of them. id names this model call in the turn's usage.
func (r *run) say(ctx context.Context, modelID string, request model.Request, id string) (model.Answer, error) {
	for refused := 0; ; refused++ {
		answer, err := r.stream(ctx, modelID, request, nil)
		r.redact(&answer)
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout) // the usage must be recorded even if the time is up
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

// forget makes the transcript begin at an index. The entries before it go into the thread's summary or, if summarise is
// false, are left out. It reports false if another turn stored a memory first, which this turn then uses, or if a message
// was deleted while the summary was written.
func (r *run) forget(ctx context.Context, cut int, summarise bool) (stored bool, err error) {
	t := &r.transcript
	m := t.memory
	m.version++
	tail := t.tail
	var drafts []entry.Draft
	var deleted int64 // messages of the thread
	if summarise {
		if cut, deleted, drafts, err = r.condense(ctx, cut, &m); err != nil {
			return false, err
		}
	}
	if len(drafts) == 0 {
		if err := r.leaveOut(ctx, &m, t.entries[cut].Seq); err != nil {
			return false, err
		}
	}
	stored, err = r.storeMemory(ctx, m, tail, deleted, drafts)
	if err != nil || !stored && r.turn.Steps == 0 {
		return false, err
	}
	// Within a turn, another turn's memory would lack this turn's steps, so this turn continues with its own.
	t.memory, t.reached = m, true
	t.cutTo(cut)
	return stored, nil
}

// condense sets a memory's summary to one of the entries before an index. The memory begins at the index at, and drafts
// has the entry of the summary; it is empty if the model cannot write one. deleted is the number of the thread's
// deleted messages before the summary was written.
func (r *run) condense(ctx context.Context, cut int, m *memory) (at int, deleted int64, drafts []entry.Draft, err error) {
	t := &r.transcript
	if err := r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		deleted, err = entrystate.DeletedTx(ctx, tx, r.turn.House, r.turn.Thread)
		return err
	}); err != nil {
		return 0, 0, nil, err
	}
	// This comes after the count, so that a deletion is either in the states or changes the count.
	if t.states, err = entrystate.Of(ctx, r.db, r.ref, t.entries); err != nil {
		return 0, 0, nil, err
	}
	written, at, err := r.summarise(ctx, cut)
	if unsummarised(err) {
		return cut, deleted, nil, nil
	} else if err != nil {
		return 0, 0, nil, err
	}
	m.begins = t.entries[at].Seq
	m.summary, m.model, m.by = written.text, written.model, r.turn.Bot
	return at, deleted, []entry.Draft{written.draft}, nil
}

// leaveOut makes a memory begin at a position, without a summary of what it leaves out.
func (r *run) leaveOut(ctx context.Context, m *memory, begins int64) (err error) {
	left := span{From: max(m.begins, 1), To: begins - 1}
	m.begins = begins
	if left.Since, err = r.timeOf(ctx, left.From); err == nil {
		left.Until, err = r.timeOf(ctx, left.To)
	}
	if err != nil {
		return err
	}
	m.leaveOut(left)
	return nil
}

// storeMemory stores a thread's memory, and appends the entries that report it. tail is the position up to which the memory
// knows the thread, and deleted is the number of deleted messages at that time. It reports false if another turn stored a
// memory first, or if a message was deleted since.
func (r *run) storeMemory(ctx context.Context, m memory, tail, deleted int64, drafts []entry.Draft) (stored bool, err error) {
	unread, err := json.Marshal(append([]span{}, m.unread...))
	if err != nil {
		return false, err
	}
	err = r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		rows, err := queries.InsertThreadSummary(ctx, tx, query.InsertThreadSummaryParams{
			HouseID: r.turn.House, ThreadID: r.turn.Thread, Version: int32(m.version), Begins: m.begins, Summary: m.summary, Model: m.model,
			AgentID: db.Null(m.by), Unread: unread, Tail: tail,
		})
		if stored = rows > 0; err != nil || !stored || len(drafts) == 0 {
			return err
		}
		// The inserted row's foreign key waits for a deletion in progress.
		now, err := entrystate.DeletedTx(ctx, tx, r.turn.House, r.turn.Thread)
		if err == nil && now != deleted {
			err = errDeletedMeanwhile
		}
		if err == nil {
			_, err = r.log.AppendTx(ctx, tx, r.ref, drafts...)
		}
		return err
	})
	if errors.Is(err, errDeletedMeanwhile) {
		return false, nil
	}
	return stored, err
}

// timeOf returns the time of the entry at a position; zero if there is none.
func (r *run) timeOf(ctx context.Context, seq int64) (at time.Time, err error) {
	page, _, err := r.log.Read(ctx, r.ref, stream.Range{After: seq - 1, Limit: 1})
	if err == nil && len(page) > 0 {
		at = page[0].Time
	}
	return at, err
}

// errDeletedMeanwhile reports that a message was deleted while a summary was written, which may contain it.
var errDeletedMeanwhile = errors.New("a message was deleted meanwhile")
