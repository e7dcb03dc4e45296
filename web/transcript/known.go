package transcript

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// Author is an agent as pages show it.
type Author struct {
	Name, Initial string
	// A Bot has a square instead of a disc. System is arbe, which has neither.
	Bot, System bool
	// Left is set for an agent who is no longer in the house.
	Left bool
	// Tone is the number of the disc's colour, out of eight.
	Tone uint32
}

// People knows the agents of one house.
type People interface {
	// Meet looks up the agents with these ids. It fails if it cannot look them up now.
	Meet(ctx context.Context, ids ...string) error
	// ByID returns an agent whom Meet has found.
	ByID(id string) Author
	// Address returns the page of the person or bot that a handle means, or "" if nobody in the house has the handle.
	Address(handle string) string
}

// Artifacts looks up the files of chats.
type Artifacts interface {
	GetArtifact(context.Context, *arbev1.GetArtifactRequest) (*arbev1.GetArtifactResponse, error)
}

// Threads looks up the threads delegated from a thread.
type Threads interface {
	GetThread(context.Context, *arbev1.GetThreadRequest) (*arbev1.GetThreadResponse, error)
	ListThreads(context.Context, *arbev1.ListThreadsRequest) (*arbev1.ListThreadsResponse, error)
}

// Body is the contents of an entry's row: a [Chat], [Command], [CommandEnd], [BuildFailure], [Step], [Call], [Compaction],
// [TurnEnd], [Approval], [Refused], [Note], [StatusNote], [WhyNote], [ForkedFrom] or [Generic].
type Body any

// maxLearned limits a live page's memory of entries, in bytes. It reads forgotten ones again.
const maxLearned = 4 << 20

// known is a transcript's knowledge of its thread, from the entries that its ledger has paired.
type known struct {
	people    People
	artifacts Artifacts
	// thread is its id. origin is its source, or nil if it is not a fork.
	thread string
	origin *arbev1.Origin
	// house and environment are the thread's. If environment is empty, the house's default applies.
	house, environment string
	// driver is the bot that drives the thread. It is empty for a chat.
	driver string
	// unfolded shows entries in full.
	unfolded bool
	// children holds the current state of the threads that entries of this piece delegated to. It is nil for a deleted thread.
	children map[string]*arbev1.Thread

	// ledger pairs the entries that it has seen. running is the turn or run that is at work according to the thread's row.
	// unseen are the turns and runs known only from deltas. The ledger may know neither running nor unseen. beats are the
	// last heartbeats of runs. explained are the turns whose reason a row shows.
	ledger    entry.Ledger
	running   turn
	unseen    map[string]turn
	beats     map[string]entry.Heartbeat
	explained map[string]bool
	// lastChat is the id of the last chat that is not an answer of a turn. lastSaid is the position of the last row that is
	// not a note. lastSandbox is the sandbox of the last command with a result.
	lastChat    string
	lastSaid    int64
	lastSandbox string

	// states holds the edits, deletions and reactions of messages, by id.
	states map[string]*arbev1.EntryState

	// effort is the remaining budget for formatting this piece. lookups counts the artifacts that were looked up for it.
	effort  *markup.Effort
	lookups int
}

// brief returns what a transcript remembers of an entry's payload. From a long text, it keeps only the parts that pages show
// elsewhere. It returns nil for a payload that the transcript remembers completely.
func brief(p entry.Payload) entry.Payload {
	switch p := p.(type) {
	case entry.Chat:
		return entry.Chat{Text: entry.Clip(strings.Join(strings.Fields(entry.Clip(p.Text, MaxWord)), " "), 80)}
	case entry.Command:
		return entry.Command{Command: entry.Clip(p.Line(), MaxWord), SandboxID: p.SandboxID}
	case entry.PiAssistant:
		return entry.PiAssistant{Turn: p.Turn}
	case entry.PiCompaction:
		return entry.PiCompaction{Turn: p.Turn}
	case entry.PermissionAsked:
		return entry.PermissionAsked{ApprovalID: p.ApprovalID, AgentID: p.AgentID, Question: p.Question}
	case entry.TurnEnded:
		return entry.TurnEnded{AgentID: p.AgentID}
	case entry.RunFinished:
		p.Error, p.Result, p.LastLines, p.PatchError = "", "", "", entry.Clip(p.PatchError, MaxNote)
		return p
	case entry.PiFailed:
		return entry.PiFailed{Epoch: p.Epoch}
	case entry.SessionOrphaned:
		return entry.SessionOrphaned{Epoch: p.Epoch}
	case entry.QueueEdited:
		return entry.QueueEdited{EntryID: p.EntryID, Text: entry.OneLine(p.Text, MaxNote)}
	case entry.QueueTaken:
		return entry.QueueTaken{Epoch: p.Epoch}
	}
	return nil
}

