package turn

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

const (
	// gateTokens is about how much of the thread the gate reads at least; it reads at most twice as much. It is small,
	// because the gate reads every conversation to which a bot listens.
	gateTokens = 4000
	// gateAnswer limits the gate's answer. It leaves some tokens for models that think first.
	gateAnswer = 512
	// gateTimeout limits the gate's call, because the bot answers nothing else while the gate decides.
	gateTimeout = time.Minute
	// maxGateAttempts is how often the gate tries to decide whether a delayed turn begins. The pause between attempts
	// starts at gatePause and doubles up to maxGatePause.
	maxGateAttempts         = 5
	gatePause, maxGatePause = time.Second, 10 * time.Second
)

// NotDueError reports that a delayed turn is not due yet.
type NotDueError struct{ Due time.Time }

func (e *NotDueError) Error() string {
	return "the turn is not due before " + e.Due.Format(time.RFC3339)
}

// gate decides whether a delayed turn begins: when an ambient turn is due, it asks a small model of the bot's provider
// whether the bot has something to say. Other turns begin when they are due.
func (r *run) gate(ctx context.Context, house, id string) (begins bool, err error) {
	if begins, due, err := r.look(ctx, house, id); !due {
		return begins, err
	}
	var d decision
	switch {
	case r.turn.StoppedBy != "":
		d = decision{reason: "stopped", explanation: "it was stopped before it began"}
	case r.turn.Reason != Ambient:
		d.begins = true
	default:
		if err := r.try(ctx); errors.Is(err, pgx.ErrNoRows) {
			return r.gate(ctx, house, id)
		} else if err != nil {
			return false, err
		}
		if d, err = r.weigh(ctx); err != nil {
			return false, err
		}
	}
	err = r.db.In(ctx, r.scope(), func(tx pgx.Tx) error { return r.decideTx(ctx, tx, d) })
	if errors.Is(err, pgx.ErrNoRows) {
		// Since then, somebody mentioned the bot or spoke again, or another server decided.
		return r.gate(ctx, house, id)
	}
	return d.begins, err
}

// decision is what the gate decides, with the reason if the turn does not begin.
type decision struct {
	begins              bool
	reason, explanation string
}

// look reads the turn. due reports that it is delayed and its time has come. Otherwise, begins and err are the gate's.
func (r *run) look(ctx context.Context, house, id string) (begins, due bool, err error) {
	err = r.db.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) (err error) {
		r.turn, err = GetTx(ctx, tx, id)
		return err
	})
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return false, false, nil // it was deleted with its thread
	case err != nil:
		return false, false, err
	case r.turn.Status == Running && time.Now().Before(r.turn.Due) && r.turn.StoppedBy == "":
		return false, false, &WaitError{r.turn.Due}
	case r.turn.Status != Delayed:
		return true, false, nil
	case time.Now().Before(r.turn.Due) && r.turn.StoppedBy == "":
		return false, false, &NotDueError{r.turn.Due}
	}
	return false, true, nil
}

// weigh asks the model and decides. It postpones the decision after a temporary error. After a lasting error of the model, or too
// many attempts, the turn does not begin.
func (r *run) weigh(ctx context.Context) (decision, error) {
	begins, err := r.relevant(ctx)
	if err == nil {
		return decision{begins, "gate", "it had nothing to add"}, nil
	}
	failed, isModel := errors.AsType[*model.Error](err)
	passes := isModel && failed.Passing()
	switch again := r.turn.Attempts < maxGateAttempts; {
	case ctx.Err() != nil, again && !passes && !fixable(err):
		return decision{}, err
	case again && passes:
		return decision{}, &NotDueError{r.turn.Due}
	}
	r.Logger.WarnContext(ctx, "it cannot be decided whether a bot that listens has something to say", "turn", r.turn.ID, "error", fault.From(err).Detail())
	return decision{begins, "gate_failed", "arbe could not find out whether it had something to say: " + fault.From(err).Message}, nil
}

// decideTx writes a decision.
func (r *run) decideTx(ctx context.Context, tx pgx.Tx, d decision) error {
	status := Skipped
	if d.begins {
		status = Queued
	}
	if _, err := queries.DecideTurn(ctx, tx, string(status), r.turn.ID, &r.turn.Due); err != nil {
		return err
	}
	if d.begins {
		return r.turn.startTx(ctx, tx, r.log, r.ref, r.turn.Entry, r.turn.Reason, r.turn.Policy)
	}
	skipped := entry.Skipped{AgentID: r.turn.Bot, EntryID: r.turn.Entry, Reason: d.reason, Explanation: d.explanation, PolicyID: r.turn.Policy}
	_, err := r.log.AppendTx(ctx, tx, r.ref, entry.NewDraft(r.turn.endID(), "", skipped))
	return err
}

