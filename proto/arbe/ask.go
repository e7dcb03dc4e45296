package arbe

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// defaultPatience is how long [Client.Ask] waits by default for a bot to begin, and for a server that cannot be reached.
const defaultPatience = time.Minute

// Question is a question for [Client.Ask].
type Question struct {
	// Text is Markdown. Unless the thread is a direct message to the bot, Ask puts a mention of the bot before Text if Text
	// does not begin with it.
	Text string
	// Thread is the id of the thread. Defaults to the direct message to the bot in House. Ask begins one if none exists, or if
	// New asks for a new one.
	Thread string
	House  string
	New    bool
	// Bot is the bot's "@handle", or the id of its agent. Defaults to the bot of the direct message if Thread is one, and
	// otherwise to @arbe.
	Bot string
	// Files are sent with Text; see [Client.Attach].
	Files []File
	// Think is how hard the model thinks: "off", "low", "medium" or "high". Defaults to the bot's setting.
	Think string
	// ID is the id of the entry that asks. Asking again with the same ID asks nothing twice. Defaults to a random id.
	ID string
	// Patience is how long Ask waits for the bot to begin, and for a server that cannot be reached. Defaults to a minute.
	Patience time.Duration
}

// Piece is one part of the response to a [Question]. Exactly one of its fields is set.
type Piece struct {
	// Asked is the first piece: the question is in the log.
	Asked *Asked
	// Entry is a typed entry of the turn that answers: its start, its steps (pi.assistant), their results (pi.tool_result),
	// a wait for the model's provider, a fallback model, a limit that is near. The answer itself is in Answer.
	Entry *arbev1.Entry
	// Text is text that the bot is writing. All Texts since the last Entry or Again, joined, are the text of the step in the
	// next Entry, or of the answer, without white space around it.
	Text string
	// Again reports that the model was cut off and starts over: the texts since the last Entry no longer count.
	Again bool
	// Answer is the last piece.
	Answer *Answer
}

// Asked says where a [Question] was asked.
type Asked struct {
	Thread string
	Bot    *arbev1.Bot
	// Entry is the chat entry that asks.
	Entry *arbev1.Entry
}

// Outcome is how a [Question] ended.
type Outcome string

// The outcomes. Newer servers may have others, which programs should expect.
const (
	// Answered: the bot answered.
	Answered Outcome = "answered"
	// Failed: something went wrong; Answer.Message says what.
	Failed Outcome = "failed"
	// Stopped: someone stopped the bot.
	Stopped Outcome = "stopped"
	// Limited: the bot reached one of its limits.
	Limited Outcome = "limited"
	// Silent: the model ended without saying anything.
	Silent Outcome = "silent"
	// Skipped: the bot was not supposed to answer, for example because of its cooldown.
	Skipped Outcome = "skipped"
	// Unanswered: the bot did not begin within the question's patience.
	Unanswered Outcome = "unanswered"
)

// Answer says how a [Question] ended.
type Answer struct {
	Outcome Outcome
	// Text is the bot's answer; empty unless Outcome is [Answered].
	Text string
	// Entry is the entry that ended the question; nil if Outcome is [Unanswered].
	Entry *arbev1.Entry
	// Turn is the id of the turn; empty if no turn began.
	Turn string
	// Reason says in one word why there is no answer. Message says it in a sentence, and Next says what to do now.
	Reason, Message, Next string
	// Summary says what the turn did and used; nil if no turn began.
	Summary *arbev1.TurnSummary
}

// LostError is the last error of [Client.Ask] if the server could not be reached for longer than the question's patience.
// The bot continues, and its answer will be in the thread.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "the connection to the server is lost: " + e.Err.Error() }

// Unwrap returns why the last connection ended.
func (e *LostError) Unwrap() error { return e.Err }

// Ask asks a bot a question and yields the response, even if connections break and servers restart meanwhile. The last
// element is a Piece with the Answer, or an error. The failure of a bot is not an error; see [Answer].
//
// When ctx ends or the loop is left, the bot continues. To end its turn, call Threads.StopTurn with the turn id in the turn's
// first Entry. The errors are those of the calls that ask, those of [Client.Tail], and a [*LostError].
func (c *Client) Ask(ctx context.Context, q Question, opts ...TailOption) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		a := asking{client: c, question: q, yield: yield}
		if err := a.run(ctx, opts); err != nil && err != errLeft {
			yield(Piece{}, err)
		}
	}
}

// errImpatient reports that the bot did not begin in time.
var errImpatient = errors.New("the bot has not begun")

// asking is one call of Ask.
type asking struct {
	client   *Client
	question Question
	yield    func(Piece, error) bool

	asked Asked
	// turn is the turn that answers; empty before it begins.
	turn string
	// draft is the text that the model is writing for the next step.
	draft Draft
}

