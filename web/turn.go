package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// A turn of a bot is a group of rows under the bot's name: its steps, the commands that it ran, and its answer. While it
// runs, the page has a block for it behind the last row, in #writing, which shows what is being written (writing.go).

const (
	// maxArguments is the length of the longest arguments of a tool call that are read as JSON, in bytes.
	maxArguments = 16 << 10
	// maxCalls is how many tool calls of one step a page shows.
	maxCalls = 64
)

// why says in a sentence why a turn began.
func why(reason string) string {
	if reason == "" {
		return ""
	}
	return entry.Reason(reason).Explain()
}

// reasonOf returns why the turn of an entry began, once for the first row of the turn.
func (t *transcript) reasonOf(e entry.Entry) string {
	seen := t.turn(entry.TurnOf(e.ID))
	if !seen.known() || t.explained[seen.ID] || e.Author != seen.Agent {
		return ""
	}
	t.explained[seen.ID] = true
	return why(seen.Reason)
}

// callView is a tool call with its result, if it has ended.
type callView struct {
	// Key is the call's id in the page.
	Key, Name, Summary, Arguments string
	// Class is "running", "waiting" for a person's yes, "completed", "failed", or "cancelled" if its turn ended before it did.
	Class  string
	Result *resultView
	// InCommand reports that a command's block shows the call.
	InCommand bool
}

// resultView is the result of a tool call.
type resultView struct {
	Text   string
	Failed bool
	Took   time.Duration
	// Diff is the change of a file, and Whole the artifact that has all of it if it is cut. Instructions are the workspace's,
	// which the model read with this result.
	Diff, Whole, Instructions string
}

// Word is the state as a word.
func (v callView) Word() string {
	switch v.Class {
	case "completed":
		return "done"
	case "cancelled":
		return "not ended"
	case "waiting":
		return "waits for a yes"
	}
	return v.Class
}

func callKey(resultID string) string { return blockKey(resultID) + "-call" }

// callOf describes a tool call. result is the id of the entry that has its result, or will.
func (t *transcript) callOf(result string, b entry.PiBlock) callView {
	v := callView{Key: callKey(result), Name: clip(cmp.Or(b.Name, "tool"), 80), Class: "running"}
	v.Summary, v.Arguments = argumentsText(b.Arguments)
	call := t.ledger.Of(entry.CallWork, result)
	if r, ended := entry.SeenAs[entry.PiToolResult](call.Completed()); ended {
		v.Result = resultOf(r)
		v.Class = resultClass(r)
	} else if seen := t.turn(entry.TurnOf(result)); !seen.known() || seen.Ended {
		v.Class = "cancelled"
	} else if t.awaitsAnswer(call) {
		v.Class = "waiting"
	}
	_, v.InCommand = entry.Latest[entry.Command](call)
	return v
}

// awaitsAnswer reports whether a call waits for a person's yes.
func (t *transcript) awaitsAnswer(call *entry.Progress) bool {
	asked, ok := entry.Latest[entry.PermissionAsked](call)
	return ok && t.ledger.Of(entry.ApprovalWork, asked.ApprovalID).Completed() == nil
}

func resultOf(r entry.PiToolResult) *resultView {
	v := &resultView{Text: clip(r.Text(), maxShown), Failed: r.IsError, Took: time.Duration(r.DurationMS) * time.Millisecond}
	if d := r.Details; d != nil {
		v.Diff, v.Whole, v.Instructions = clip(d.Diff, maxShown), d.ArtifactID, clip(d.Instructions, maxShown)
	}
	return v
}

func resultClass(r entry.PiToolResult) string {
	if r.IsError {
		return "failed"
	}
	return "completed"
}

// maxSummary is how much of the arguments of a tool call a page shows on one line, in bytes.
const maxSummary = 160