// started returns the position of a command, or 0 if it is unknown, and the beginning of its line.
func (k *known) started(command string) (seq int64, line string) {
	start := k.ledger.Of(entry.CommandWork, command).Opened()
	if start == nil {
		return 0, ""
	}
	c, _ := entry.SeenAs[entry.Command](start)
	return start.Seq, c.Command
}

// ended returns the result of a command, and its position.
func (k *known) ended(command string) (result entry.CommandResult, seq int64, ok bool) {
	end := k.ledger.Of(entry.CommandWork, command).Completed()
	if end == nil {
		return result, 0, false
	}
	result, ok = entry.SeenAs[entry.CommandResult](end)
	return result, end.Seq, ok
}

// outcome returns how a command ended, in the words of [entry.CommandResult.Outcome] with the name of the person or bot who
// stopped it: "stopped by Ada with SIGINT · exit 130 · 1.2s". The transcript must have met them.
func (k *known) outcome(r entry.CommandResult) string {
	words := r.Outcome()
	if rest, cancelled := strings.CutPrefix(words, "cancelled"); cancelled && r.CancelledBy != "" {
		return "stopped by " + k.people.ByID(r.CancelledBy).Name + rest
	}
	return words
}

// chat returns a chat whose beginning is remembered, or nil if the chat is unknown.
func (k *known) chat(id string) *entry.Seen { return k.ledger.Of(entry.ChatWork, id).Opened() }

// hasStep reports whether the log already has a step. Deltas of the step are then late.
func (k *known) hasStep(id string) bool {
	return k.ledger.Of(entry.StepWork, id).Completed() != nil
}

// named returns an agent's name for a sentence.
func (k *known) named(id string) string {
	return cmp.Or(entry.Clip(k.people.ByID(id).Name, MaxWord), "The bot")
}

// reasonOf returns why the turn of an entry began. It returns the reason only once, for the first row of the turn.
func (k *known) reasonOf(e entry.Entry) string {
	t := k.turn(entry.TurnOf(e.ID))
	if !t.known() || k.explained[t.ID] || e.Author != t.Agent {
		return ""
	}
	k.explained[t.ID] = true
	return why(t.Reason)
}

// why says in a sentence why a turn began.
func why(reason string) string {
	if reason == "" {
		return ""
	}
	return entry.Reason(reason).Explain()
}

// turn returns the known data of a turn, or of a run of the thread's coding agent, by its [entry.AnswerOf].
func (k *known) turn(id string) turn {
	t := k.unseen[id]
	if k.running.ID == id {
		t = k.running
	}
	work := entry.AnswerWork(id)
	p := k.ledger.Of(work.Kind, work.ID)
	beat, beaten := k.beats[id]
	if beaten {
		t.Does = beat.Doing()
	}
	if p.First() == nil {
		return t
	}
	if began := p.First().Time; t.ID == "" || began.Before(t.Began) {
		t.Began = began
	}
	t.ID, t.Ended = id, p.Completed() != nil || p.First().Seq <= k.origin.GetSeq()
	if t.Agent = cmp.Or(agentOfTurn(p.First()), t.Agent); work.Kind == entry.RunWork {
		t.Agent = cmp.Or(k.driver, t.Agent)
	}
	if started, ok := entry.SeenAs[entry.TurnStarted](p.Opened()); ok {
		t.Reason = started.Reason
	}
	switch last := p.Last(); w := last.Payload.(type) {
	case entry.TurnWaiting:
		t.Waits, t.Next = w.For(), last.Time.Add(time.Duration(w.DelayMS)*time.Millisecond)
	case entry.PermissionAsked:
		t.Waits = "waiting for a person's approval"
	case entry.CancelRequested:
		t.Waits = "stopping"
	}
	if beat, ok := entry.Latest[entry.Heartbeat](p); ok && !beaten && work.Kind == entry.RunWork {
		t.Does = beat.Doing()
	}
	return t
}

