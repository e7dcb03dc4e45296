package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The exit codes of arbe ask without an answer. They differ from the codes of errors, because the question was asked.
const (
	exitBotFailed   = 10
	exitBotStopped  = 11
	exitBotLimited  = 12
	exitNoAnswer    = 13
	exitAnswerLater = 14
)

// reasonNoMoney is the reason of a turn that failed because the model's provider demands payment.
const reasonNoMoney = "no_money"

// stopTime limits how long arbe tries to stop a bot when it cannot write its own output and must exit.
const stopTime = 10 * time.Second

// ask asks a bot something.
func ask(a *app) *cobra.Command {
	var f askFlags
	cmd := &cobra.Command{
		Use:   "ask [TEXT…] [-]",
		Short: "Ask a bot something, and print its answer",
		Long: "Ask a bot something. The answer is printed while the bot writes it; what it does in between is printed on\n" +
			"stderr. TEXT is Markdown; - adds stdin to it. Without TEXT, all of it is read from stdin.\n" +
			"\n" +
			"The bot is @arbe unless --bot names another. The question is asked in the house's direct message to it. With\n" +
			"--thread it is asked in that thread, where the bot is mentioned and everyone sees both.\n" +
			"\n" +
			"--think says how hard the bot's model thinks, for this question: " + entry.EffortWords + ". A TEXT that begins with\n" +
			"/think LEVEL says the same.\n" +
			"\n" +
			"What the bot writes between its commands is printed too, and followed by an empty line. --json prints one\n" +
			"object with only the answer when the bot has ended.\n" +
			"\n" +
			"--file sends a file with the question; it becomes an artifact of the thread. Models with vision see images.\n" +
			"\n" +
			"Ctrl-C stops the bot, and a second one leaves without waiting for it. When the reader of the output goes away\n" +
			"(head), the bot is stopped, too. When arbe is killed, the bot continues, and its answer is in the thread.\n" +
			"\n" +
			"It exits with 0 when the bot has answered, and otherwise with a code that says why not; see arbe help exit-codes.",
		Example: "  arbe ask 'what broke the build?'\n" +
			"  git diff | arbe ask 'review this' -\n" +
			"  arbe ask --file chart.png 'what does this show?'\n" +
			"  arbe ask --bot @reviewer --thread th4w7q2m9x 'is this safe?'\n" +
			"  arbe ask --think high 'why is the cache slow?'\n" +
			"  arbe ask 'how many tests are there? say only the number' --json | jq -r .answer",
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error { return f.run(ctx, a, c, args) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.bot, "bot", "", "bot to ask, by @handle, id or name (default @arbe)")
	flags.StringVarP(&f.thread, "thread", "t", "", "thread to ask in (default $ARBE_THREAD, or the direct message to the bot)")
	flags.StringVar(&f.Think, "think", "", "how hard the bot's model thinks: "+entry.EffortWords+" (default: the bot's setting)")
	flags.BoolVar(&f.New, "new", false, "begin a new direct message to the bot")
	flags.StringVar(&f.ID, "id", "", "an id of your choice for the question, so that a retry asks nothing twice")
	filesFlag(cmd, &f.paths)
	flags.DurationVar(&f.Patience, "patience", time.Minute, "how long to wait for the bot to begin, and for an unreachable server")
	a.houseFlag(cmd, &f.house)
	a.completes(cmd, "bot", a.bots)
	a.completes(cmd, "thread", a.threads)
	a.completes(cmd, "think", efforts)
	return cmd
}

// askFlags holds the flags of arbe ask: the parts of the question, whom to ask, and where.
type askFlags struct {
	arbe.Question
	bot, thread, house string
	paths              []string
}

// run asks the question in the arguments.
func (f *askFlags) run(ctx context.Context, a *app, c *arbe.Client, args []string) (err error) {
	q := f.Question
	if q.Text, err = a.question(ctx, "arbe ask", args); err != nil {
		return err
	}
	if err := (entry.Chat{Text: q.Text}).Validate(); err != nil {
		return err
	}
	if len(args) > 0 && args[0] != "-" { // a program's text must not decide how hard a bot thinks
		e, _, directive, err := entry.ThinkDirective(q.Text)
		if err != nil {
			return err
		} else if directive {
			q.Think = string(e)
		}
	}
	if _, err := entry.ParseEffort(q.Think); err != nil {
		return err
	}
	if q.Files, err = filesAt(f.paths); err != nil {
		return err
	}
	if q.Patience <= 0 {
		return fault.New(fault.Invalid, "--patience is not above 0", "give a duration such as 30s or 5m")
	}
	if err := f.address(ctx, a, c, &q); err != nil {
		return err
	}
	return (&asking{app: a, client: c, question: q}).run(ctx)
}

// address sets where the question is asked, and whom.
func (f *askFlags) address(ctx context.Context, a *app, c *arbe.Client, q *arbe.Question) (err error) {
	if q.New && f.thread != "" {
		return fault.New(fault.Invalid, "--new begins a direct message, and --thread names a thread", "leave out one of them")
	}
	thread := f.thread
	if !q.New {
		thread = first(thread, a.getenv("ARBE_THREAD"))
	}
	if thread != "" {
		t, err := a.getThread(ctx, c, thread)
		if err != nil {
			return err
		}
		q.Thread, q.House = t.GetId(), t.GetHouseId()
	} else if q.House, err = a.inHouse(ctx, c, f.house); err != nil {
		return err
	}
	if q.Bot = f.bot; f.bot != "" && !strings.HasPrefix(f.bot, "@") {
		q.Bot, err = a.find(ctx, c, botKind, q.House, f.bot)
	}
	return err
}

// question returns the text of the question. It reads one byte more of stdin than an entry may have, so that a longer text is
// refused and not cut.
func (a *app) question(ctx context.Context, verb string, args []string) (string, error) {
	if len(args) == 0 {
		if !hasInput(a.in) {
			return "", fault.Newf(fault.Invalid, "give it as an argument, or pipe it into "+verb, "%s needs a text", verb)
		}
		args = []string{"-"}
	}
	last := len(args) - 1
	if args[last] != "-" {
		return strings.Join(args, " "), nil
	}
	read, err := a.text(ctx, "-")
	if err != nil || last == 0 {
		return read, err
	}
	return strings.Join(args[:last], " ") + "\n\n" + read, nil
}

// asking is one question from its text to its end.
type asking struct {
	app      *app
	client   *arbe.Client
	question arbe.Question
	asked    *arbe.Asked
	answer   *arbe.Answer

	// The state of the output: whether the line is unfinished, whether the next text must be set apart from the last, and
	// an incomplete escape sequence.
	midLine, apart bool
	escape         string

	mu sync.Mutex
	// turn is the turn that answers. It is empty until that begins. stopping reports that the turn should be stopped.
	turn     string
	stopping bool
}

// unreadError ends a question whose answer cannot be printed.
type unreadError struct{ err error }

func (e *unreadError) Error() string { return "the answer cannot be written: " + e.err.Error() }

func (q *asking) run(ctx context.Context) error {
	// Ctrl-C stops the bot. If the reader of the output goes away, the bot stops, too.
	ctx, end := q.app.handleInterrupts(ctx, q.interrupt)
	defer end()

	notices := &connectionNotices{say: q.app.say}
	for piece, err := range q.client.Ask(ctx, q.question, notices.onLost()) {
		if err == nil {
			notices.heard()
			err = q.take(ctx, piece)
		}
		if unread, ok := errors.AsType[*unreadError](err); ok {
			q.stop(context.WithoutCancel(ctx))
			if errors.Is(unread.err, syscall.EPIPE) {
				return exitCode(exitPipe)
			}
			return fault.New(fault.Internal, unread.Error(), "the answer will be in the thread").Because(unread.err)
		}
		if err != nil {
			return q.left(ctx, err)
		}
	}
	q.app.seen(ctx, q.client, q.asked.Thread, q.answer.Entry.GetSeq())
	return q.end()
}

// interrupt makes the first Ctrl-C stop the bot and the second one end arbe, until ctx ends.
func (q *asking) interrupt(ctx context.Context, interrupts <-chan os.Signal, leave func()) {
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-interrupts:
		}
		q.mu.Lock()
		turn, asked := q.turn, q.asked != nil
		q.stopping = true
		q.mu.Unlock()
		if !first || !asked {
			leave()
			return
		}
		q.app.say("arbe: stopping the bot; press Ctrl-C again to leave")
		if turn != "" {
			q.stop(ctx)
		}
	}
}