// argumentsText returns the arguments of a tool call as one line, and as a text to read. Both show every character, because
// people could otherwise read another call than the one that runs.
func argumentsText(arguments json.RawMessage) (summary, text string) {
	if len(arguments) > maxArguments || !json.Valid(arguments) {
		text = entry.Literal(clip(string(arguments[:min(len(arguments), 2*maxShown)]), maxShown))
		return entry.OneLine(text, maxSummary), text
	}
	list := entry.Arguments(arguments)
	var parts []string
	for _, a := range list {
		if len(list) > 1 {
			a.Value = a.Name + ": " + a.Value
		}
		parts = append(parts, a.Value)
	}
	var pretty bytes.Buffer
	if !indentable(arguments) || json.Indent(&pretty, arguments, "", "  ") != nil {
		pretty.Write(arguments)
	}
	return entry.OneLine(strings.Join(parts, ", "), maxSummary), entry.Literal(clip(pretty.String(), maxShown))
}

// stepBlock is one part of a step: a text, thinking or a tool call.
type stepBlock struct {
	// HTML is a text as HTML.
	HTML     string
	Thinking *thoughtView
	Call     *callView
}

// thoughtView is what a model thought, folded. It is not interpreted.
type thoughtView struct {
	Thread, Text string
	Seq          int64
	// Rest is how many bytes of it are not shown. Open: it was asked for, all of it.
	Rest int
	Open bool
}

// thoughtOf describes what a model thought before it wrote an entry; nil if it showed nothing of that.
func (t *transcript) thoughtOf(e entry.Entry, text string) *thoughtView {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	v := &thoughtView{Thread: t.thread, Seq: e.Seq, Text: text}
	switch long := len(text) > maxShown; {
	case long && t.whole:
		v.Open = true
	case long:
		v.Text = strings.ToValidUTF8(text[:maxShown], "")
		v.Rest = len(text) - len(v.Text)
	}
	return v
}

// step shows what a bot said before its tool calls, and the calls. A step that has only calls of commands is shown by their
// blocks.
func step(_ context.Context, t *transcript, e entry.Entry, a entry.PiAssistant) templ.Component {
	var blocks []stepBlock
	calls, rest := 0, false
	for _, b := range a.Content {
		switch b.Type {
		case entry.PiTextBlock:
			if strings.TrimSpace(b.Text) == "" {
				continue
			}
			text := b.Text
			if !t.whole && (len(text) > maxShown || strings.Count(text, "\n") > maxLines) {
				text, rest = beginning(text), true
			}
			blocks = append(blocks, stepBlock{HTML: markup.Markdown(text, t.effort)})
		case entry.PiThinkingBlock:
			if v := t.thoughtOf(e, b.Thinking); v != nil {
				blocks = append(blocks, stepBlock{Thinking: v})
			}
		case entry.PiCallBlock:
			if calls++; calls > maxCalls {
				continue
			}
			if call := t.callOf(entry.CallResultID(e.ID, calls-1), b); !call.InCommand {
				blocks = append(blocks, stepBlock{Call: &call})
			}
		}
	}
	v := stepView{Thread: t.thread, Seq: e.Seq, Blocks: blocks, Rest: rest, MoreCalls: max(calls-maxCalls, 0)}
	switch {
	case a.Turn == "" && a.ErrorMessage != "": // otherwise the turn's end says it
		v.Note = sentence(clip(a.ErrorMessage, maxNote))
	case a.StopReason == entry.PiAborted:
		v.Note = "Stopped here."
	case a.StopReason == entry.PiError:
		v.Note = "Interrupted here."
	}
	if len(blocks) == 0 && v.MoreCalls == 0 && (v.Note == "" || a.Turn != "") && calls > 0 {
		return nil
	}
	return stepBody(v)
}

// stepView is a step of a turn.
type stepView struct {
	Thread string
	Seq    int64
	Blocks []stepBlock
	// Rest reports that a text is not shown whole. MoreCalls is how many calls are not shown.
	Rest      bool
	MoreCalls int
	// Note says that it is incomplete.
	Note string
}

// toolResult shows nothing if its step or a command's block shows the result.
func toolResult(_ context.Context, t *transcript, e entry.Entry, r entry.PiToolResult) templ.Component {
	call := t.ledger.Of(entry.CallWork, e.ID)
	if _, ran := entry.Latest[entry.Command](call); ran || call.Opened() != nil {
		return nil
	}
	v := callView{Key: callKey(e.ID), Name: clip(cmp.Or(r.ToolName, "tool"), 80), Class: resultClass(r), Result: resultOf(r)}
	return callRow(v)
}

