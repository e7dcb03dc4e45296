package gateway

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/turn"
)

var queries = query.New()

// Outcome is how a call ended.
type Outcome string

// The outcomes.
const (
	// OK: the whole answer was passed on.
	OK Outcome = "ok"
	// Refused: the provider did not answer, or answered with an error.
	Refused Outcome = "refused"
	// Broken: the provider broke off within its answer, or was silent.
	Broken Outcome = "broken"
	// Left: the agent disconnected, or lost its permission, before the answer ended.
	Left Outcome = "left"
)

// Call is a call of a run.
type Call struct {
	// Model is the model's ref.
	Model string
	// Outcome is how it ended; empty while it is in progress.
	Outcome Outcome
	// Status is the provider's HTTP status; 0 if it did not answer.
	Status int
	// Stop is why the answer ended; empty if it did not end or could not be parsed.
	Stop  entry.PiStop
	Ended time.Time
}

// Well reports whether the call ended normally: with a complete answer and no error in it.
func (c Call) Well() bool { return c.Outcome == OK && c.Stop != entry.PiError }

// Usage is the usage of the ended calls of a run.
type Usage struct {
	model.Usage
	// CostMicros is their cost, in millionths of a US dollar. CostUnknown reports that it leaves out calls of models whose
	// price is unknown.
	CostMicros  int64
	CostUnknown bool
	Calls       int64
}

// UsageTx returns the usage of a thread's runs, by epoch, in a transaction of the thread's house. It leaves out runs
// without calls.
func UsageTx(ctx context.Context, tx pgx.Tx, house, thread string, epochs ...int64) (map[int64]Usage, error) {
	rows, err := queries.RunsUsed(ctx, tx, house, thread, epochs)
	used := make(map[int64]Usage, len(rows))
	for _, row := range rows {
		used[row.Epoch] = Usage{
			Usage:      model.Usage{Input: row.Input, Output: row.Output, CacheRead: row.CacheRead, CacheWrite: row.CacheWrite},
			CostMicros: row.CostMicros, CostUnknown: row.CostUnknown, Calls: row.Calls,
		}
	}
	return used, err
}

// LastTx returns the call that a run began last; nil if the run has made none. If ref is not empty, only calls of that model
// count, because agents also ask small models for minor tasks.
func LastTx(ctx context.Context, tx pgx.Tx, house, thread string, epoch int64, ref string) (*Call, error) {
	last, err := queries.LastRunCall(ctx, tx, query.LastRunCallParams{HouseID: house, ThreadID: thread, Epoch: epoch, Model: ref})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &Call{Model: last.Model, Outcome: Outcome(last.Outcome), Status: int(last.Status), Stop: entry.PiStop(last.Stop), Ended: db.Zero(last.EndedAt)}, err
}

// account is the record of one call.
type account struct {
	gateway  *Gateway
	pass     Pass
	endpoint model.Endpoint
	model    string
	id       int64
}

func (p Pass) scope() db.Scope { return db.Scope{House: p.House, Agent: p.Agent} }

// open begins the record of a call with about this many input tokens, and reserves what it may cost. If that exceeds a limit,
// the error is a [fault.Exhausted].
func (g *Gateway) open(ctx context.Context, pass Pass, bot turn.Bot, e model.Endpoint, id string, input int64) (*account, error) {
	a := &account{gateway: g, pass: pass, endpoint: e, model: id}
	var micros int64
	if g.Budget.Bounds(e) {
		micros = g.Budget.Expected(e, id, input)
	}
	err := g.DB.In(ctx, pass.scope(), func(tx pgx.Tx) error {
		// If the database crashes, the call is lost together with its record.
		if _, err := tx.Exec(ctx, "set local synchronous_commit = off"); err != nil {
			return err
		}
		root, err := rootTx(ctx, tx, pass)
		if err != nil {
			return err
		}
		spender := turn.Spender{House: pass.House, Thread: pass.Thread, Root: root, Run: pass.Run, Bot: bot.Handle, Limits: bot.Limits, Roots: g.Roots}
		if err := spender.SpentTx(ctx, tx); err != nil {
			return err
		}
		if g.Budget.Bounds(e) {
			if err := g.reserveTx(ctx, tx, micros); err != nil {
				return err
			}
		}
		a.id, err = queries.BeginRunCall(ctx, tx, query.BeginRunCallParams{
			HouseID: pass.House, ThreadID: pass.Thread, Epoch: pass.Run, AgentID: pass.Agent, Root: root, Model: a.ref(), Seconds: maxTime.Seconds(), ReservedMicros: micros,
		})
		return err
	})
	return a, err
}

// rootTx returns the root of a run, which is the run itself if a person started it.
func rootTx(ctx context.Context, tx pgx.Tx, pass Pass) (string, error) {
	root, err := queries.RootOfThread(ctx, tx, pass.Thread)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fault.New(fault.NotFound, "the thread of this run was deleted", "start another one")
	} else if err != nil {
		return "", err
	}
	if root == "" { // a person started the run
		root = turn.RootOf(pass.Thread, "run-"+strconv.FormatInt(pass.Run, 10))
	}
	return root, nil
}

// reserveTx refuses a call that may cost more than what is left of the operator's budgets.
func (g *Gateway) reserveTx(ctx context.Context, tx pgx.Tx, micros int64) error {
	installation, person := g.Budget.Most()
	lacks, err := queries.MoneyLacks(ctx, tx, micros, installation, person)
	if err != nil {
		return err
	}
	return g.Budget.Lacks(lacks)
}

func (a *account) ref() string { return model.Ref{Endpoint: a.endpoint.Name, Model: a.model}.String() }

// close records how the call ended, and what it used. While the database is away, it tries again, and the agent waits.
func (a *account) close(ctx context.Context, outcome Outcome, status int, b model.Bill) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	g := a.gateway
	end := query.EndRunCallParams{
		ID: a.id, Outcome: string(outcome), Status: int32(status), Stop: string(b.Stop),
		Input: b.Usage.Input, Output: b.Usage.Output, CacheRead: b.Usage.CacheRead, CacheWrite: b.Usage.CacheWrite,
		CostMicros: b.Cost.Micros(), CostKnown: b.CostKnown, Estimated: b.Estimated,
		ChargedMicros: g.Budget.Charged(a.endpoint, b.Usage, b.Cost, b.CostKnown), Own: !a.endpoint.Shared,
	}
	err := db.Persist(ctx, func() error {
		return g.DB.In(ctx, a.pass.scope(), func(tx pgx.Tx) error { return queries.EndRunCall(ctx, tx, end) })
	})
	if err != nil {
		g.Logger.ErrorContext(ctx, "the usage of a model call was not recorded", "house", a.pass.House, "thread", a.pass.Thread, "call", a.id, "error", fault.From(err).Detail())
	}
}
