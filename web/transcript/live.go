package transcript

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
	"github.com/arbe-dev/arbe/web/markup"
)

const (
	// maxScreens limits the number of commands whose output one page shows at the same time.
	maxScreens = 16
	// maxWriting limits the turns of one thread that a page shows while they are being written.
	maxWriting = 16
)

// Change is a change of an open page: a [CommandEnded], [CommandBuilt], [CallEnded], [CallChanged], [ApprovalAnswer], [Rewritten], [Reacted],
// [OutputPainted], [BuildPainted], [TurnChange] or [TurnGone].
type Change any

type (
	// CommandEnded is a command that has a result.
	CommandEnded struct{ Command }
	// CommandBuilt is a command whose sandbox was built.
	CommandBuilt struct{ Command }
	// CallEnded is a tool call that has a result.
	CallEnded struct{ Call }
	// CallChanged is a tool call that waits for a person, goes on, or is shown by a command's block.
	CallChanged struct{ Call }
	// OutputPainted is the output of a running command. Missed is the number of its bytes that did not arrive.
	OutputPainted struct {
		// Key is the command's key.
		Key    string
		Output markup.Output
		Missed int64
	}
	// BuildPainted is the output of the build that a command waits for.
	BuildPainted struct {
		// Key is the command's key.
		Key    string
		Output markup.Output
	}
	// FateChanged is a message that somebody changed while it waited for a coding agent.
	FateChanged struct{ Fate }
	// Rewritten is a row whose message was edited or deleted, and Reacted one to which somebody reacted.
	Rewritten struct{ Row }
	Reacted   struct{ Row }
	// TurnGone is a turn that has ended. Key is the key of its block.
	TurnGone struct{ Key string }
)

// Show puts a change into the page. It returns an error if it cannot render the change.
type Show func(Change) error

// Live is a transcript that continues. It also shows what is not in the log yet: the output of running commands and of
// builds, and the unfinished texts of bots. It is not safe for concurrent use.
type Live struct {
	*Transcript
	of *arbev1.Thread // the thread's row when the page began
	// screens has the output of running commands and of builds, by the id of the entry that will have it. A nil screen is not
	// shown. dirty has the screens that changed since they were painted; it never has nil screens.
	screens map[string]*markup.LiveOutput
	dirty   map[string]bool
	// printed has the screens of commands that were painted.
	printed map[string]bool
	// writing has the steps that are being written, by the turn's id. turns has the turns that changed since they were
	// painted.
	writing map[string]*written
	turns   map[string]bool
	// readAbove reports that the chats before the page's entries were read.
	readAbove bool
}

// NewLive returns the transcript of a thread for a page that is open.
func NewLive(from Source, thread *arbev1.Thread) *Live {
	return &Live{
		Transcript: New(from, thread), of: thread,
		screens: map[string]*markup.LiveOutput{}, dirty: map[string]bool{}, printed: map[string]bool{}, writing: map[string]*written{}, turns: map[string]bool{},
	}
}

// Take shows the next entry of the log. It returns the entry's row, and calls show for what the entry changes further up.
func (l *Live) Take(ctx context.Context, e entry.Entry, show Show) (Row, error) {
	r, err := l.Learn(ctx, e)
	if err != nil {
		return r, err
	}
	if err := l.commandEntry(e, show); err != nil {
		return r, err
	}
	if err := l.callEntry(e, show); err != nil {
		return r, err
	}
	if part, ok := entry.DoesTo(e, entry.ChatWork); ok && part.Stage == entry.Notes && l.driver != "" && !strings.HasPrefix(e.Type, entry.Quiet) {
		if err := show(FateChanged{*l.fateOf(part.ID)}); err != nil {
			return r, err
		}
	}
	if err := l.revised(ctx, e, show); err != nil {
		return r, err
	}
	return r, l.turnEntry(ctx, e, show)
}

// revised shows a message as it is after an entry about it, such as an edit. The message is read again, because it may be far
// up.
func (l *Live) revised(ctx context.Context, e entry.Entry, show Show) error {
	seq, reacted := int64(0), false
	if p, ok := entry.As[entry.ChatEdited](e); ok {
		seq = p.Seq
	} else if p, ok := entry.As[entry.ChatDeleted](e); ok {
		seq = p.Seq
	} else if p, ok := entry.As[entry.ChatReacted](e); ok {
		seq, reacted = p.Seq, true
	}
	if seq == 0 {
		return nil
	}
	at, err := l.messages.At(ctx, l.log, l.thread, seq, e.Seq)
	if err != nil || at == nil {
		return err
	}
	l.applyStates([]*arbev1.Entry{at})
	message := Entry(at)
	if err := l.meet(ctx, message); err != nil {
		return err
	}
	r := Row{Thread: l.thread, Entry: message, Author: l.people.ByID(message.Author), Reactions: l.reactionsTo(message.ID)}
	if reacted {
		return show(Reacted{r})
	}
	r.Body = l.body(ctx, kindOf(message), message)
	return show(Rewritten{r})
}

