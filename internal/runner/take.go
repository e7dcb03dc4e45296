package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/wait"
)

// This file takes messages for the agent. People can change a message until the runner has taken it. The runner
// therefore tells the door which messages it takes, and gives them to the agent only after the door has agreed. If the
// runner has not yet read a change of a message, the door refuses, and the runner reads on.

// maxRefusals is how often the door may refuse at one log position before the messages are left to the next run.
const maxRefusals = 5

// steers reports whether the agent accepts messages while it works.
func (r *run) steers() bool {
	return r.harness.Info().Steer && !r.cancelled && !r.overtime && !r.settled
}

// steerable returns the waiting messages that may reach the agent's current work.
func (r *run) steerable() []entry.Queued {
	return slices.DeleteFunc(slices.Clone(r.queue.Waiting()), func(w entry.Queued) bool { return w.Later })
}

// take begins to take waiting messages, unless a request is under way or the door has refused one at this log
// position.
func (r *run) take(ctx context.Context, waiting []entry.Queued) {
	if r.taking != nil || len(waiting) == 0 || r.position == r.refusedAt {
		return
	}
	t := &taking{read: r.position, said: make(chan error, 1)}
	for _, w := range waiting[:min(len(waiting), entry.MaxTaken)] {
		t.ids, t.texts = append(t.ids, w.ID), append(t.texts, w.Chat.Told())
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

// tell posts a record until the door has accepted or refused it.
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

// answer returns the channel for the door's answer; nil if there is no request.
func (r *run) answer() <-chan error {
	if r.taking == nil {
		return nil
	}
	return r.taking.said
}

// took handles the door's answer.
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
	// An older door, which does not support takes, also refuses them. In that case nobody can change the queue.
	r.queue.Take(t.ids...)
	r.waiting = append(r.waiting, t.texts...)
	r.beat()
}

// notTaken waits for further entries. If none come, it leaves the messages to the next run.
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

// steer gives the taken messages to the running agent.
func (r *run) steer() {
	for len(r.waiting) > 0 && r.steers() {
		input := r.reader.Steer(r.waiting[0])
		if input == nil || !r.agent.input.write(input) {
			return // it becomes the next prompt
		}
		r.waiting = r.waiting[1:]
	}
}

// takeAll takes everything that waits, while heartbeats continue. The error is errOver, or that of ctx.
func (r *run) takeAll(ctx context.Context, guard <-chan time.Time) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for !r.cancelled && !r.overtime {
		r.take(ctx, r.queue.Waiting())
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
