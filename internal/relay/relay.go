// Package relay carries calls from one server to another, through the database. The call and its reply are a row, and a
// notice announces it. HTTP would be faster, but then an operator would have to give every server an address at which the
// others reach it. A call may be lost or served twice, so calls must be harmless to repeat.
package relay

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
)

const (
	// notifyAgain is the time after which the server is notified again of a call without a reply, because a
	// notification is lost when a server's connection breaks.
	notifyAgain = 2 * time.Second
	// replyWithin is how much longer the reply may take than the call itself, because it passes through the database.
	replyWithin = 5 * time.Second
)

var queries = query.New()

// Relay asks other servers, and answers their calls. C is a call and R a reply; both are JSON. It is safe for concurrent
// use.
type Relay[C, R any] struct {
	Config[C, R]

	// asked maps the ids of this server's calls to channels that receive a token when there may be a reply.
	asked sync.Map
	// answered holds the ids of the calls that this server is answering, so that a repeated notice does not start a second
	// answer.
	answered sync.Map
}

// Config configures a [Relay].
type Config[C, R any] struct {
	DB     *db.DB
	Jobs   *jobs.Jobs
	Logger *slog.Logger
	// Topic is the topic of its notices.
	Topic string
	// Serve answers the call of another server.
	Serve func(context.Context, db.Scope, C) (R, error)
	// NoReply is the error for a call that the other server did not answer.
	NoReply error
}

// New returns a Relay. It must be called before [jobs.Jobs.Start].
func New[C, R any](c Config[C, R]) *Relay[C, R] {
	r := &Relay[C, R]{Config: c}
	c.Jobs.OnNotice(c.Topic, r.noticed)
	return r
}

// notice announces a call of the server that sends it, or the reply to a call of the receiver. The call itself is in a row,
// because it may be longer than a notice.
type notice struct {
	Call  string
	House string `json:",omitempty"`
	// Answered means that the notice announces the reply to a call of the receiver.
	Answered bool `json:",omitempty"`
}

// Ask has another server answer a call of the scope's house. wait is how long that server may take. If it does not answer,
// the error is Config.NoReply.
func (r *Relay[C, R]) Ask(ctx context.Context, scope db.Scope, server jobs.Server, c C, wait time.Duration) (reply R, err error) {
	scope = db.Scope{House: scope.House}
	question, err := json.Marshal(c)
	if err != nil {
		return reply, err
	}
	id := uuid.NewString()
	answered := make(chan struct{}, 1)
	r.asked.Store(id, answered)
	defer r.asked.Delete(id)
	asks := notice{Call: id, House: scope.House}
	err = r.DB.In(ctx, scope, func(tx pgx.Tx) error {
		if err := queries.AskServer(ctx, tx, id, scope.House, question); err != nil {
			return err
		}
		return r.Jobs.NotifyTx(ctx, tx, server, r.Topic, asks)
	})
	if err != nil {
		return reply, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyWithin)
		defer cancel()
		if err := r.DB.In(ctx, scope, func(tx pgx.Tx) error { return queries.EndServerCall(ctx, tx, id) }); err != nil {
			r.Logger.DebugContext(ctx, "cannot delete a call to another server; a later one does that", "error", fault.From(err).Detail())
		}
	}()
	return r.awaitReply(ctx, scope, server, asks, answered, time.Now().Add(wait+replyWithin))
}

// awaitReply waits for the reply to a call until a deadline, and announces the call again from time to time. answered
// receives a token when there may be a reply.
func (r *Relay[C, R]) awaitReply(ctx context.Context, scope db.Scope, server jobs.Server, asks notice, answered <-chan struct{}, deadline time.Time) (reply R, err error) {
	tick := time.NewTicker(notifyAgain)
	defer tick.Stop()
	for {
		again := false
		select {
		case <-answered:
		case <-tick.C:
			again = true
		case <-ctx.Done():
			return reply, fault.From(ctx.Err())
		}
		var text []byte
		gone := false
		err := r.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
			text, err = queries.ServerAnswer(ctx, tx, asks.Call)
			if err != nil || text != nil || !again {
				return err
			}
			if gone, err = server.GoneTx(ctx, tx); err != nil || gone {
				return err
			}
			return r.Jobs.NotifyTx(ctx, tx, server, r.Topic, asks)
		})
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && text == nil && (gone || time.Now().After(deadline)):
			return reply, r.NoReply // there is no row after a crash of the database, because the table is unlogged
		case err != nil:
			return reply, err
		case text == nil:
			continue
		}
		var a answer[R]
		if err := json.Unmarshal(text, &a); err != nil {
			return reply, err
		}
		if a.Failed != nil {
			return reply, a.Failed.fault()
		}
		return a.Reply, nil
	}
}

// noticed receives a notice from another server.
func (r *Relay[C, R]) noticed(ctx context.Context, from jobs.Server, message []byte) error {
	var n notice
	if json.Unmarshal(message, &n) != nil {
		return nil // from another version
	}
	if n.Answered {
		if waiting, there := r.asked.Load(n.Call); there {
			select {
			case waiting.(chan struct{}) <- struct{}{}:
			default: // a token is already pending
			}
		}
		return nil
	}
	if _, twice := r.answered.LoadOrStore(n.Call, true); twice {
		return nil
	}
	defer r.answered.Delete(n.Call)
	return r.answer(ctx, from, n)
}

// answer is a server's answer to another one's call.
type answer[R any] struct {
	Reply  R        `json:",omitzero"`
	Failed *failure `json:",omitempty"`
}

// failure is a fault between two servers.
type failure struct {
	Code          fault.Code
	Message, Next string
	Reference     string       `json:",omitempty"`
	Reason        fault.Reason `json:",omitempty"`
}

func (f failure) fault() error {
	err := &fault.Error{Code: f.Code, Message: f.Message, Next: f.Next, Reference: f.Reference}
	if f.Reason != "" {
		return err.WithReason(f.Reason)
	}
	return err
}

// answer answers the call of another server.
func (r *Relay[C, R]) answer(ctx context.Context, from jobs.Server, n notice) error {
	scope := db.Scope{House: n.House}
	var question []byte
	err := r.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
		question, err = queries.ServerQuestion(ctx, tx, n.Call)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the caller no longer waits
	}
	if err != nil {
		return err
	}
	var c C
	var a answer[R]
	if err := json.Unmarshal(question, &c); err != nil {
		return err
	}
	a.Reply, err = r.Serve(ctx, scope, c)
	if err != nil {
		f := fault.From(err)
		if f.Code == fault.Internal {
			r.Logger.ErrorContext(ctx, "the call of another server failed", "server", from, "error", f.Detail()) // its reply does not say why
		}
		a.Failed = &failure{f.Code, f.Message, f.Next, f.Reference, f.Reason()}
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return r.DB.In(ctx, scope, func(tx pgx.Tx) error {
		if err := queries.AnswerServer(ctx, tx, text, n.Call); err != nil {
			return err
		}
		return r.Jobs.NotifyTx(ctx, tx, from, r.Topic, notice{Call: n.Call, Answered: true})
	})
}
