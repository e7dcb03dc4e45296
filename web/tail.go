package web

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

const (
	// paintEvery is the shortest time between two previews of a running command's output. Otherwise fast output would
	// be rendered for every piece of it.
	paintEvery = 120 * time.Millisecond
	// maxReplay is how many entries a page catches up on one by one. A page that is further behind loads pages of entries.
	maxReplay = 200
	// maxScreens limits the number of commands whose output one connection shows at the same time.
	maxScreens = 16
)

// Behind its last row a live page has the place of the next one: <div id="next-18">. The event of entry 18 replaces
// that place by the row and the place of entry 19. Therefore an event that arrives twice, after a retry or over a
// second connection, finds no place and changes nothing, and so does one that would leave a gap.

// followThread keeps a thread's log live, and its head and details.
func (a *app) followThread(ctx context.Context, c *liveConn, t topic) error {
	after, err := strconv.ParseInt(t.cursor, 10, 64)
	if err != nil || after < 0 {
		return c.end(ctx, t, "thread", fault.Newf(fault.NotFound, "open the thread again", "%q is not a position in a log", clip(t.cursor, 40)))
	}
	res, err := a.services.threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: t.id})
	if err != nil {
		return c.end(ctx, t, "thread", err)
	}
	people, err := a.peopleOf(ctx, res.Thread.HouseId)
	if err != nil {
		return c.end(ctx, t, "thread", err)
	}
	l := &liveThread{app: a, conn: c, topic: t, thread: res.Thread, log: a.newTranscript(res.Thread, people),
		screens: map[string]*markup.LiveOutput{}, dirty: map[string]bool{}, writing: map[string]*writing{}, turns: map[string]bool{}, typing: newTypists()}
	if behind := res.Thread.Tail - after; behind > maxReplay || behind < 0 {
		return l.rejoin(ctx, after, behind)
	}
	return l.follow(ctx, after)
}

// liveThread is one browser watching one thread.
type liveThread struct {
	app    *app
	conn   *liveConn
	topic  topic
	thread *arbev1.Thread
	log    *transcript
	// screens has the output of running commands and of builds, by the id of the entry that will have it. A nil screen is not
	// shown. dirty has those that changed since they were painted, and none that is nil.
	screens map[string]*markup.LiveOutput
	dirty   map[string]bool
	// writing has the steps that are being written, by the turn's id. turns has the turns that changed since they were
	// painted.
	writing map[string]*writing
	turns   map[string]bool
	typing  *typists
	// looked reports that the chats before the connection were read.
	looked bool
}

// follow sends what happens after a position, until the reader leaves or the log ends.
func (l *liveThread) follow(ctx context.Context, after int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// It begins with an entry that the browser has, because how the next row looks depends on it.
	stream, err := l.app.services.entries.Tail(ctx, &arbev1.TailRequest{ThreadId: l.thread.Id, After: max(after-1, 0)})
	if err != nil {
		return l.conn.end(ctx, l.topic, "thread", err)
	}
	defer func() { _ = stream.Close() }() // no error to handle, because its end was reported or the reader left

	events := make(chan *arbev1.TailResponse)
	ended := background(func() error {
		for stream.Receive() {
			select {
			case events <- stream.Msg():
			case <-ctx.Done():
				return nil
			}
		}
		return stream.Err()
	})
	here := &subscriber{session: ctx, topic: l.topic}
	around := l.app.watches.join("thread/"+l.thread.Id, func() *sharedWatch { return l.app.threadWatch(l.thread) }, here)
	defer l.app.watches.leave(around, here)

	paint := time.NewTimer(paintEvery)
	var painted time.Time
	defer paint.Stop()
	defer l.typing.over.Stop()
	for {
		var step func() error
		painting := false
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return l.conn.end(ctx, l.topic, "thread", err)
		case event := <-events:
			step = func() error { return l.take(ctx, event, after) }
		case <-here.pending:
			step = func() error { return l.conn.pass(around, here) }
		case <-l.typing.over.C:
			step = func() error { return l.typedNoMore(ctx, "") }
		case <-paint.C:
			step, painting = func() error { return l.paint(ctx) }, true
			painted = time.Now()
		}
		clean := painting || len(l.dirty) == 0 && len(l.turns) == 0
		if err := guarded(step); err != nil {
			return l.conn.end(ctx, l.topic, "thread", err)
		}
		if clean && len(l.dirty)+len(l.turns) > 0 {
			paint.Reset(max(paintEvery-time.Since(painted), 0)) // the first piece is shown at once
		}
	}
}