func compaction(_ context.Context, t *transcript, e entry.Entry, c entry.PiCompaction) templ.Component {
	text := c.Summary
	if len(text) > maxShown {
		text = beginning(text)
	}
	return compactionBody(markup.Markdown(text, t.effort))
}

// turnStarted shows nothing: the first row of the turn says why it began.
func turnStarted(context.Context, *transcript, entry.Entry, entry.TurnStarted) templ.Component {
	return nil
}

func turnSteered(_ context.Context, t *transcript, _ entry.Entry, s entry.TurnSteered) templ.Component {
	return whyLine("waiting", t.named(s.AgentID)+" got this while it was working", entry.ReasonSteered.Explain())
}

func skipped(_ context.Context, t *transcript, _ entry.Entry, s entry.Skipped) templ.Component {
	return whyLine("idle", t.named(s.AgentID)+" did not answer", sentence(clip(cmp.Or(s.Explanation, why(s.Reason)), maxNote)))
}

// aboutBot is a note that says a sentence about a bot.
func aboutBot[P interface {
	entry.Payload
	About(bot string) string
}](_ context.Context, t *transcript, e entry.Entry, p P) templ.Component {
	return noteLine("waiting", "s-waiting", clip(p.About(t.named(entry.Agents(e)[0])), maxNote))
}

// named returns an agent's name for a sentence.
func (t *transcript) named(id string) string {
	return cmp.Or(clip(t.people.byID(id).Name, maxWord), "The bot")
}

// turnEndView is the end of a turn that has no answer.
type turnEndView struct {
	Thread, Turn, Class, What, Next string
	// Link leads to where the cause can be mended, if it is on a page. LinkText names that page.
	Link, LinkText string
	// NoModel reports that a key would mend it, so that there is a form for one.
	NoModel  bool
	Why      string
	Work     string
	Question question
}

// question is what a turn was asked. It can be edited and asked again if its position is known.
type question struct {
	Thread, ID string
	Seq        int64
}

func (t *transcript) questionOf(id string) question {
	q := question{Thread: t.thread, ID: id}
	if asked := t.chat(id); asked != nil {
		q.Seq = asked.Seq
	}
	return q
}

// modelReasons are the reasons of failures that a change of the house's models and keys mends.
var modelReasons = []string{"no_model", "bad_key", "no_money", "unknown_model", "unreachable", "unreadable"}

func turnEnded(_ context.Context, t *transcript, e entry.Entry, end entry.TurnEnded) templ.Component {
	v := turnEndView{Thread: t.thread, Turn: end.TurnID, Class: "failed", Question: t.questionOf(end.EntryID), Work: workText(end.Summary)}
	v.Next = advice(fault.Unavailable, end.Message, clip(end.Next, maxNote))
	name := t.named(end.AgentID)
	switch {
	case end.Outcome == entry.TurnStopped:
		v.Class, v.What = "cancelled", name+" was stopped"
		if by := t.people.byID(end.StoppedBy); end.StoppedBy != "" && by.Name != "" {
			v.What += " by " + clip(by.Name, maxWord)
		}
		v.Next = ""
	default:
		if end.Outcome == entry.TurnLimited {
			v.Class = "waiting"
		}
		v.What = name + " did not answer: " + clip(end.Message, maxNote)
	}
	switch {
	case end.Outcome == entry.TurnLimited && end.Reason == "house_usd_day":
		v.Link, v.LinkText = spendingPath(t.house), "The house's limit"
	case end.Outcome == entry.TurnLimited && end.AgentID != "":
		v.Link, v.LinkText = botPath(t.house, end.AgentID)+"#f-"+url.PathEscape(end.Reason), "The bot's limits"
	case slices.Contains(modelReasons, end.Reason):
		v.Link, v.LinkText = settingsPath(t.house, "models"), "Models and keys"
	}
	v.NoModel = end.Reason == "no_model"
	if !t.explained[end.TurnID] {
		v.Why = why(t.turn(end.TurnID).Reason)
	}
	return turnEnd(v)
}