func (a *asking) run(ctx context.Context, opts []TailOption) error {
	if err := a.ask(ctx); err != nil {
		return err
	}
	if !a.yield(Piece{Asked: &a.asked}, nil) {
		return errLeft
	}
	patience := a.question.Patience
	if patience <= 0 {
		patience = defaultPatience
	}
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	begin := time.AfterFunc(patience, func() { leave(errImpatient) })
	defer begin.Stop()
	var gone *time.Timer
	back := func() {
		if gone != nil {
			gone.Stop()
			gone = nil
		}
	}
	defer back()
	var given tail
	for _, o := range opts {
		o.applyTail(&given)
	}
	onLost := OnDisconnect(func(err error, wait time.Duration) {
		// While the server is gone, the bot's silence says nothing.
		begin.Stop()
		if gone == nil {
			gone = time.AfterFunc(patience, func() { leave(&LostError{err}) })
		}
		if given.lost != nil {
			given.lost(err, wait)
		}
	})
	for event, err := range a.client.Tail(ctx, a.asked.Thread, a.asked.Entry.GetSeq(), append(slices.Clone(opts), WithTyped(), onLost)...) {
		if err != nil {
			return a.given(ctx, err)
		}
		if gone != nil {
			back()
			begin.Reset(patience)
		}
		if ended, err := a.take(event); ended || err != nil {
			return err
		}
		if a.turn != "" {
			begin.Stop()
		}
	}
	return ctx.Err() // not reached, because a tail ends only with an error
}

// given returns the error of a question whose tail ended with err.
func (a *asking) given(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == errImpatient {
		return a.end(Answer{Outcome: Unanswered, Message: "the bot has not begun to answer", Next: "see what it answers to with: arbe thread why"})
	}
	if lost := (*LostError)(nil); errors.As(cause, &lost) {
		return lost
	}
	return err
}

// ask writes the question into the thread.
func (a *asking) ask(ctx context.Context) error {
	q := &a.question
	direct := "" // the bot of the direct message, if the thread is one
	if q.Thread != "" {
		found, err := a.client.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: q.Thread})
		if err != nil {
			return err
		}
		q.House, direct = found.GetThread().GetHouseId(), found.GetThread().GetParentAgentId()
	}
	if err := a.findBot(ctx, direct); err != nil {
		return err
	}
	bot := a.asked.Bot
	if q.Thread == "" {
		created, err := a.client.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: q.House, ParentAgentId: bot.GetId(), Reuse: !q.New})
		if err != nil {
			return err
		}
		q.Thread, direct = created.GetThread().GetId(), bot.GetId()
	}
	text := q.Text
	if direct != bot.GetId() {
		text = mentioning(bot.GetHandle(), text)
	}
	if q.ID == "" {
		q.ID = strings.ToLower(rand.Text())
	}
	files, err := a.client.Attach(ctx, q.Thread, q.ID, q.Files)
	if err != nil {
		return err
	}
	said, err := a.client.Entries.Say(ctx, &arbev1.SayRequest{ThreadId: q.Thread, Id: q.ID, Text: text, Think: q.Think, Literal: true, AttachmentIds: files})
	a.asked.Thread, a.asked.Entry = q.Thread, said.GetEntry()
	return err
}

// findBot finds the bot to ask.
func (a *asking) findBot(ctx context.Context, direct string) error {
	req := &arbev1.GetBotRequest{HouseId: a.question.House}
	handle, isHandle := strings.CutPrefix(a.question.Bot, "@")
	switch {
	case isHandle:
		req.Which = &arbev1.GetBotRequest_Handle{Handle: handle}
	case a.question.Bot != "":
		req.Which = &arbev1.GetBotRequest_Id{Id: a.question.Bot}
	case direct != "":
		req.Which = &arbev1.GetBotRequest_Id{Id: direct}
	default:
		req.Which = &arbev1.GetBotRequest_Handle{Handle: "arbe"}
	}
	found, err := a.client.Bots.GetBot(ctx, req)
	a.asked.Bot = found.GetBot()
	return err
}

// mentioning returns a text that begins with a mention.
func mentioning(handle, text string) string {
	mention := "@" + handle
	if len(text) >= len(mention) && strings.EqualFold(text[:len(mention)], mention) {
		rest := strings.TrimPrefix(text[len(mention):], ":")
		if rest == "" || unicode.IsSpace(rune(rest[0])) {
			return text
		}
	}
	if strings.Contains(strings.TrimRight(text, "\n"), "\n") {
		return mention + "\n\n" + text // because the text may begin with a block, such as a list
	}
	return mention + " " + text
}