// take handles one event of the log.
func (l *liveThread) take(ctx context.Context, e *arbev1.TailResponse, after int64) error {
	switch {
	case e.GetEntry() != nil:
		added := entryOf(e.GetEntry())
		if err := l.entry(ctx, added, added.Seq > after); err != nil {
			return err
		}
		return l.typedNoMore(ctx, added.Author)
	case e.GetTyping() != nil:
		return l.typed(ctx, e.GetTyping().AgentId)
	case e.GetDelta() != nil:
		l.delta(ctx, e.GetDelta())
	case e.GetCaughtUp() != nil:
		return l.conn.send(event{Topic: l.topic.name()})
	}
	return nil
}

// entry sends one entry to its place. An entry that is not new is not sent: only the rows after it depend on it.
func (l *liveThread) entry(ctx context.Context, e entry.Entry, isNew bool) error {
	defer l.log.forget()
	l.log.searches, l.log.effort = 0, markup.NewEffort()
	if err := l.findReplied(ctx, e); err != nil {
		return err
	}
	r, err := l.log.row(ctx, e)
	if err != nil || !isNew {
		return err
	}
	var patches []patch
	if err := l.commandEntry(ctx, e, &patches); err != nil {
		return err
	}
	if err := l.turnEntry(ctx, e, &patches); err != nil {
		return err
	}
	row, err := replaced(ctx, "#"+nextID(e.Seq), templ.Join(entryRow(r), nextPlace(e.Seq+1)))
	if err != nil {
		return err
	}
	return l.conn.send(event{Topic: l.topic.name(), Cursor: strconv.FormatInt(e.Seq, 10), Patches: append(patches, row)})
}

// commandEntry adds the patches that an entry of a command needs: of the command's block, which shows its result and its build.
func (l *liveThread) commandEntry(ctx context.Context, e entry.Entry, patches *[]patch) error {
	if result, ok := entry.As[entry.CommandResult](e); ok {
		l.drop(e.ID)
		l.dropBuilds(result.SandboxID)
		v := commandView{
			Thread: l.thread.Id, ID: result.CommandID, Key: blockKey(result.CommandID),
			Result: &result, ResultSeq: e.Seq, OtherSandbox: l.log.otherSandbox(result), Outcome: l.log.outcome(result),
		}
		v.Seq, _ = l.log.started(result.CommandID)
		l.log.describe(&v, "")
		return l.patch(ctx, e, patches, map[string]templ.Component{
			v.Key + "-boot": commandBoot(v), v.Key + "-out": commandOutput(v), v.Key + "-foot": commandFoot(v),
		})
	}
	if command, placed := l.log.ledger.Placed(e.ID); placed {
		l.drop(e.ID)
		v := commandView{Thread: l.thread.Id, ID: command.ID, Key: blockKey(command.ID)}
		v.Seq, _ = l.log.started(command.ID)
		l.log.describe(&v, "")
		return l.patch(ctx, e, patches, map[string]templ.Component{v.Key + "-boot": commandBoot(v)})
	}
	return nil
}

// patch adds the patches that put parts of e into the elements with their ids.
func (l *liveThread) patch(ctx context.Context, e entry.Entry, patches *[]patch, parts map[string]templ.Component) error {
	for _, id := range slices.Sorted(maps.Keys(parts)) {
		if part := l.log.safe(ctx, e, func() templ.Component { return parts[id] }, nil); part != nil {
			text, err := rendered(ctx, part)
			if err != nil {
				return err
			}
			*patches = append(*patches, patch{Selector: "#" + id, HTML: string(text)})
		}
	}
	return nil
}