// try counts another attempt to decide. The number is stored in the row, because an attempt may kill its server.
func (r *run) try(ctx context.Context) error {
	again := time.Now().Add(min(gatePause<<min(r.turn.Attempts, maxGateAttempts), maxGatePause))
	return r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		row, err := queries.TryTurn(ctx, tx, &again, r.turn.ID, &r.turn.Due)
		if err == nil {
			r.turn = fromRow(row)
		}
		return err
	})
}

// relevant asks a model whether the bot has something to say.
func (r *run) relevant(ctx context.Context) (bool, error) {
	if r.turn.Attempts > maxGateAttempts { // none returned a result: probably they killed their servers
		return false, fault.Newf(fault.Internal, "look into the server's log", "%d attempts failed", maxGateAttempts)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, gateTimeout, errGateTime)
	defer cancel()
	relevant, err := r.ask(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errGateTime) {
		err = errGateTime
	}
	return relevant, err
}

// errGateTime reports that a model took too long to say whether its bot has something to say.
var errGateTime = fault.New(fault.Exhausted, "its model took too long", "mention the bot")

func (r *run) ask(ctx context.Context) (bool, error) {
	if _, err := r.prepare(ctx); err != nil {
		return false, err
	}
	if err := r.withinDay(ctx); err != nil {
		return false, err
	}
	r.transcript = transcript{bot: r.turn.Bot, turn: r.turn.ID, people: map[string]Person{}}
	if err := r.transcript.load(ctx, r.log, r.ref, 1, 2*gateTokens); err != nil {
		return false, err
	}
	r.transcript.glance(gateTokens)
	if err := r.introduce(ctx); err != nil {
		return false, err
	}
	request := r.request(r.transcript.messages(), note(r.gateQuestion()))
	request.MaxTokens, request.Effort = gateAnswer, entry.EffortLow
	asked := r.gateModel()
	id := entry.TurnPrefix + r.turn.ID + ".gate" + strconv.FormatInt(r.turn.Due.UnixMilli(), 36)
	answer, err := r.say(ctx, asked, request, id)
	if failed, isModel := errors.AsType[*model.Error](err); isModel && failed.Kind == model.UnknownModel && asked != r.modelID {
		r.noSmall.Store(r.server(), true)
		answer, err = r.say(ctx, r.modelID, request, id+".own")
	}
	word := strings.ToLower(strings.Trim(answer.Message.Text(), " \t\r\n*_.!\"'`"))
	if errors.Is(err, errNoText) {
		err = nil // it wants to call a tool, and says nothing
	}
	return err == nil && strings.HasPrefix(word, "yes"), err
}

// withinDay returns an error if a limit of a day is reached.
func (r *run) withinDay(ctx context.Context) error {
	list, err := r.meters(ctx)
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.daily() && m.used >= m.max {
			return fault.New(fault.Exhausted, m.words, m.next).WithReason(fault.BudgetSpent)
		}
	}
	return nil
}

// gateQuestion asks the model whether the bot has something to say.
func (r *run) gateQuestion() string {
	ask := "nobody asked you. Is there something that you should say now, because it helps them and nobody has said it? "
	if listens := r.bot.Listens[r.turn.Policy]; listens != "" {
		ask += "You speak here only about this: " + oneLine(listens, len(listens)) + ". "
	}
	return ask + "Call no tool. Answer with yes or no."
}

// glance keeps the last entries: at least so many tokens of them, and at most twice as many. Of the possible
// positions, it begins at the one that the greatest power of two divides, so that successive glances begin alike.
func (t *transcript) glance(tokens int64) {
	best, zeros, sum := -1, -1, int64(0)
	for at := len(t.entries) - 1; at >= 0 && (sum < 2*tokens || best < 0); at-- {
		sum += size(t.part(t.entries[at : at+1]).messages())
		if z := bits.TrailingZeros64(uint64(t.entries[at].Seq)); sum >= tokens && (sum <= 2*tokens || best < 0) && z > zeros && t.entries[at].Type != (entry.PiToolResult{}).Type() {
			best, zeros = at, z
		}
	}
	if t.reached && sum <= 2*tokens || best < 0 {
		return
	}
	t.entries = t.entries[best:]
	t.memory.leaveOut(span{From: 1, To: t.entries[0].Seq - 1})
}

// gateModel returns the model for the gate: the small model of the bot's provider, or the bot's own if the small one is
// not known to exist. The provider's name may stand for any compatible server, which need not have the same models.
func (r *run) gateModel() string {
	if _, missing := r.noSmall.Load(r.server()); missing || !model.Lookup(r.endpoint.Provider, r.modelID).Known {
		return r.modelID
	}
	_, small := model.DefaultModels(r.endpoint.Provider)
	return cmp.Or(small, r.modelID)
}
