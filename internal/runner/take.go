package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/wait"
)

// This file takes what people say for the agent. Until the runner has taken a message, people can change it; therefore it tells the
// door what it takes, and gives the agent a message only when the door has said yes. If somebody has changed a message that it has
// not read yet, the door says no, and the runner reads on.

// maxRefusals is how often the door may refuse, without a reason in the log, before messages are left to the next run.
const maxRefusals = 5

// taking is what the door is being told.
type taking struct {
	ids   []string
	texts []string
	read  int64
	// said has the door's answer.
	said chan error
}

// steers reports whether the agent can be given more than it has.
func (r *run) steers() bool {
	return r.harness.Info().Steer && !r.cancelled && !r.overtime && !r.settled
}

// take begins to take what waits, unless the door is being told already, or has refused it as the log is now.
func (r *run) take(ctx context.Context) {
	waiting := r.queue.Waiting()
	if r.taking != nil || len(waiting) == 0 || r.position == r.refusedAt {
		return
	}
	t := &taking{read: r.position, said: make(chan error, 1)}
	for _, w := range waiting[:min(len(waiting), entry.MaxTaken)] {
		t.ids, t.texts = append(t.ids, w.ID), append(t.texts, w.Chat.Plain())
	}
	id := fmt.Sprintf("%s.take.%d", entry.RunID(r.Epoch), r.takings)
	r.takings++
	p := entry.QueueTaken{Epoch: r.Epoch, EntryIDs: t.ids, Read: t.read}
	record, err := r.door.record(id, r.author, time.Now(), p.Type(), p)
	if err != nil { // cannot happen for ids
		return
	}
	r.taking = t
	go func() { t.said <- tell(ctx, r.door, record) }()
}

// tell posts a record until the door has said yes or no.
func tell(ctx context.Context, d *door, record []byte) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := d.post(ctx, [][]byte{record})
		if _, no := errors.AsType[refused](err); err == nil || no || errors.Is(err, errOver) || ctx.Err() != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "arbe-runner: taking what was said:", err)
		wait.For(ctx, pause)
	}
}

// answer is where the door's answer comes; nil if the door is not being told anything.
func (r *run) answer() <-chan error {
	if r.taking == nil {
		return nil
	}
	return r.taking.said
}

// took does what the door's answer says.
func (r *run) took(err error) {
	t := r.taking
	r.taking = nil
	no, isRefused := errors.AsType[refused](err)
	switch {
	case errors.Is(err, errOver):
		r.post.fail(err)
		return
	case isRefused && no.status == http.StatusPreconditionFailed:
		r.notTaken(t, no)
		return
	case err != nil && !isRefused: // the context has ended
		return
	}
	// A door that does not know what taking is refuses it, too. Then nobody can change what waits.
	r.queue.Take(t.ids...)
	r.waiting = append(r.waiting, t.texts...)
	r.beat()
}

// notTaken waits for more of the log. If that does not come, the messages are left to the next run.
func (r *run) notTaken(t *taking, no error) {
	if t.read != r.lastRefused {
		r.refusals = 0
	}
	r.refusals++
	if r.lastRefused, r.refusedAt = t.read, t.read; r.refusals >= maxRefusals {
		fmt.Fprintln(os.Stderr, "arbe-runner: messages are left to the next run:", no)
		r.queue.Take(t.ids...)
	}
}

// steer gives the running agent what was taken.
func (r *run) steer() {
	for len(r.waiting) > 0 && r.steers() {
		input := r.reader.Steer(r.waiting[0])
		if input == nil || !r.agent.input.write(input) {
			return // it is the next prompt
		}
		r.waiting = r.waiting[1:]
	}
}

// takeAll takes everything that waits, while heartbeats go on. The error is errOver, or that of ctx.
func (r *run) takeAll(ctx context.Context, guard <-chan time.Time) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for !r.cancelled && !r.overtime {
		r.take(ctx)
		if r.taking == nil && len(r.queue.Waiting()) == 0 {
			return nil
		}
		select {
		case err := <-r.answer():
			r.took(err)
		case entries := <-r.inbox:
			r.learn(entries)
		case <-guard:
			r.overtime = true
		case <-beat.C:
			r.refusedAt = 0
			r.beat()
		case <-r.post.over:
			return errOver
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