// delta adds a piece of output to a screen, for the next paint.
func (l *liveThread) delta(ctx context.Context, d *arbev1.Delta) {
	if step, call, ok := entry.StepDelta(d.EntryId); ok {
		l.write(step, call, d)
		return
	}
	command, isOutput := strings.CutSuffix(d.EntryId, entry.ResultID(""))
	_, isBuild := builtSandbox(d.EntryId)
	if !isOutput && !isBuild {
		return
	}
	screen, ok := l.screens[d.EntryId]
	if !ok {
		_, _, ended := l.log.ended(command)
		_, built := l.log.ledger.Placed(d.EntryId)
		if ended || built || !l.room() {
			return
		}
		screen = markup.NewLiveOutput()
		l.screens[d.EntryId] = screen
	}
	if screen == nil {
		return // not shown any more
	}
	if err := guarded(func() error { screen.Write(d.Offset, d.Data); return nil }); err != nil {
		l.giveUp(ctx, d.EntryId, err)
		return
	}
	l.dirty[d.EntryId] = true
}

// builtSandbox returns the sandbox of a build whose output has this id. ok is false for the output of a command.
func builtSandbox(id string) (sandbox string, ok bool) {
	if strings.HasSuffix(id, entry.ResultID("")) {
		return "", false
	}
	return entry.PreparedSandbox(id)
}

