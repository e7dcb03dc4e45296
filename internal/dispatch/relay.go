package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// This file lets every server answer calls for attached commands. What such a command prints and reads is in the memory
// of the server that runs it, so another server passes the call on to that one, through the database: the call and its
// reply are a row, and a notification announces it. HTTP would be faster, but then an operator would have to give every
// server an address at which the others reach it. A call may be lost or served twice, because its position makes it
// harmless to repeat.

const (
	// notifyAgain is the time after which the server is notified again of a call without a reply, because a
	// notification is lost when a server's connection breaks.
	notifyAgain = 2 * time.Second
	// replyWithin is how much longer than the call itself its reply may take, because it passes through the database.
	replyWithin = 5 * time.Second
)

// errNoReply is the error for a call that the server that runs the command did not answer.
var errNoReply = fault.New(fault.Unavailable, "the server that runs the command does not answer", "try again")

// relay tracks the calls between this server and others.
type relay struct {
	// asked maps the ids of this server's calls to channels that receive a token when there may be a reply.
	asked sync.Map
	// answered contains the ids of the calls of other servers that this one answers, because it may be notified of them
	// again meanwhile.
	answered sync.Map
	// answering counts them, because the server must not stop before they are answered.
	answering sync.WaitGroup
}

// notice is a message from one server to another one. The call itself is in a row, because a notification holds
// less than 8,000 bytes.
type notice struct {
	// Call is the id of a call, and House its house. From is the server that made it; empty if the call is the
	// receiver's own, and answered.
	Call  string `json:",omitempty"`
	House string `json:",omitempty"`
	From  string `json:",omitempty"`
	// Cancel is instead the id of a job of the receiver that was cancelled. The queue notifies its servers too, but one
	// that stops, and waits for its jobs, checks only once a minute.
	Cancel int64 `json:",omitempty"`
}

// notifyTx sends a notice to a server when tx commits.
func notifyTx(ctx context.Context, tx pgx.Tx, server string, n notice) error {
	text, err := json.Marshal(n)
	if err == nil {
		_, err = tx.Exec(ctx, "select pg_notify($1, $2)", server, string(text))
	}
	return err
}

// startNotices receives the notices of other servers, until end is called.
func (d *Dispatcher) startNotices(ctx context.Context) (end func(), err error) {
	l := &db.Listener{
		DB: d.db, Name: "arbe notices", Channels: []string{d.liveness.name()},
		ConnectTimeout: 10 * time.Second, ProveEvery: 5 * time.Second, ProveTimeout: 10 * time.Second,
		Notified:  func(n *pgconn.Notification) { d.notified(n.Payload) },
		Connected: func(db.Ask) error { return nil }, // a call that was missed is announced again
		Broken: func(cause error) {
			d.logger.Warn("other servers cannot reach this one for commands whose output is read through them; connecting again", "error", cause)
		},
	}
	if err := l.Connect(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	return func() { cancel(); running.Wait() }, nil
}

// notified receives a notice from another server.
func (d *Dispatcher) notified(payload string) {
	var n notice
	if json.Unmarshal([]byte(payload), &n) != nil {
		return // another version's
	}
	if n.Cancel != 0 {
		d.working.cancel(n.Cancel, river.ErrJobCancelledRemotely)
		return
	}
	if n.From == "" {
		if waiting, there := d.relay.asked.Load(n.Call); there {
			select {
			case waiting.(chan struct{}) <- struct{}{}:
			default: // a token is already pending
			}
		}
		return
	}
	if _, twice := d.relay.answered.LoadOrStore(n.Call, true); twice {
		return
	}
	d.relay.answering.Go(func() {
		defer d.relay.answered.Delete(n.Call)
		if err := d.answerServer(d.resultCtx, n); err != nil {
			d.logger.Debug("cannot answer the call of another server, which will make it again", "server", n.From, "error", fault.From(err).Detail())
		}
	})
}

// answerServer answers the call of another server.
func (d *Dispatcher) answerServer(ctx context.Context, n notice) error {
	scope := db.Scope{House: n.House}
	var question []byte
	err := d.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
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
	c.Wait = min(c.Wait, attachedWait)
	a.Reply, err = d.serveCall(ctx, scope, c, func(context.Context, db.Scope, string, call) (reply, error) {
		return reply{}, errNoReply // the command has moved to another server, which the caller finds instead of this one
	})
	if err != nil {
		f := fault.From(err)
		if f.Code == fault.Internal {
			d.logger.ErrorContext(ctx, "the call of another server failed", "server", n.From, "error", f.Detail()) // its reply does not say why
		}
		a.Failed = &failure{f.Code, f.Message, f.Next, f.Reference}
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return d.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := queries.AnswerServer(ctx, tx, text, n.Call); err != nil {
			return err
		}
		return notifyTx(ctx, tx, n.From, notice{Call: n.Call})
	})
}

// answer is what a server answers to another one's call.
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

// askServer has another server answer a call. If that server does not, the error is a [fault.Unavailable].
func (d *Dispatcher) askServer(ctx context.Context, scope db.Scope, server string, c call) (reply, error) {
	scope = db.Scope{House: scope.House}
	question, err := json.Marshal(c)
	if err != nil {
		return reply{}, err
	}
	id := uuid.NewString()
	answered := make(chan struct{}, 1)
	d.relay.asked.Store(id, answered)
	defer d.relay.asked.Delete(id)
	asks := notice{Call: id, House: scope.House, From: d.liveness.name()}
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := queries.AskServer(ctx, tx, id, scope.House, question); err != nil {
			return err
		}
		return notifyTx(ctx, tx, server, asks)
	})
	if err != nil {
		return reply{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyWithin)
		defer cancel()
		if err := d.db.In(ctx, scope, func(tx pgx.Tx) error { return queries.EndServerCall(ctx, tx, id) }); err != nil {
			d.logger.DebugContext(ctx, "cannot delete a call to another server; a later one does that", "error", fault.From(err).Detail())
		}
	}()
	tick := time.NewTicker(notifyAgain)
	defer tick.Stop()
	for deadline := time.Now().Add(c.Wait + replyWithin); ; {
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
		err := d.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
			text, err = queries.ServerAnswer(ctx, tx, id)
			if err != nil || text != nil || !again {
				return err
			}
			if gone, err = isGone(ctx, tx, serverKey(server)); err != nil || gone {
				return err
			}
			return notifyTx(ctx, tx, server, asks)
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