// stop stops the turn, if it has begun.
func (q *asking) stop(ctx context.Context) {
	q.mu.Lock()
	turn := q.turn
	q.mu.Unlock()
	if turn == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	_, err := q.client.Threads.StopTurn(ctx, &arbev1.StopTurnRequest{ThreadId: q.asked.Thread, TurnId: turn})
	if err != nil && ctx.Err() == nil {
		q.app.say("arbe: the bot cannot be stopped: %s", entry.Printable(q.app.explain(err).Error()))
	}
}

// take shows a piece.
func (q *asking) take(ctx context.Context, p arbe.Piece) error {
	switch {
	case p.Asked != nil:
		q.mu.Lock()
		q.asked = p.Asked
		q.mu.Unlock()
	case p.Entry != nil:
		if started := p.Entry.GetTurnStarted().GetTurnId() + p.Entry.GetTurnSteered().GetTurnId(); started != "" {
			q.mu.Lock()
			q.turn = started
			stop := q.stopping
			q.mu.Unlock()
			if stop {
				q.stop(ctx)
			}
		}
		return q.tell(export.Steps(p.Entry))
	case p.Again:
		return q.tell([]string{"the model was cut off and begins again"})
	case p.Text != "":
		return q.print(p.Text)
	default:
		q.answer = p.Answer
	}
	return nil
}