// room reports whether there may be one more screen. If there are too many, it drops that of a build, because a build without
// steps leaves no entry that would do it.
func (l *liveThread) room() bool {
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

// dropBuilds drops the screens of builds after a command has ended in a sandbox: the build of that sandbox, and all if no
// command waits. If one of them still prints, its next piece makes a new screen.
func (l *liveThread) dropBuilds(sandbox string) {
	for id := range l.screens {
		built, isBuild := builtSandbox(id)
		if !isBuild {
			continue
		}
		if _, waits := l.log.ledger.OldestOpen(entry.CommandWork); !waits || built == sandbox {
			l.drop(id)
		}
	}
}

// drop frees a screen.
func (l *liveThread) drop(id string) {
	delete(l.screens, id)
	delete(l.dirty, id)
}

// hide stops showing a screen until it is dropped.
func (l *liveThread) hide(id string) {
	l.screens[id] = nil
	delete(l.dirty, id)
}

// giveUp stops showing live output that cannot be rendered. The command's result will show it.
func (l *liveThread) giveUp(ctx context.Context, id string, err error) {
	l.hide(id)
	l.app.log.ErrorContext(ctx, "web: live output cannot be rendered", "thread", l.thread.Id, "entry", id, "error", err)
}

// paint sends the screens that changed since the last paint.
func (l *liveThread) paint(ctx context.Context) error {
	for id := range l.dirty {
		place, painting, err := l.painting(ctx, id, l.screens[id])
		if err != nil {
			return err
		}
		if place == "" {
			continue
		}
		var painted []byte
		err = guarded(func() (err error) {
			painted, err = rendered(ctx, painting)
			return err
		})
		if ctx.Err() != nil {
			return ctx.Err() // the reader left
		}
		if err != nil {
			l.giveUp(ctx, id, err)
		} else if err := l.conn.send(event{Topic: l.topic.name(), Patches: []patch{{Selector: "#" + place, HTML: string(painted)}}}); err != nil {
			return err
		}
	}
	clear(l.dirty)
	return l.paintTurns(ctx)
}

// painting renders a screen, and returns the id of the element that shows it: a command's output, or the build that the
// oldest open command waits for. The id is empty if no command is known to wait. It fails if the log cannot be read, and the
// browser then connects again: only the server has the output of a build.
func (l *liveThread) painting(ctx context.Context, id string, s *markup.LiveOutput) (place string, shown templ.Component, err error) {
	text, missed := markup.Output{}, int64(0)
	if err := guarded(func() error { text, missed = s.Text(), s.Missed; return nil }); err != nil {
		l.giveUp(ctx, id, err)
		return "", nil, nil
	}
	if command, isOutput := strings.CutSuffix(id, entry.ResultID("")); isOutput {
		key := blockKey(command)
		return key + "-out", liveOutput(key, text, missed), nil
	}
	if err := l.log.findOpen(ctx, 0); err != nil {
		return "", nil, err
	}
	command, waits := l.log.ledger.OldestOpen(entry.CommandWork)
	if !waits {
		l.hide(id) // the build's entry will show it
		return "", nil, nil
	}
	// Nothing is shown if the thread had this sandbox when the command started. The preview of a build without steps is
	// still there then, because no entry has ended it.
	start, _ := entry.SeenAs[entry.Command](l.log.ledger.Of(entry.CommandWork, command).Opened())
	if sandbox, _ := entry.PreparedSandbox(id); start.SandboxID == sandbox {
		return "", nil, nil
	}
	key := blockKey(command)
	return key + "-boot", liveBuild(key, text), nil
}

// rejoin handles a page that cannot catch up entry by entry. One that is far behind loads pages of entries as they are read,
// and one that is ahead of the log has to be opened again.
func (l *liveThread) rejoin(ctx context.Context, after, behind int64) error {
	gap := newerPlace(l.thread.Id, after)
	if behind < 0 {
		gap = liveEnd("The log is shorter than this page.", "Open the thread again.", threadPath(l.thread.Id))
	}
	p, err := replaced(ctx, "#"+nextID(after+1), gap)
	if err != nil {
		return err
	}
	// A page without #live follows nothing. Only the element at this place is removed, because the page may have made
	// another one meanwhile.
	return l.conn.send(event{Topic: l.topic.name(), Patches: []patch{p, {Selector: ":is(#newer, .farewell) ~ #writing", Mode: "remove"}, {Selector: ":is(#newer, .farewell) + #live", Mode: "remove"}}, End: true})
}

func nextID(seq int64) string { return "next-" + strconv.FormatInt(seq, 10) }

// callEntry adds the patches that an entry of a tool call needs: of the call in its step, and of the card that asks for approval.
func (l *liveThread) callEntry(ctx context.Context, e entry.Entry, patches *[]patch) error {
	if result, ok := entry.As[entry.PiToolResult](e); ok {
		v := callView{Key: callKey(e.ID), Class: resultClass(result), Result: resultOf(result)}
		return l.patch(ctx, e, patches, map[string]templ.Component{v.Key + "-state": callState(v), v.Key + "-result": callResult(v)})
	}
	if call, ok := entry.DoesTo(e, entry.CallWork); ok && call.Stage == entry.Updates {
		if err := l.showCall(ctx, e, call.ID, patches); err != nil {
			return err
		}
	}
	if p, ok := entry.As[entry.PermissionAnswered](e); ok {
		v := l.log.answerView(p)
		return l.patch(ctx, e, patches, map[string]templ.Component{v.Key: approvalAnswer(v)})
	}
	return nil
}

// turnEntry adds the patches that an entry of a turn needs: of its step's calls, and of the block of the turn at work.
func (l *liveThread) turnEntry(ctx context.Context, e entry.Entry, patches *[]patch) error {
	if err := l.callEntry(ctx, e, patches); err != nil {
		return err
	}
	id := turnOfEntry(e)
	seen := l.log.turn(id)
	if !seen.known() {
		return nil
	}
	if w := l.writing[id]; w != nil && (seen.Ended || w.step == e.ID) {
		// Its row has everything. The step is kept, because deltas of it may still be on their way.
		*w = writing{step: w.step, call: w.call, offset: w.offset, over: true}
	}
	if seen.Ended {
		delete(l.writing, id)
		delete(l.turns, id)
		*patches = append(*patches, writingGone(id))
		return nil
	}
	return l.showTurn(ctx, seen, patches)
}

// showCall shows what a call that has no result yet does: whether it waits for a person's yes, or runs a command, whose block
// then shows it.
func (l *liveThread) showCall(ctx context.Context, e entry.Entry, result string, patches *[]patch) error {
	v := l.log.callOf(result, entry.PiBlock{})
	if v.InCommand {
		return l.patch(ctx, e, patches, map[string]templ.Component{v.Key: callElsewhere(v.Key)})
	}
	return l.patch(ctx, e, patches, map[string]templ.Component{v.Key + "-state": callState(v)})
}

// turnOfEntry returns the id of the turn that an entry is about; empty if it is about none.
func turnOfEntry(e entry.Entry) string {
	part, _ := entry.DoesTo(e, entry.TurnWork)
	return cmp.Or(entry.TurnOf(e.ID), part.ID)
}

// write adds a piece of a step that is being written.
func (l *liveThread) write(step, call string, d *arbev1.Delta) {
	id := entry.TurnOf(step)
	if l.log.turn(id).Ended || l.log.hasStep(step) {
		return // the log has it
	}
	w := l.writing[id]
	if w == nil {
		if len(l.writing) >= maxWriting {
			return
		}
		w = &writing{}
		l.writing[id] = w
	}
	w.take(step, call, d.Offset, d.Data)
	l.turns[id] = true
}

// showTurn adds the patches that show a turn at work as it is now.
func (l *liveThread) showTurn(ctx context.Context, seen turnSeen, patches *[]patch) error {
	if err := l.log.people.meet(ctx, seen.Agent); err != nil {
		return err
	}
	w := l.writing[seen.ID]
	var added []patch
	err := guarded(func() (err error) {
		view := l.log.writingOf(seen, w)
		if added, err = view.patches(ctx, w); err == nil && w != nil {
			w.paint(view)
		}
		return err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // the reader left
	case err != nil:
		l.app.log.ErrorContext(ctx, "web: a bot's text cannot be rendered while it is written", "thread", l.thread.Id, "turn", seen.ID, "error", err)
		l.writing[seen.ID] = &writing{}
		return nil
	}
	*patches = append(*patches, added...)
	return nil
}

// paintTurns sends the turns that changed since the last paint.
func (l *liveThread) paintTurns(ctx context.Context) error {
	for id := range l.turns {
		seen := l.log.turn(id)
		if !seen.known() {
			var err error
			if seen, err = l.findTurn(ctx, id); err != nil {
				return err
			}
		}
		// A browser that connects again gets deltas of steps that the log has by now.
		if w := l.writing[id]; seen.Ended || w != nil && l.log.hasStep(w.step) {
			delete(l.writing, id)
			delete(l.turns, id)
			continue
		} else if w != nil && time.Now().Before(w.rest) {
			continue
		}
		delete(l.turns, id)
		var patches []patch
		if err := l.showTurn(ctx, seen, &patches); err != nil {
			return err
		}
		if len(patches) > 0 {
			if err := l.conn.send(event{Topic: l.topic.name(), Patches: patches}); err != nil {
				return err
			}
		}
	}
	return nil
}

// findReplied reads the last entries if e replies to a chat from before this connection, once.
func (l *liveThread) findReplied(ctx context.Context, e entry.Entry) error {
	c, _ := entry.As[entry.Chat](e)
	if c.ReplyTo == "" || l.looked || l.log.chat(c.ReplyTo) != nil {
		return nil
	}
	l.looked = true
	above, err := l.log.list(ctx, &arbev1.ListRequest{Before: e.Seq, Limit: searchSize})
	if err != nil {
		return err
	}
	for _, e := range above {
		if part, _ := entry.DoesTo(e, entry.ChatWork); part.Stage == entry.Opens {
			l.log.ledger.Learn(e)
		}
	}
	return nil
}

// findTurn searches the last entries for a turn that began before this connection, and then the thread's row. If neither has
// it, its bot has no name until the step ends.
func (l *liveThread) findTurn(ctx context.Context, id string) (turnSeen, error) {
	above, err := l.log.list(ctx, &arbev1.ListRequest{Last: true, Limit: searchSize})
	if err != nil {
		return turnSeen{}, err
	}
	for _, e := range above {
		if turnOfEntry(e) == id {
			l.log.ledger.Learn(e)
		}
	}
	l.log.learnRunning(l.thread)
	if !l.log.turn(id).known() {
		l.log.unseen[id] = turnSeen{ID: id, Began: time.Now()}
	}
	return l.log.turn(id), nil
}