// turnsAtWork returns the turns and runs that have not ended, oldest first.
func (k *known) turnsAtWork() (list []turn) {
	ids := slices.Concat(k.ledger.All(entry.TurnWork), k.ledger.All(entry.RunWork), slices.Collect(maps.Keys(k.unseen)))
	ids = append(ids, k.running.ID)
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if t := k.turn(id); t.known() && !t.Ended {
			list = append(list, t)
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Began.Before(list[j].Began) })
	return list
}

// learnRunning remembers the turn or run in progress that the row of a thread names, because its beginning may be far up.
func (k *known) learnRunning(thread *arbev1.Thread) {
	switch r := thread.GetRunning(); {
	case r.GetTurnId() != "":
		k.running = turn{ID: r.TurnId, Agent: r.AgentId, Began: r.Since.AsTime()}
	case r.GetRunEpoch() > 0:
		k.running = turn{ID: entry.RunID(r.RunEpoch), Agent: r.AgentId, Began: r.Since.AsTime()}
	}
}

// forget limits the memory of a live page. Otherwise it would grow as long as the page is open.
func (k *known) forget() {
	if k.ledger.Size() <= maxLearned {
		return
	}
	if k.turn(k.running.ID).Ended {
		k.running = turn{}
	}
	maps.DeleteFunc(k.unseen, func(id string, _ turn) bool { return k.turn(id).Ended })
	maps.DeleteFunc(k.beats, func(id string, _ entry.Heartbeat) bool { return k.turn(id).Ended })
	k.ledger.Forget(func(w entry.Work, p *entry.Progress) bool {
		return (w.Kind == entry.TurnWork || w.Kind == entry.RunWork) && p.Completed() == nil
	})
	clear(k.explained)
	clear(k.states)
}

// turn is the known data of a bot's turn, or of a run of the coding agent.
type turn struct {
	ID, Agent string
	// Reason is the trigger in one word; empty if the turn's beginning was not seen.
	Reason string
	// Began is when the turn began, or the time of the first of its entries that was seen.
	Began time.Time
	// Ended reports that it has ended, or that it continues in the thread that this thread was forked from.
	Ended bool
	// Does says what a run is doing, according to its last heartbeat.
	Does string
	// Waits says whom it waits for and why, if it waits. Next is the time of the next try.
	Waits string
	Next  time.Time
}

// known reports whether the turn is known.
func (t turn) known() bool { return t.ID != "" }

// word says what a turn without any text is doing: whom it waits for, and the time of the next try if that is in the future.
func (t turn) word() string {
	if t.Waits == "" {
		return cmp.Or(t.Does, "at work")
	}
	if left := time.Until(t.Next); left > 0 {
		return t.Waits + "; next try in " + entry.Approximately(left)
	}
	return t.Waits
}

// agentOfTurn returns the bot whose turn an entry belongs to.
func agentOfTurn(s *entry.Seen) string {
	if names := s.Agents(); len(names) > 0 {
		return names[0]
	}
	return s.Author
}

// turnOfEntry returns the id of the turn or run, if any, that an entry is about.
func turnOfEntry(e entry.Entry) string {
	part, _ := entry.DoesTo(e, entry.TurnWork)
	run, _ := entry.DoesTo(e, entry.RunWork)
	return cmp.Or(entry.AnswerOf(e.ID), part.ID, run.ID)
}

func (k *known) nameOf(agent string) string {
	return entry.Clip(cmp.Or(k.people.ByID(agent).Name, "somebody"), MaxWord)
}