// shows reports whether the text is printed while the bot writes it.
func (q *asking) shows() bool { return !q.app.json && !q.app.quiet }

// tell prints on stderr what the bot is doing, and separates the next text from it.
func (q *asking) tell(lines []string) error {
	if err := q.endLine(); err != nil || !q.shows() {
		return err
	}
	for _, line := range lines {
		q.app.say("%s", q.app.dimErr(entry.PrintableLine(line)))
	}
	return nil
}

// endLine ends the line of a text.
func (q *asking) endLine() error {
	q.escape = ""
	if !q.midLine {
		return nil
	}
	q.midLine, q.apart = false, true
	return q.write("\n")
}

// escapeBegun matches the beginning of an escape sequence at the end of a text.
var escapeBegun = lazyregexp.New("\x1b(\\[[0-9;:]{0,50})?$")

// print prints a piece of text.
func (q *asking) print(text string) error {
	if !q.shows() {
		return nil
	}
	if q.apart {
		q.apart = false
		if err := q.write("\n"); err != nil {
			return err
		}
	}
	text = q.escape + text
	q.escape = escapeBegun.FindString(text)
	text = entry.Printable(strings.TrimSuffix(text, q.escape))
	if text == "" {
		return nil
	}
	q.midLine = true
	return q.write(text)
}

func (q *asking) write(text string) error {
	if _, err := io.WriteString(q.app.out, text); err != nil {
		return &unreadError{err}
	}
	return nil
}

// left explains an error that ends the answer.
func (q *asking) left(ctx context.Context, err error) error {
	if lost := q.endLine(); lost != nil {
		return exitCode(exitPipe)
	}
	_, gone := errors.AsType[*arbe.LostError](err)
	interrupted := ctx.Err() != nil
	if q.asked == nil || !interrupted && !gone {
		if interrupted {
			return exitCode(exitInterrupted)
		}
		return err
	}
	q.app.say("arbe exits; the bot continues, and the answer will be in the thread: arbe thread entries read %s", q.asked.Thread)
	if interrupted {
		return exitCode(exitInterrupted)
	}
	q.app.report(fault.Newf(fault.Unavailable, "see the answer with: arbe thread entries read "+q.asked.Thread, "%s", err.Error()), q.app.json)
	return exitCode(exitAnswerLater)
}