// Learn processes an entry that the page already has. The rows after it depend on it.
func (l *Live) Learn(ctx context.Context, e entry.Entry) (Row, error) {
	defer l.forget()
	l.begin()
	if err := l.findReplied(ctx, e); err != nil {
		return Row{}, err
	}
	return l.row(ctx, e)
}

// commandEntry shows an entry's changes in the block of a command, which shows the command's result and build.
func (l *Live) commandEntry(e entry.Entry, show Show) error {
	if result, ok := entry.As[entry.CommandResult](e); ok {
		l.drop(e.ID)
		l.dropBuilds(result.SandboxID)
		v := l.commandOf(result.CommandID)
		l.end(&v, result, e.Seq)
		return show(CommandEnded{v})
	}
	if command, placed := l.ledger.Placed(e.ID); placed {
		l.drop(e.ID)
		return show(CommandBuilt{l.commandOf(command.ID)})
	}
	return nil
}

// callEntry shows an entry's changes in a tool call of a step, and in requests to people.
func (l *Live) callEntry(e entry.Entry, show Show) error {
	if result, ok := entry.As[entry.PiToolResult](e); ok {
		v := Call{Key: callKey(e.ID)}
		v.Result, v.Class = callResult(result)
		return show(CallEnded{v})
	}
	if call, ok := entry.DoesTo(e, entry.CallWork); ok && call.Stage == entry.Updates {
		if err := show(CallChanged{l.callOf(call.ID, entry.PiBlock{})}); err != nil {
			return err
		}
	}
	if p, ok := entry.As[entry.PermissionAnswered](e); ok {
		return show(l.answerOf(p))
	}
	if p, ok := entry.As[entry.HostAllowed](e); ok {
		return show(HostAnswer{Thread: l.thread, Environment: p.EnvironmentID, Host: p.Host, Words: l.allowedBy(e.Author)})
	}
	return nil
}

// turnEntry shows an entry's changes in the block of the turn in progress that it belongs to.
func (l *Live) turnEntry(ctx context.Context, e entry.Entry, show Show) error {
	id := turnOfEntry(e)
	if _, first := entry.As[entry.Heartbeat](e); first {
		delete(l.beats, id) // heartbeats from before this entry
	}
	t := l.turn(id)
	if !t.known() {
		return nil
	}
	if w := l.writing[id]; w != nil && (t.Ended || w.step == e.ID) {
		w.isNowIn()
	}
	if t.Ended {
		delete(l.writing, id)
		delete(l.turns, id)
		return show(TurnGone{turnKey(id)})
	}
	return l.showTurn(ctx, t, show)
}

