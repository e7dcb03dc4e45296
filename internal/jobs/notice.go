package jobs

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db"
)

// notice is one message. It must be shorter than 8,000 bytes, which is Postgres' limit.
type notice struct {
	// Cancel is the id of a job of the receiver that was cancelled; zero if it is about something else.
	Cancel int64 `json:",omitempty"`
	// Topic names the receiver's handler of Message, and From is the server that sent it.
	Topic   string          `json:",omitempty"`
	From    Server          `json:",omitempty"`
	Message json.RawMessage `json:",omitempty"`
}

// OnNotice makes this server call handle for each notice about a topic, in a goroutine of its own. It must be called
// before [Jobs.Start].
func (j *Jobs) OnNotice(topic string, handle func(ctx context.Context, from Server, message []byte) error) {
	j.notices.handlers[topic] = handle
}

// NotifyTx sends a server a notice about a topic when tx commits. The message, as JSON, may have about 7,000 bytes.
func (j *Jobs) NotifyTx(ctx context.Context, tx pgx.Tx, to Server, topic string, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return j.notifyTx(ctx, tx, to, notice{Topic: topic, From: j.Server(), Message: text})
}

func (j *Jobs) notifyTx(ctx context.Context, tx pgx.Tx, to Server, n notice) error {
	text, err := json.Marshal(n)
	if err == nil {
		_, err = tx.Exec(ctx, "select pg_notify($1, $2)", to.String(), string(text))
	}
	return err
}

// startNotices receives the notices of other servers.
func (j *Jobs) startNotices(ctx context.Context) error {
	l := &db.Listener{
		DB: j.db, Name: "arbe notices", Channels: []string{j.Server().String()},
		ConnectTimeout: 10 * time.Second, ProveEvery: 5 * time.Second, ProveTimeout: 10 * time.Second,
		Notified:  func(n *pgconn.Notification) { j.notified(n.Payload) },
		Connected: func(db.Ask) error { return nil }, // a notice that was missed is sent again
		Broken: func(cause error) {
			j.logger.Warn("cannot receive the notices of other servers; connecting again", "error", cause)
		},
	}
	if err := l.Connect(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	j.notices.stop = func() { cancel(); running.Wait() }
	return nil
}

// notified receives a notice from another server.
func (j *Jobs) notified(payload string) {
	var n notice
	if json.Unmarshal([]byte(payload), &n) != nil {
		return // another version's
	}
	if n.Cancel != 0 {
		for _, k := range j.kinds {
			k.working.cancel(n.Cancel, ErrCancelled)
		}
		return
	}
	handle, known := j.notices.handlers[n.Topic]
	if !known {
		return
	}
	j.notices.handling.Go(func() {
		if err := handle(j.results, n.From, n.Message); err != nil {
			j.logger.Debug("cannot handle a notice of another server, which will send it again", "server", n.From, "topic", n.Topic, "error", err)
		}
	})
}
