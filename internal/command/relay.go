package command

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

// This file lets every server answer calls for attached commands. The input and output of such a command are in the memory of
// the server that runs it, so other servers forward calls to that one, through the database: the call and its reply are a
// row, and a notification announces it. HTTP would be faster, but then an operator would have to give every server an address
// at which the others reach it. A call may be lost or served twice, because its position makes it harmless to repeat.

const (
	// notifyAgain is the time after which the server is notified again of a call without a reply, because a
	// notification is lost when a server's connection breaks.
	notifyAgain = 2 * time.Second
	// replyWithin is how much longer the reply may take than the call itself, because it passes through the database.
	replyWithin = 5 * time.Second
)

// relayTopic is the topic of notices about calls.
const relayTopic = "command.call"

// errNoReply is the error for a call that the server that runs the command did not answer.
var errNoReply = fault.New(fault.Unavailable, "the server that runs the command does not answer", "try again")

var queries = query.New()

// relay connects this server's calls with the servers that work on their commands, and answers the calls of others.
type relay struct {
	db     *db.DB
	jobs   *jobs.Jobs
	logger *slog.Logger
	// serve answers the call of another server.
	serve func(context.Context, db.Scope, call) (reply, error)

	// asked maps the ids of this server's calls to channels that receive a token when there may be a reply.
	asked sync.Map
	// answered holds the ids of the calls of other servers that this one is answering, because it may be notified of them
	// again in the meantime.
	answered sync.Map
}

// notice announces a call of the server that sends it, or the reply to a call of the receiver. The call itself is in a row,
// because it may be longer than a notice.
type notice struct {
	Call  string
	House string `json:",omitempty"`
	// Answered means that the call is the receiver's own.
	Answered bool `json:",omitempty"`
}

// ask has another server answer a call. If that server does not, the error is a [fault.Unavailable].
func (r *relay) ask(ctx context.Context, scope db.Scope, server jobs.Server, c call) (reply, error) {
	scope = db.Scope{House: scope.House}
	question, err := json.Marshal(c)
	if err != nil {
		return reply{}, err
	}
	id := uuid.NewString()
	answered := make(chan struct{}, 1)
	r.asked.Store(id, answered)
	defer r.asked.Delete(id)
	asks := notice{Call: id, House: scope.House}
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := queries.AskServer(ctx, tx, id, scope.House, question); err != nil {
			return err
		}
		return r.jobs.NotifyTx(ctx, tx, server, relayTopic, asks)
	})
	if err != nil {
		return reply{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyWithin)
		defer cancel()
		if err := r.db.In(ctx, scope, func(tx pgx.Tx) error { return queries.EndServerCall(ctx, tx, id) }); err != nil {
			r.logger.DebugContext(ctx, "cannot delete a call to another server; a later one does that", "error", fault.From(err).Detail())
		}
	}()
	return r.awaitReply(ctx, scope, server, asks, answered, time.Now().Add(c.Wait+replyWithin))
}

// awaitReply waits for the reply to a call until a deadline, and announces the call again from time to time. answered
// receives a token when there may be a reply.
func (r *relay) awaitReply(ctx context.Context, scope db.Scope, server jobs.Server, asks notice, answered <-chan struct{}, deadline time.Time) (reply, error) {
	tick := time.NewTicker(notifyAgain)
	defer tick.Stop()
	for {
		again := false
		select {
		case <-answered:
		case <-tick.C:
			again = true
		case <-ctx.Done():
			return reply{}, fault.From(ctx.Err())
		}
		var text []byte
		gone := false
		err := r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
			text, err = queries.ServerAnswer(ctx, tx, asks.Call)
			if err != nil || text != nil || !again {
				return err
			}
			if gone, err = server.GoneTx(ctx, tx); err != nil || gone {
				return err
			}
			return r.jobs.NotifyTx(ctx, tx, server, relayTopic, asks)
		})
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && text == nil && (gone || time.Now().After(deadline)):
			return reply{}, errNoReply // there is no row after a crash of the database, because the table is unlogged
		case err != nil:
			return reply{}, err
		case text == nil:
			continue
		}
		var a answer
		if err := json.Unmarshal(text, &a); err != nil {
			return reply{}, err
		}
		if a.Failed != nil {
			return reply{}, a.Failed.fault()
		}
		return a.Reply, nil
	}
}

// noticed receives a notice from another server.
func (r *relay) noticed(ctx context.Context, from jobs.Server, message []byte) error {
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
type answer struct {
	Reply  reply    `json:",omitzero"`
	Failed *failure `json:",omitempty"`
}

// failure is a fault between two servers.
type failure struct {
	Code          fault.Code
	Message, Next string
	Reference     string `json:",omitempty"`
}

func (f failure) fault() error {
	return &fault.Error{Code: f.Code, Message: f.Message, Next: f.Next, Reference: f.Reference}
}

// answer answers the call of another server.
func (r *relay) answer(ctx context.Context, from jobs.Server, n notice) error {
	scope := db.Scope{House: n.House}
	var question []byte
	err := r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		question, err = queries.ServerQuestion(ctx, tx, n.Call)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the caller no longer waits
	}
	if err != nil {
		return err
	}
	var c call
	var a answer
	if err := json.Unmarshal(question, &c); err != nil {
		return err
	}
	a.Reply, err = r.serve(ctx, scope, c)
	if err != nil {
		f := fault.From(err)
		if f.Code == fault.Internal {
			r.logger.ErrorContext(ctx, "the call of another server failed", "server", from, "error", f.Detail()) // its reply does not say why
		}
		a.Failed = &failure{f.Code, f.Message, f.Next, f.Reference}
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return r.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := queries.AnswerServer(ctx, tx, text, n.Call); err != nil {
			return err
		}
		return r.jobs.NotifyTx(ctx, tx, from, relayTopic, notice{Call: n.Call, Answered: true})
	})
}