// showTurn shows the current state of a turn in progress.
func (l *Live) showTurn(ctx context.Context, t turn, show Show) error {
	if err := l.people.Meet(ctx, t.Agent); err != nil {
		return err
	}
	w := l.writing[t.ID]
	err := guard.Run(func() error {
		v := l.workOf(t, w)
		err := show(w.change(v))
		if err == nil && w != nil {
			w.paint(v)
			if v.behind {
				l.turns[t.ID] = true
			}
		}
		return err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // the reader left
	case err != nil:
		l.logger.ErrorContext(ctx, "web: a bot's text cannot be rendered while it is written", "thread", l.thread, "turn", t.ID, "error", err)
		l.writing[t.ID] = &written{}
	}
	return nil
}

// Delta adds a piece that is not in the log yet, for the next [Live.Paint].
func (l *Live) Delta(ctx context.Context, d *arbev1.Delta) {
	if step, call, ok := entry.StepDelta(d.EntryId); ok {
		l.write(step, call, d)
		return
	}
	if run, ok := entry.BeatOf(d.EntryId); ok {
		l.beat(run, d)
		return
	}
	if run, ok := entry.BootOf(d.EntryId); ok {
		l.boot(run, d)
		return
	}
	screen := l.screenOf(d.EntryId)
	if screen == nil {
		return
	}
	if err := guard.Run(func() error { screen.Write(d.Offset, d.Data); return nil }); err != nil {
		l.giveUp(ctx, d.EntryId, err)
		return
	}
	l.dirty[d.EntryId] = true
}

// write adds a piece to a step that is being written.
func (l *Live) write(step, call string, d *arbev1.Delta) {
	id := entry.AnswerOf(step)
	if l.turn(id).Ended || l.hasStep(step) {
		return // the log already has it
	}
	w := l.writing[id]
	if w == nil {
		if len(l.writing) >= maxWriting {
			return
		}
		w = &written{}
		l.writing[id] = w
	}
	w.take(step, call, d.Offset, d.Data)
	l.turns[id] = true
}

// beat learns from a heartbeat what a run is doing.
func (l *Live) beat(run string, d *arbev1.Delta) {
	var h entry.Heartbeat
	if len(d.Data) > maxChunk || json.Unmarshal(d.Data, &h) != nil || entry.RunID(h.Epoch) != run || h.Validate() != nil || l.turn(run).Ended {
		return
	}
	if was, ok := l.beats[run]; !ok || was.Doing() != h.Doing() {
		l.beats[run] = h
		l.turns[run] = true
	}
}

// boot learns about the preparations for a run that has not begun.
func (l *Live) boot(run string, d *arbev1.Delta) {
	if len(d.Data) > maxChunk || l.ledger.Of(entry.RunWork, run).First() != nil {
		return // the log has more to say
	}
	steps := entry.BootSteps(d.Data)
	if len(steps) == 0 {
		return
	}
	if !l.turn(run).known() {
		l.unseen[run] = turn{ID: run, Agent: l.driver, Began: time.Now()}
	}
	l.beats[run] = entry.Heartbeat{Phase: steps[len(steps)-1]}
	l.turns[run] = true
}

// screenOf returns the screen for the output of a command or a build. It is nil for output that is not shown.
func (l *Live) screenOf(id string) *markup.LiveOutput {
	command, isOutput := strings.CutSuffix(id, entry.ResultID(""))
	_, isBuild := builtSandbox(id)
	if !isOutput && !isBuild {
		return nil
	}
	screen, ok := l.screens[id]
	if !ok {
		_, _, ended := l.ended(command)
		_, built := l.ledger.Placed(id)
		if ended || built || !l.hasFreeScreen() {
			return nil
		}
		screen = markup.NewLiveOutput()
		l.screens[id] = screen
	}
	return screen
}

// hasFreeScreen reports whether one more screen is allowed. If all screens are in use, it drops a build's screen, because a
// build without steps leaves no entry that would drop it.
func (l *Live) hasFreeScreen() bool {
	if len(l.screens) < maxScreens {
		return true
	}
	for id := range l.screens {
		if _, isBuild := builtSandbox(id); isBuild {
			l.drop(id)
			return true
		}
	}
	return false
}

// Changed reports whether something changed since it was painted.
func (l *Live) Changed() bool { return len(l.dirty)+len(l.turns) > 0 }

// Paint shows the changes since the last call: output that is not in the log yet, each piece separately, and turns in
// progress.
func (l *Live) Paint(ctx context.Context, show Show) error {
	for id := range l.dirty {
		if err := l.paintScreen(ctx, id, show); err != nil {
			return err
		}
	}
	clear(l.dirty)
	return l.paintTurns(ctx, show)
}

// paintScreen shows a screen. It fails if the log cannot be read. The browser then reconnects, because only the server has
// the output of a build.
func (l *Live) paintScreen(ctx context.Context, id string, show Show) error {
	text, missed := markup.Output{}, int64(0)
	if err := guard.Run(func() error { text, missed = l.screens[id].Text(), l.screens[id].Missed; return nil }); err != nil {
		l.giveUp(ctx, id, err)
		return nil
	}
	var painted Change
	if command, isOutput := strings.CutSuffix(id, entry.ResultID("")); isOutput {
		painted = OutputPainted{blockKey(command), text, missed}
	} else if command, err := l.commandOfBuild(ctx, id); err != nil {
		return err
	} else if command != "" {
		painted = BuildPainted{blockKey(command), text}
	}
	if painted == nil {
		return nil
	}
	err := guard.Run(func() error {
		if command, isOutput := strings.CutSuffix(id, entry.ResultID("")); isOutput && !l.printed[id] {
			l.printed[id] = true
			if err := show(CommandBuilt{l.commandOf(command)}); err != nil { // its sandbox's build is over
				return err
			}
		}
		return show(painted)
	})
	if ctx.Err() != nil {
		return ctx.Err() // the reader left
	}
	if err != nil {
		l.giveUp(ctx, id, err)
	}
	return nil
}

// commandOfBuild returns the oldest open command, which waits for the build. It returns "" if it knows of no command that waits.
func (l *Live) commandOfBuild(ctx context.Context, id string) (command string, err error) {
	if err := l.findOpen(ctx, 0); err != nil {
		return "", err
	}
	command, waits := l.ledger.OldestOpen(entry.CommandWork)
	if !waits {
		l.hide(id) // the build's entry will show it
		return "", nil
	}
	// Show nothing if the thread had this sandbox when the command started. The preview of a build without steps is then
	// still there, because no entry has ended it.
	start, _ := entry.SeenAs[entry.Command](l.ledger.Of(entry.CommandWork, command).Opened())
	if sandbox, _ := entry.PreparedSandbox(id); start.SandboxID == sandbox || l.printed[entry.ResultID(command)] {
		return "", nil
	}
	return command, nil
}

// paintTurns shows the turns that changed since the last paint.
func (l *Live) paintTurns(ctx context.Context, show Show) error {
	for id := range l.turns {
		t := l.turn(id)
		if !t.known() {
			var err error
			if t, err = l.findTurn(ctx, id); err != nil {
				return err
			}
		}
		// A browser that reconnects gets deltas of steps that are in the log by now.
		if w := l.writing[id]; t.Ended || w != nil && !w.over && l.hasStep(w.step) {
			delete(l.writing, id)
			delete(l.turns, id)
			continue
		} else if w != nil && time.Now().Before(w.pausedUntil) {
			continue
		}
		delete(l.turns, id)
		if err := l.showTurn(ctx, t, show); err != nil {
			return err
		}
	}
	return nil
}

// findReplied reads the last entries if e replies to a chat from before this connection, once.
func (l *Live) findReplied(ctx context.Context, e entry.Entry) error {
	c, _ := entry.As[entry.Chat](e)
	if c.ReplyTo == "" || l.readAbove || l.chat(c.ReplyTo) != nil {
		return nil
	}
	l.readAbove = true
	above, err := l.list(ctx, &arbev1.ListRequest{Before: e.Seq, Limit: searchSize})
	if err != nil {
		return err
	}
	for _, e := range above {
		if part, _ := entry.DoesTo(e, entry.ChatWork); part.Stage == entry.Opens {
			l.ledger.Learn(e)
		}
	}
	return nil
}

// findTurn searches the last entries, and then the thread's row, for a turn that began before this connection. If neither
// names the turn, its bot has no name until the step ends.
func (l *Live) findTurn(ctx context.Context, id string) (turn, error) {
	above, err := l.list(ctx, &arbev1.ListRequest{Last: true, Limit: searchSize})
	if err != nil {
		return turn{}, err
	}
	for _, e := range above {
		if turnOfEntry(e) == id {
			l.ledger.Learn(e)
		}
	}
	l.learnRunning(l.of)
	if !l.turn(id).known() {
		l.unseen[id] = turn{ID: id, Began: time.Now()}
	}
	return l.turn(id), nil
}

// dropBuilds drops the screens of builds after a command has ended in a sandbox: the screen of that sandbox's build, or all
// of them if no command waits. If a build still prints, its next piece makes a new screen.
func (l *Live) dropBuilds(sandbox string) {
	for id := range l.screens {
		built, isBuild := builtSandbox(id)
		if !isBuild {
			continue
		}
		if _, waits := l.ledger.OldestOpen(entry.CommandWork); !waits || built == sandbox {
			l.drop(id)
		}
	}
}

// drop frees a screen.
func (l *Live) drop(id string) {
	delete(l.screens, id)
	delete(l.dirty, id)
	delete(l.printed, id)
}

// giveUp stops showing live output that cannot be rendered. The command's result will show it.
func (l *Live) giveUp(ctx context.Context, id string, err error) {
	l.hide(id)
	l.logger.ErrorContext(ctx, "web: live output cannot be rendered", "thread", l.thread, "entry", id, "error", err)
}

// hide stops showing a screen until it is dropped.
func (l *Live) hide(id string) {
	l.screens[id] = nil
	delete(l.dirty, id)
}

// builtSandbox returns the sandbox of a build whose output has this id. ok is false for the output of a command.
func builtSandbox(id string) (sandbox string, ok bool) {
	if strings.HasSuffix(id, entry.ResultID("")) {
		return "", false
	}
	return entry.PreparedSandbox(id)
}