// workText says what a turn did and used; empty if it did nothing: "worked for 40s · 3 commands · $0.02 · anthropic/claude".
func workText(s *entry.TurnSummary) string {
	if s == nil || s.Steps == 0 && s.Usage == (entry.TurnUsage{}) {
		return ""
	}
	took := "less than a second"
	if d := time.Duration(s.DurationMS) * time.Millisecond; d >= time.Second {
		took = elapsedText(d)
	}
	parts := []string{"worked for " + took}
	switch {
	case s.Commands == 1:
		parts = append(parts, "1 command")
	case s.Commands > 1:
		parts = append(parts, grouped(s.Commands)+" commands")
	}
	parts = append(parts, costText(s.Usage))
	if s.Model != "" {
		parts = append(parts, clip(s.Model, 80))
	}
	return strings.Join(parts, " · ")
}

// costText says what a turn cost.
func costText(u entry.TurnUsage) string {
	const cent = 10_000
	dollars := fmt.Sprintf("$%.2f", float64(u.CostMicros)/1e6)
	switch {
	case u.CostUnknown && u.CostMicros > 0:
		return dollars + " and more of unknown price"
	case u.CostUnknown:
		return "unknown price"
	case u.CostMicros > 0 && u.CostMicros < cent:
		return "under $0.01"
	}
	return dollars
}

// answerView is what a page adds to a chat: what it answers if that is not directly above, and what its turn did.
type answerView struct {
	// To is a chat that it replies to; its text is empty if the page does not have it.
	To           *replyView
	Thought      *thoughtView
	Thread, Turn string
	Work         string
	Cut          bool
	Question     question
}

type replyView struct {
	Author, Text string
	// Href leads to it; empty if its position is not known.
	Href string
}

// answerOf describes a chat as an answer.
func (t *transcript) answerOf(e entry.Entry, c entry.Chat) answerView {
	v := answerView{Thread: t.thread}
	if c.Turn != nil {
		v.Turn, v.Work, v.Cut = c.Turn.TurnID, workText(c.Turn), c.Turn.Cut
		v.Question, v.Thought = t.questionOf(c.ReplyTo), t.thoughtOf(e, c.Turn.Thinking)
	}
	if c.ReplyTo == "" || c.ReplyTo == t.lastChat {
		return v
	}
	v.To = &replyView{}
	if to := t.chat(c.ReplyTo); to != nil && to.Seq < e.Seq {
		said, _ := entry.SeenAs[entry.Chat](to)
		v.To = &replyView{Author: t.people.byID(to.Author).Name, Text: said.Text, Href: entryPath(t.thread, to.Seq)}
	}
	return v
}

func turnPath(thread, turn, act string) string {
	return threadPath(thread) + "/turns/" + url.PathEscape(turn) + "/" + act
}

func (a *app) stopTurn(w http.ResponseWriter, r *http.Request) error {
	req := &arbev1.StopTurnRequest{ThreadId: r.PathValue("thread"), TurnId: r.PathValue("turn")}
	_, err := a.services.threads.StopTurn(r.Context(), req)
	return a.doneInThread(w, r, err)
}

func (a *app) retryTurn(w http.ResponseWriter, r *http.Request) error {
	req := &arbev1.RetryTurnRequest{ThreadId: r.PathValue("thread"), TurnId: r.PathValue("turn")}
	_, err := a.services.threads.RetryTurn(r.Context(), req)
	return a.doneInThread(w, r, err)
}

// retryWithKey sets the key of a provider for the thread's house, and then tries the turn again.
func (a *app) retryWithKey(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	if _, err := a.setKey(r, res.Thread.HouseId); err != nil {
		return err
	}
	return a.retryTurn(w, r)
}

// doneInThread answers a form whose effect arrives with the live tail.
func (a *app) doneInThread(w http.ResponseWriter, r *http.Request, err error) error {
	switch {
	case err != nil:
		return err
	case fromScript(r):
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Redirect(w, r, threadPath(r.PathValue("thread")), http.StatusSeeOther)
	}
	return nil
}

// diffClass is the class of a line of a unified diff.
func diffClass(line string) string {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
		return "diff-file"
	case strings.HasPrefix(line, "@@"):
		return "diff-at"
	case strings.HasPrefix(line, "+"):
		return "diff-added"
	case strings.HasPrefix(line, "-"):
		return "diff-removed"
	}
	return ""
}
