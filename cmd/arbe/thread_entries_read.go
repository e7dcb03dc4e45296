package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/wait"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// decideTime limits how long a reader waits for the decision which bots answer a message. It does not wait for a bot that
// begins later than soon.
const decideTime, soon = 30 * time.Second, 10 * time.Second

func threadEntriesRead(a *app) *cobra.Command {
	var tail int
	var follow, thinking bool
	cmd := &cobra.Command{
		Use:   "read [THREAD]",
		Short: "Print a thread as a conversation, until its bots have answered",
		Long: "Print a thread as a conversation: the messages of people and bots, and their actions in one line each. THREAD defaults\n" +
			"to $ARBE_THREAD. While a bot is working, its answer is printed as it is written. It ends when no bot is working,\n" +
			"or with --follow on Ctrl-C. A model's thinking is one line, too; --thinking prints all of it that the model showed.\n" +
			"\n" +
			"If a coding agent drives the thread, it ends when the agent's run has ended. It then exits with 0 if the last run was\n" +
			"completed, with 10 if it failed, and with 11 if someone stopped it.\n" +
			"\n" +
			"With --json it prints the entries, as arbe thread entries list does.",
		Example: "  arbe thread entries read th4w7q2m9x\n" +
			"  arbe thread entries read th4w7q2m9x --tail 50 --follow",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if tail < 0 {
				return fault.New(fault.Invalid, "--tail is below 0", "give how many entries to print, or 0 for all")
			}
			thread, err := a.threadID(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			r := &reading{entryPrinter: entryPrinter{app: a, client: c, thread: thread}, follow: follow, thinking: thinking, working: map[string]string{}, ended: map[string]bool{}}
			return r.read(ctx, tail)
		}),
	}
	cmd.Flags().IntVar(&tail, "tail", 0, "begin with the last `N` entries, not counting edits and reactions; 0 is all")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing until Ctrl-C")
	cmd.Flags().BoolVar(&thinking, "thinking", false, "print the thinking of models")
	return cmd
}

// reading prints a thread as a conversation.
type reading struct {
	entryPrinter
	follow bool
	// thinking means that the thinking of models is printed completely.
	thinking bool

	// listed means that messages are printed with their present texts. The entries that changed them are then not needed.
	listed bool

	// working holds the turns in progress, with their bots. A bot may be empty if its turn began before the first entry that
	// was read.
	working map[string]string
	// ended holds finished turns, which may still get notes.
	ended map[string]bool
	// at is the position of the last entry that was read.
	at int64
	// said is the position of the last message that no bot has begun on. It is 0 without such a message.
	said int64
	// spoke is the id of that message.
	spoke string
	// ran holds the commands whose results were printed.
	ran map[string]bool
	// run is how far the runs of the thread's coding agent are.
	run reachedRun
}

// errNobodyWorks ends the reading because no bot is working.
var errNobodyWorks = errors.New("no bot is at work")

// read prints the thread from the entry before the last ones on. It returns the outcome of the last run as an exit code.
func (r *reading) read(ctx context.Context, last int) error {
	after, err := r.before(ctx, last)
	if err != nil {
		return err
	}
	// The row includes at least what is before the first entry that is read. Later entries change it.
	if r.run, err = reach(ctx, r.client, r.thread); err != nil {
		return err
	}
	if after, err = r.past(ctx, after); err != nil {
		return err
	}
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	stop, caughtUp := func() {}, false
	defer func() { stop() }()
	for event, err := range r.app.follow(ctx, r.client, r.thread, after) {
		if err == nil {
			err = r.event(ctx, event)
		}
		caughtUp = caughtUp || event.GetCaughtUp() != nil
		runs := false
		if err == nil && caughtUp && !r.follow {
			stop()
			runs, err = r.run.goesOn(ctx, r.client, r.thread)
		}
		switch {
		case context.Cause(ctx) == errNobodyWorks:
			return r.end()
		case err != nil:
			return err
		case !caughtUp || r.follow || runs || len(r.working) > 0:
		case r.said > 0:
			stop = r.whenUnanswered(ctx, func() { leave(errNobodyWorks) })
		default:
			return r.end()
		}
	}
	return nil
}

// event prints what a tail delivers.
func (r *reading) event(ctx context.Context, event *arbev1.TailResponse) error {
	switch {
	case event.GetEntry() != nil:
		return r.take(ctx, event.GetEntry())
	case isBoot(event.GetDelta()):
		r.app.sayBoot(event.GetDelta().GetData())
	case event.GetDelta() != nil:
		return r.write(ctx, event.GetDelta())
	}
	return nil
}