// askView describes how a question ended, for programs.
type askView struct {
	Outcome  string `json:"outcome"`
	Answer   string `json:"answer"` // always present; empty without an answer
	ThreadID string `json:"thread_id"`
	EntryID  string `json:"entry_id"`
	AnswerID string `json:"answer_id,omitempty"`
	BotID    string `json:"bot_id"`
	Bot      string `json:"bot"`
	TurnID   string `json:"turn_id,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	Next     string `json:"next,omitempty"`
	*askWorkView
}

// askWorkView describes a turn and its usage.
type askWorkView struct {
	Model      string          `json:"model,omitempty"`
	Steps      int             `json:"steps"`
	Commands   int             `json:"commands"`
	DurationMS int64           `json:"duration_ms"`
	Usage      entry.TurnUsage `json:"usage"`
	// CostUSD is absent if the model's price is unknown.
	CostUSD *float64 `json:"cost_usd,omitempty"`
	Cut     bool     `json:"cut,omitempty"`
}

func (q *asking) view() askView {
	v := askView{Outcome: string(q.answer.Outcome), Answer: q.answer.Text, ThreadID: q.asked.Thread, EntryID: q.asked.Entry.GetId(),
		BotID: q.asked.Bot.GetId(), Bot: "@" + q.asked.Bot.GetHandle(), TurnID: q.answer.Turn,
		Reason: q.answer.Reason, Message: q.answer.Message, Next: q.answer.Next}
	if q.answer.Outcome == arbe.Answered {
		v.AnswerID = q.answer.Entry.GetId()
	}
	if q.answer.Summary == nil {
		return v
	}
	s := summaryOf(q.answer.Summary)
	v.askWorkView = &askWorkView{s.Model, s.Steps, s.Commands, s.DurationMS, s.Usage, nil, s.Cut}
	if !s.Usage.CostUnknown {
		cost := float64(s.Usage.CostMicros) / 1e6
		v.CostUSD = &cost
	}
	return v
}

// summaryOf returns the summary of a typed entry.
func summaryOf(s *arbev1.TurnSummary) entry.TurnSummary {
	u := s.GetUsage()
	return entry.TurnSummary{
		TurnID: s.GetTurnId(), Answers: s.GetAnswers(), Model: s.GetModel(), Steps: int(s.GetSteps()), Commands: int(s.GetCommands()),
		DurationMS: s.GetDurationMs(), Cut: s.GetCut(),
		Usage: entry.TurnUsage{Input: u.GetInput(), Output: u.GetOutput(), CacheRead: u.GetCacheRead(), CacheWrite: u.GetCacheWrite(),
			CostMicros: u.GetCostMicros(), CostUnknown: u.GetCostUnknown()},
	}
}

// end shows how the question ended, and returns its exit code.
func (q *asking) end() error {
	err := q.endLine()
	switch {
	case err != nil:
	case q.app.json:
		err = q.app.printJSON(q.view())
	case q.app.quiet && q.answer.Outcome == arbe.Answered:
		_, err = fmt.Fprintln(q.app.out, q.answer.Entry.GetId())
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitCode(exitPipe)
	} else if err != nil {
		return err
	}
	if q.answer.Outcome != arbe.Answered && !q.app.json {
		fmt.Fprintf(q.app.err, "arbe: %s\n", entry.Printable(fault.New(fault.Internal, q.answer.Message, q.answer.Next).Error()))
	}
	if s := q.answer.Summary; s != nil && !q.app.json {
		q.app.say("%s", q.app.dimErr(summaryOf(s).Foot()))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopping {
		return exitCode(exitInterrupted)
	}
	if code := outcomeCode(q.answer); code != 0 {
		return exitCode(code)
	}
	return nil
}

// outcomeCode returns the exit code for an outcome.
func outcomeCode(a *arbe.Answer) int {
	switch {
	case a.Outcome == arbe.Answered:
		return 0
	case a.Outcome == arbe.Limited, a.Reason == reasonNoMoney:
		return exitBotLimited
	case a.Outcome == arbe.Stopped:
		return exitBotStopped
	case a.Outcome == arbe.Silent, a.Outcome == arbe.Skipped, a.Outcome == arbe.Unanswered:
		return exitNoAnswer
	}
	return exitBotFailed
}