// take takes one event of the thread. ended reports that the answer was yielded.
func (a *asking) take(event *arbev1.TailResponse) (ended bool, err error) {
	if d := event.GetDelta(); d != nil {
		return false, a.delta(d)
	}
	e := event.GetEntry()
	asks, bot := a.asked.Entry.GetId(), a.asked.Bot.GetId()
	switch e.GetTyped().(type) {
	case *arbev1.Entry_TurnStarted:
		if s := e.GetTurnStarted(); s.GetEntryId() == asks && s.GetAgentId() == bot {
			a.turn = s.GetTurnId()
			return false, a.pass(e)
		}
		return false, nil
	case *arbev1.Entry_TurnSteered:
		if s := e.GetTurnSteered(); s.GetEntryId() == asks && s.GetAgentId() == bot {
			a.turn = s.GetTurnId()
			return false, a.pass(e)
		}
		return false, nil
	case *arbev1.Entry_Skipped:
		if s := e.GetSkipped(); s.GetEntryId() == asks && s.GetAgentId() == bot {
			return true, a.end(Answer{Outcome: Skipped, Entry: e, Reason: s.GetReason(), Message: "the bot did not answer: " + s.GetExplanation()})
		}
	}
	if a.turn == "" {
		return false, nil
	}
	switch e.GetTyped().(type) {
	case *arbev1.Entry_PiAssistant:
		if m := e.GetPiAssistant(); m.GetTurn() == a.turn {
			if err := a.heal(textOf(m.GetContent())); err != nil {
				return false, err
			}
			return false, a.pass(e)
		}
	case *arbev1.Entry_TurnEnded:
		if t := e.GetTurnEnded(); t.GetTurnId() == a.turn {
			return true, a.end(Answer{
				Outcome: Outcome(t.GetOutcome()), Entry: e, Turn: a.turn, Reason: t.GetReason(), Message: t.GetMessage(), Next: t.GetNext(), Summary: t.GetSummary(),
			})
		}
	case *arbev1.Entry_Chat:
		// A turn that was already writing its answer has not seen a question that was passed to it. Another turn then begins.
		if s := e.GetChat().GetTurn(); s.GetTurnId() == a.turn && slices.Contains(s.GetAnswers(), asks) {
			if err := a.heal(e.GetChat().GetText()); err != nil {
				return false, err
			}
			return true, a.end(Answer{Outcome: Answered, Text: e.GetChat().GetText(), Entry: e, Turn: a.turn, Summary: s})
		} else if s.GetTurnId() == a.turn {
			return false, a.pass(e)
		}
	default:
		if turnOfEntry(e) == a.turn {
			return false, a.pass(e)
		}
	}
	return false, nil
}

// turnOfEntry returns the id of the turn to which an entry of any kind belongs; empty if it belongs to no turn.
func turnOfEntry(e *arbev1.Entry) string {
	m := e.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("typed"))
	if kind == nil {
		return ""
	}
	payload := m.Get(kind).Message()
	for _, name := range []protoreflect.Name{"turn_id", "turn"} {
		if f := payload.Descriptor().Fields().ByName(name); f != nil && f.Kind() == protoreflect.StringKind {
			return payload.Get(f).String()
		}
	}
	return ""
}

// pass yields an entry. Text that the model writes after it belongs to the next step.
func (a *asking) pass(e *arbev1.Entry) error {
	switch e.GetTyped().(type) {
	case *arbev1.Entry_PiAssistant, *arbev1.Entry_Chat:
		a.draft = Draft{}
	}
	return a.piece(Piece{Entry: e})
}

func (a *asking) end(answer Answer) error { return a.piece(Piece{Answer: &answer}) }

func (a *asking) piece(p Piece) error {
	if !a.yield(p, nil) {
		return errLeft
	}
	return nil
}

// delta yields the text that a delta adds.
func (a *asking) delta(d *arbev1.Delta) error {
	if a.turn == "" || TurnOf(d) != a.turn {
		return nil
	}
	text, again := a.draft.Add(d)
	if again {
		if err := a.piece(Piece{Again: true}); err != nil {
			return err
		}
	}
	if text == "" {
		return nil
	}
	return a.piece(Piece{Text: text})
}

// heal yields the missing part of a text that is now complete.
func (a *asking) heal(text string) error {
	rest, again := a.draft.Rest(text)
	if again {
		if err := a.piece(Piece{Again: true}); err != nil {
			return err
		}
	}
	if rest == "" {
		return nil
	}
	return a.piece(Piece{Text: rest})
}

// textOf returns the text of a message.
func textOf(content []*arbev1.PiBlock) string {
	var texts []string
	for _, b := range content {
		if b.GetType() == "text" && b.GetText() != "" {
			texts = append(texts, b.GetText())
		}
	}
	return strings.Join(texts, "\n\n")
}