// whenUnanswered calls leave once no bot is about to begin on the last message, unless the log then has an entry that was
// not read yet: the tail delivers it. After stop it does nothing.
func (r *reading) whenUnanswered(ctx context.Context, leave func()) (stop func()) {
	said, spoke, at := r.said, r.spoke, r.at
	ctx, stop = context.WithTimeout(ctx, decideTime)
	go func() {
		for pause := 20 * time.Millisecond; r.awaitsBot(ctx, said, spoke); pause = min(2*pause, time.Second) {
			wait.For(ctx, pause)
		}
		// The decisions were read before the log, so their results are in it.
		page, err := r.client.Entries.List(ctx, &arbev1.ListRequest{ThreadId: r.thread, After: at, Limit: 1})
		read := err == nil && len(page.GetEntries()) == 0
		if read || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			leave()
		}
	}()
	return stop
}

// awaitsBot reports whether a bot may soon begin on the message at a position. An error of the server counts as yes.
func (r *reading) awaitsBot(ctx context.Context, said int64, id string) bool {
	if ctx.Err() != nil {
		return false
	}
	decisions, err := r.client.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: r.thread, Decisions: true})
	return err != nil || decisions.GetDecided() < said || slices.ContainsFunc(decisions.GetWaiting(), func(b *arbev1.WaitingBot) bool {
		return slices.Contains(b.GetEntryIds(), id) && time.Until(b.GetUntil().AsTime()) < soon
	})
}

func (r *reading) end() error {
	r.endLine()
	return statusCode(r.run.status)
}

// before returns the position before the last entries that have lines of their own, which edits, deletions and reactions
// do not have. It returns 0 for all.
func (r *reading) before(ctx context.Context, last int) (after int64, err error) {
	for req := (&arbev1.ListRequest{ThreadId: r.thread, Last: true, Merged: true}); last > 0; req.Before = after + 1 {
		req.Limit = int32(min(last, pageSize))
		page, err := r.client.Entries.List(ctx, req)
		if err != nil {
			return 0, err
		}
		last -= len(page.GetEntries())
		if after = max(page.GetSearched()-1, 0); after == 0 {
			break
		}
	}
	return after, nil
}

// past prints the entries after a position that the log already has, with their present texts. It returns the position of the
// last entry.
func (r *reading) past(ctx context.Context, after int64) (int64, error) {
	r.listed = true
	defer func() { r.listed = false }()
	for {
		page, err := r.client.Entries.List(ctx, &arbev1.ListRequest{ThreadId: r.thread, After: after, Limit: pageSize})
		if err != nil || len(page.GetEntries()) == 0 {
			return after, err
		}
		for _, e := range page.GetEntries() {
			if err := r.take(ctx, e); err != nil {
				return after, err
			}
			after = e.GetSeq()
		}
	}
}

// take prints an entry, and tracks which bots are working.
func (r *reading) take(ctx context.Context, e *arbev1.Entry) error {
	payload, _ := export.Decode(e)
	r.at = e.GetSeq()
	r.follows(e)
	if r.run.follows(e) {
		r.said = 0 // the messages so far began the run, or wait for people
	}
	if _, forked := payload.(entry.Forked); forked {
		// Messages, turns and runs from before the fork continue only in the source, so their ends never arrive here.
		clear(r.working)
		r.run.forked()
		r.said = 0
	}
	if r.app.json || r.app.quiet {
		return r.entry(ctx, e)
	}
	return r.print(ctx, e, payload)
}

// follows tracks which turns begin and end, and messages that no bot has begun on.
func (r *reading) follows(e *arbev1.Entry) {
	turn, ofTurn := export.DoesTo(e, entry.TurnWork)
	switch {
	case !ofTurn:
	case turn.Stage == entry.Completes:
		delete(r.working, turn.ID)
		r.ended[turn.ID] = true
	case !r.ended[turn.ID]:
		r.working[turn.ID] = e.GetAuthorAgentId()
		if named := entry.Agents(export.Domain(e)); len(named) > 0 {
			r.working[turn.ID] = named[0]
		}
	}
	chat, ofChat := export.DoesTo(e, entry.ChatWork)
	switch {
	case !ofChat:
	case chat.Stage == entry.Opens && !ofTurn:
		r.said, r.spoke = e.GetSeq(), chat.ID
	case chat.ID == r.spoke:
		r.said = 0
	}
}

