package main

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadWhy(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "why THREAD ENTRY",
		Short: "Show which bots answered an entry, which did not, and why",
		Long: "Show for each bot of the house whether it answered an entry, and why. ENTRY is the position of the entry, or\n" +
			"its id. A bot that was not asked has no entry in the thread; the list says so.",
		Example:           "  arbe thread why th4w7q2m9x 12",
		Args:              takes(2, 2, "a thread and an entry"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			t, err := a.getThread(ctx, c, args[0])
			if err != nil {
				return err
			}
			// Read the decisions before the entries, so that the entries include everything that was decided by then.
			decisions, err := c.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: t.GetId(), Decisions: true})
			if err != nil {
				return err
			}
			about, later, err := entriesFrom(ctx, c, t.GetId(), args[1])
			if err != nil {
				return err
			}
			if about.GetType() != (entry.Chat{}).Type() {
				return fault.Newf(fault.Invalid, "give the position or id of a chat", "entry %d is a %s, and bots answer only chats", about.GetSeq(), about.GetType())
			}
			bots, err := allBots(ctx, c, t.GetHouseId())
			if err != nil {
				return err
			}
			return a.list([]string{"BOT", "ANSWER", "WHY", "TURN"}, whyRows(about, later, bots, decisions))
		}),
	}
}

// entriesFrom returns the entry that a person named, and those after it.
func entriesFrom(ctx context.Context, c *arbe.Client, thread, ref string) (about *arbev1.Entry, later []*arbev1.Entry, err error) {
	seq, err := strconv.ParseInt(strings.TrimPrefix(ref, "#"), 10, 64)
	if err != nil || seq < 1 {
		seq = 0
	}
	for after := max(seq-1, 0); ; {
		page, err := c.Entries.List(ctx, &arbev1.ListRequest{ThreadId: thread, After: after, Limit: pageSize})
		if connect.CodeOf(err) == connect.CodeOutOfRange {
			break // the position is past the end
		} else if err != nil {
			return nil, nil, err
		}
		for _, e := range page.GetEntries() {
			after = e.GetSeq()
			switch {
			case about != nil:
				later = append(later, e)
			case e.GetSeq() == seq || e.GetId() == ref:
				about = e
			}
		}
		if len(page.GetEntries()) == 0 || after >= page.GetTail() {
			break
		}
	}
	if about == nil {
		return nil, nil, fault.Newf(fault.NotFound, "arbe thread entries list shows them", "the thread has no entry %q", ref)
	}
	return about, later, nil
}

// whyView is a bot's reaction to an entry, as JSON.
type whyView struct {
	BotID string `json:"bot_id"`
	Bot   string `json:"bot"`
	// Answer is "started", "steered", "skipped", "waits", "none", or "undecided": the server has not yet decided which
	// bots the entry wakes.
	Answer      string `json:"answer"`
	Reason      string `json:"reason"`
	Explanation string `json:"explanation"`
	TurnID      string `json:"turn_id,omitempty"`
}

// whyRows returns the reactions of a house's bots to an entry, from later entries and the decisions. A bot may have several
// rows, because each retry is a separate turn.
func whyRows(about *arbev1.Entry, later []*arbev1.Entry, bots []*arbev1.Bot, decisions *arbev1.GetThreadResponse) []row {
	w := whyTable{about: about, handles: map[string]string{}, spoke: map[string]bool{}, begun: map[string]string{}, told: map[string]bool{}}
	for _, b := range bots {
		w.handles[b.GetId()] = "@" + b.GetHandle()
	}
	for _, e := range later {
		w.read(e)
	}
	for _, waiting := range decisions.GetWaiting() {
		if slices.Contains(waiting.GetEntryIds(), about.GetId()) && !w.spoke[waiting.GetAgentId()] {
			w.add(whyView{BotID: waiting.GetAgentId(), Answer: "waits", Reason: waiting.GetReason(), TurnID: waiting.GetTurnId(),
				Explanation: explain(waiting.GetReason()) + " It is waiting in case someone else speaks first."})
		}
	}
	for _, b := range bots {
		if !w.spoke[b.GetId()] {
			w.addSilent(b, about.GetSeq() > decisions.GetDecided())
		}
	}
	return w.rows
}

// whyTable collects the reactions of bots.
type whyTable struct {
	about   *arbev1.Entry
	handles map[string]string // handles by bot
	spoke   map[string]bool   // bots with a row
	begun   map[string]string // the reason of each turn
	told    map[string]bool   // turns with a row
	rows    []row
}

func (w *whyTable) add(v whyView) {
	w.told[v.TurnID] = true
	v.Bot = first(w.handles[v.BotID], v.BotID)
	w.spoke[v.BotID] = true
	w.rows = append(w.rows, row{id: v.BotID, view: v, columns: []string{v.Bot, v.Answer, v.Explanation, v.TurnID}})
}

// read processes a later entry.
func (w *whyTable) read(e *arbev1.Entry) {
	id := w.about.GetId()
	payload, _ := export.Decode(e)
	switch p := payload.(type) {
	case entry.Chat:
		if p.Turn != nil {
			w.answered(e.GetAuthorAgentId(), p.Turn.TurnID, p.Turn.Answers)
		}
	case entry.TurnEnded:
		if p.Summary != nil {
			w.answered(p.AgentID, p.TurnID, p.Summary.Answers)
		}
	case entry.TurnStarted:
		w.begun[p.TurnID] = p.Reason
		if p.EntryID == id {
			w.add(whyView{BotID: p.AgentID, Answer: "started", Reason: p.Reason, Explanation: explain(p.Reason), TurnID: p.TurnID})
		}
	case entry.TurnSteered:
		if p.EntryID == id {
			w.add(whyView{BotID: p.AgentID, Answer: "steered", Reason: p.Reason, Explanation: explain(p.Reason) + " " + entry.ReasonSteered.Explain(), TurnID: p.TurnID})
		}
	case entry.Skipped:
		if p.EntryID == id {
			w.add(whyView{BotID: p.AgentID, Answer: "skipped", Reason: p.Reason, Explanation: p.Explanation})
		}
	}
}

// answered adds a turn that answered the entry although something else began it. A turn that waited for silence also answers
// the messages that arrived meanwhile.
func (w *whyTable) answered(bot, turn string, asked []string) {
	if slices.Contains(asked, w.about.GetId()) && !w.told[turn] {
		w.add(whyView{BotID: bot, Answer: "started", Reason: w.begun[turn], Explanation: explain(w.begun[turn]), TurnID: turn})
	}
}

// addSilent adds a bot that did not react to the entry.
func (w *whyTable) addSilent(b *arbev1.Bot, undecided bool) {
	if undecided {
		w.add(whyView{BotID: b.GetId(), Answer: "undecided", Explanation: "The server has not decided yet; ask again in a moment."})
		return
	}
	reason := entry.ReasonNotMentioned
	if b.GetId() == w.about.GetAuthorAgentId() {
		reason = entry.ReasonSelf
	}
	w.add(whyView{BotID: b.GetId(), Answer: "none", Reason: string(reason), Explanation: reason.Explain()})
}

func explain(reason string) string { return entry.Reason(reason).Explain() }
