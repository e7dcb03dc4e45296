package remote

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

const (
	// MaxRun limits one run, unless its box has to be started first. Providers end longer calls.
	MaxRun = 30 * time.Second
	// longestWait limits how long a request waits for something to happen before it is repeated.
	longestWait = 20 * time.Second
	// runLimit limits a run together with the start of its box.
	runLimit = 3 * time.Minute
	// persistence limits how long requests are retried while a provider does not answer.
	persistence = 2 * time.Minute
	// The pauses between these retries grow from the shortest to the longest.
	shortestPause, longestPause = 100 * time.Millisecond, 10 * time.Second
	// inlineData is the most data that a request itself carries. More is sent to the inbox first.
	inlineData = 64 << 10
	// interrupted limits the retries of a run that was killed inside the box, by a command that kills everything it can.
	interrupted = 40
)

// patiently retries do while it fails with a [fault.Unavailable].
func (d *Driver) patiently(ctx context.Context, do func(context.Context) error) error {
	begin, pause := time.Now(), shortestPause
	for {
		limited, cancel := context.WithTimeout(ctx, runLimit)
		err := do(limited)
		late := limited.Err() != nil
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fault.From(ctx.Err())
		case late:
			err = fault.New(fault.Unavailable, "the sandbox's provider does not answer", "try again later").Because(err)
		case fault.CodeOf(err) != fault.Unavailable:
			return err
		}
		if time.Since(begin)+pause > persistence {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

// wait pauses, or returns early when ctx ends.
func wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
}

// run runs a program and retries while the provider does not answer.
func (d *Driver) run(ctx context.Context, ref string, argv []string, input []byte) (out []byte, code int, err error) {
	err = d.patiently(ctx, func(ctx context.Context) (err error) {
		out, code, err = d.provider.Run(ctx, ref, argv, input)
		return err
	})
	if err == nil {
		d.awake(ref)
	}
	return out, code, err
}

// call sends a request to the keeper of a box. A [fault.NotFound] promises that nothing was started.
func (d *Driver) call(ctx context.Context, ref string, r protocol.Request) (reply protocol.Reply, err error) {
	defer d.attendDoor(ctx, ref, r.Op)()
	besides := d.takeForgotten(ref)
	r.Forgotten = append(r.Forgotten, besides...)
	answered := false
	defer func() {
		if !answered {
			d.keepForgotten(ref, besides)
		}
	}()
	uncertain := false // an earlier attempt may have arrived and started something
	for attempt := 1; ; attempt++ {
		if attempt > 1 {
			if err := wait(ctx, min(time.Duration(attempt)*5*time.Millisecond, shortestPause)); err != nil {
				return reply, err
			}
		}
		keeper, err := d.keeper(ctx, ref)
		if fault.CodeOf(err) == fault.Exhausted && attempt < interrupted {
			continue // the run was killed, too
		}
		var input []byte
		if err == nil {
			input, err = d.encode(ctx, ref, r)
		}
		if err != nil && !uncertain {
			return reply, unsentError{err}
		}
		if err != nil {
			return reply, doubted(err, uncertain)
		}
		tries := 0
		var out []byte
		code := 0
		err = d.patiently(ctx, func(ctx context.Context) (err error) {
			tries++
			out, code, err = d.provider.Run(ctx, ref, []string{keeper}, input)
			return err
		})
		uncertain = uncertain || tries > 1 && r.Op == protocol.Launch
		if err != nil {
			return reply, doubted(err, uncertain)
		}
		d.awake(ref)
		reply, ok := protocol.DecodeReply(out)
		if ok {
			answered = true
			return reply, nil
		}
		if attempt == interrupted {
			return reply, unanswered(out, code)
		}
		if code == 126 || code == 127 || attempt > 3 {
			d.lose(ref) // a command has deleted the keeper, or the box was restored without it
		}
		uncertain = r.Op == protocol.Launch
	}
}

// doubted replaces a [fault.NotFound] whose promise cannot be kept.
func doubted(err error, uncertain bool) error {
	if uncertain && fault.CodeOf(err) == fault.NotFound {
		return fault.New(fault.Unavailable, "the sandbox disappeared during a request", "run the command again").Because(err)
	}
	return err
}

// unsentError is the error of a request of which no attempt left this server.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// keeper returns the path of the keeper in a box, after preparing the box if necessary.
func (d *Driver) keeper(ctx context.Context, ref string) (string, error) {
	find := func() (string, bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		path, ok := d.keepers[ref]
		return path, ok
	}
	if path, ok := find(); ok {
		return path, nil
	}
	if err := d.prepare(ctx, ref); err != nil {
		return "", err
	}
	path, _ := find()
	return path, nil
}

// lose makes the next request prepare the box again.
func (d *Driver) lose(ref string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.keepers, ref)
}

// encode encodes a request, and sends large data ahead.
func (d *Driver) encode(ctx context.Context, ref string, r protocol.Request) ([]byte, error) {
	if len(r.Data) > inlineData {
		r.DataIn = "data-" + strings.ToLower(rand.Text())
		if err := d.put(ctx, ref, protocol.Inbox+"/"+r.DataIn, r.Data); err != nil {
			return nil, err
		}
		r.Data = nil
	}
	return protocol.EncodeRequest(r)
}

// unanswered is the error for a run that printed no reply.
func unanswered(out []byte, code int) *fault.Error {
	const most = 1000
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return fault.New(fault.Exhausted, "the sandbox does not answer: something in it may exhaust its memory or processes, or kill every new process",
		"end the commands that run in it, or replace the sandbox").Because(fmt.Errorf("exit code %d: %s", code, out))
}