// print prints an entry as part of a conversation.
func (r *reading) print(ctx context.Context, e *arbev1.Entry, payload entry.Payload) error {
	if r.listed && strings.HasPrefix(e.GetType(), entry.Quiet) {
		return nil
	}
	switch p := payload.(type) {
	case entry.Chat:
		turn := ""
		if p.Turn != nil {
			turn = p.Turn.TurnID
		}
		if err := r.speech(ctx, e, turn, p.Plain()); err != nil || p.Turn == nil {
			return err
		}
		return r.lines(append(r.thought(p.Turn.Thinking), p.Turn.Foot()))
	case entry.PiAssistant:
		if err := r.speech(ctx, e, p.Turn, p.Text()); err != nil {
			return err
		}
		return r.lines(append(r.thought(p.Thought()), export.Steps(e)...))
	case entry.PiToolResult:
		if r.ran[entry.CallCommandID(e.GetId())] {
			return nil // the command's result says more
		}
		return r.lines(export.Steps(e))
	case entry.Command:
		if strings.HasPrefix(e.GetId(), entry.TurnPrefix) {
			return nil // the bot's step has it
		}
		return r.line(entry.PrintableLine(r.author(ctx, e.GetAuthorAgentId())) + ": " + export.Clip(p.Plain()))
	case entry.CommandResult:
		result := "  [" + p.Outcome() + "]"
		if p.Error != "" {
			result += " " + export.Clip(p.Error)
		}
		if r.ran == nil {
			r.ran = map[string]bool{}
		}
		r.ran[p.CommandID] = true
		return r.line(result)
	case entry.ChatEdited:
		return r.line(entry.PrintableLine(r.author(ctx, e.GetAuthorAgentId())) + " edited a message; it now says: " + export.Clip(p.Text))
	case entry.ChatDeleted:
		return r.line(entry.PrintableLine(r.author(ctx, e.GetAuthorAgentId())) + " deleted a message")
	case entry.TurnStarted:
		return nil // the answer shows the turn
	case entry.TurnEnded:
		if err := r.line(entry.PrintableLine(p.Plain())); err != nil || p.Summary == nil {
			return err
		}
		return r.line(p.Summary.Foot())
	}
	if payload == nil {
		return r.line(entry.PrintableLine(e.GetType()))
	}
	return r.line(export.Clip(payload.Plain()))
}

// thought returns lines that say that a model thought, or its thinking.
func (r *reading) thought(text string) []string {
	if !r.thinking || strings.TrimSpace(text) == "" {
		return export.Thought(text)
	}
	lines := []string{"thought:"}
	for line := range strings.Lines(text) {
		lines = append(lines, "  "+strings.TrimRight(line, "\n"))
	}
	return lines
}

// speech prints a message, without the part that was printed while a bot wrote it.
func (r *reading) speech(ctx context.Context, e *arbev1.Entry, turn, text string) error {
	if turn != "" && r.writes == turn {
		draft := r.draft
		r.writes, r.draft = "", arbe.Draft{}
		rest, again := draft.Rest(text)
		if draft.Begun() && !again {
			_, err := liveWriter{&r.entryPrinter}.Write([]byte(rest))
			return err
		}
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	if err := r.speaker(ctx, e.GetAuthorAgentId(), r.app.when(e.GetTs().AsTime())); err != nil {
		return err
	}
	_, err := liveWriter{&r.entryPrinter}.Write([]byte(text))
	return err
}

// write prints a piece of a bot's text. It skips pieces of a command's output, which a conversation leaves out.
func (r *reading) write(ctx context.Context, d *arbev1.Delta) error {
	turn := arbe.TurnOf(d)
	_, works := r.working[turn]
	if !works || r.app.json || r.app.quiet || r.writes != "" && r.writes != turn {
		return nil
	}
	if r.writes == "" {
		r.writes, r.draft = turn, arbe.Draft{}
	}
	begun := r.draft.Begun()
	text, again := r.draft.Add(d)
	if text == "" {
		return nil
	}
	if again || !begun {
		if err := r.speaker(ctx, r.working[turn], "now"); err != nil {
			return err
		}
	}
	_, err := liveWriter{&r.entryPrinter}.Write([]byte(text))
	return err
}

// speaker prints who speaks, and when.
func (r *reading) speaker(ctx context.Context, agent, when string) error {
	r.endLine()
	name := "a bot"
	if agent != "" {
		name = entry.PrintableLine(r.author(ctx, agent))
	}
	_, err := fmt.Fprintf(r.app.out, "\n%s\n", r.app.dim(name+"  "+when))
	return err
}

func (r *reading) line(text string) error { return r.lines([]string{text}) }

// lines prints lines about the work that was done.
func (r *reading) lines(lines []string) error {
	r.endLine()
	for _, line := range lines {
		if _, err := io.WriteString(r.app.out, r.app.dim(entry.PrintableLine(line))+"\n"); err != nil {
			return err
		}
	}
	return nil
}
