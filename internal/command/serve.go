package command

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// attachedWait is how long a call waits for output or for space. Common proxies would cut off a longer call.
	attachedWait = 15 * time.Second
	// lookAgain is the pause between checks for a command that no server has started yet. A call must poll, because another
	// server that starts the command does not notify this one.
	lookAgain = time.Second
)

// Read returns the output of a command with [entry.Command].Separate after a position, up to a limit. The first
// position is 0. It waits a while for output, and then returns an empty Reading. The position confirms that the caller
// has everything before it, which is then no longer kept. With Stay it only reports that the caller will continue to
// read, with Leave that it will not. Any server may be called, whichever runs the command.
//
// A reader that leaves, or has not called for a minute, counts as gone: the command continues, and its output is not
// kept for the reader. Reading what is no longer kept is a [fault.OutOfRange].
func (d *Commands) Read(ctx context.Context, scope db.Scope, threadID, commandID string, position int64, as Reader) (Reading, error) {
	r, err := d.serveCall(ctx, scope, call{Thread: threadID, Command: commandID, Keys: Keys{Position: position}, Reader: as, Wait: attachedWait}, d.ask)
	return r.Reading, err
}

// Write sends input to a command with [entry.Command].Input, from a position on. The first position is 0. It
// accepts as much as there is space for, and waits a while for space. Without data it only reports that the caller will
// continue to write. Any server may be called, whichever runs the command.
//
// A writer that has not called for a minute before the end counts as gone: the command is then ended, because the end
// of its input would tell it that the input was complete.
//
// The input of an [entry.Command].Terminal is its keyboard. Its writer may change: the next one joins where the input stands.
// Keys typed while the command's server was killed may be lost, but are never typed twice.
func (d *Commands) Write(ctx context.Context, scope db.Scope, threadID, commandID string, keys Keys) (Writing, error) {
	r, err := d.serveCall(ctx, scope, call{Thread: threadID, Command: commandID, Keys: keys, Writes: true, Wait: attachedWait}, d.ask)
	return r.Writing, err
}

// Peek returns the output of a command so far: from a position on, or its end if the position is negative. If the server that
// runs the command has just died, it returns nothing; the next one has the output again.
func (d *Commands) Peek(ctx context.Context, scope db.Scope, threadID, commandID string, from int64) (Seen, error) {
	r, err := d.serveCall(ctx, scope, call{Thread: threadID, Command: commandID, Peeks: true, Keys: Keys{Position: from}}, d.ask)
	if errors.Is(err, errNoReply) {
		return Seen{}, nil
	}
	return r.Seen, err
}

// errNoReply is the error for a call that the server that runs the command did not answer.
var errNoReply = fault.New(fault.Unavailable, "the server that runs the command does not answer", "try again")

// ask has another server answer a call. The input and output of an attached command are in the memory of the server that
// runs it.
func (d *Commands) ask(ctx context.Context, scope db.Scope, server jobs.Server, c call) (reply, error) {
	return d.relay.Ask(ctx, scope, server, c, c.Wait)
}

// serveOther answers the call of another server.
func (d *Commands) serveOther(ctx context.Context, scope db.Scope, c call) (reply, error) {
	c.Wait = min(c.Wait, attachedWait)
	return d.serveCall(ctx, scope, c, func(context.Context, db.Scope, jobs.Server, call) (reply, error) {
		return reply{}, errNoReply // the command has moved to another server, which the caller finds instead of this one
	})
}

// serveCall answers a call if this server works on the command, or none does. If another one does, ask answers it.
func (d *Commands) serveCall(ctx context.Context, scope db.Scope, c call, ask func(_ context.Context, _ db.Scope, server jobs.Server, _ call) (reply, error)) (reply, error) {
	key := attachmentKey{scope.House, c.Thread, c.Command}
	for deadline := time.Now().Add(c.Wait); ; {
		to, added := d.attached.get(key)
		if to != nil {
			return c.attached(ctx, to, deadline)
		}
		said, ended, elsewhere, err := d.lookFor(ctx, scope, c.Thread, c.Command)
		switch {
		case err != nil:
			return reply{}, err
		case elsewhere != 0:
			c.Wait = max(time.Until(deadline), 0)
			return ask(ctx, scope, elsewhere, c)
		case c.Peeks || ended != nil || !said.Read() && !said.Written() || time.Now().After(deadline):
			return c.unattached(said, ended)
		}
		timer := time.NewTimer(lookAgain)
		select {
		case <-added:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return reply{}, fault.From(ctx.Err())
		}
		timer.Stop()
	}
}

// lookFor looks up a command that this server does not work on. ended is nil if it has not ended. elsewhere is the
// server that works on it, if another one does.
func (d *Commands) lookFor(ctx context.Context, scope db.Scope, threadID, commandID string) (c entry.Command, ended *entry.CommandResult, elsewhere jobs.Server, err error) {
	log, elsewhere, err := d.serverOf(ctx, scope, threadID, commandID)
	if err != nil {
		return c, nil, 0, err
	}
	said, err := d.config.Log.Get(ctx, log, commandID)
	if err != nil {
		return c, nil, 0, err
	}
	c, ok := entry.As[entry.Command](said)
	if !ok {
		return c, nil, 0, fault.New(fault.NotFound, "this entry is not a command", "give the id of a command entry")
	}
	said, err = d.config.Log.Get(ctx, log, entry.ResultID(commandID))
	if fault.CodeOf(err) == fault.NotFound {
		return c, nil, elsewhere, nil
	}
	if err != nil {
		return c, nil, 0, err
	}
	r, _ := entry.As[entry.CommandResult](said)
	return c, &r, 0, nil
}

// serverOf returns the log of a thread, and the server that works on a command of it, if another one does.
func (d *Commands) serverOf(ctx context.Context, scope db.Scope, threadID, commandID string) (log stream.Ref, elsewhere jobs.Server, err error) {
	err = d.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.config.Threads.GetTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		log = th.Stream()
		found, err := d.config.Jobs.FindTx(ctx, tx, jobs.Filter{Kind: Kind, Args: map[string]string{"stream": th.StreamID, "command": commandID}, Running: true, Most: 1})
		if err != nil || len(found) == 0 {
			return err
		}
		by, taken := found[0].Server()
		if !taken || by == d.config.Jobs.Server() {
			return nil
		}
		// If that server was killed, this one may continue the command soon. A call to it would only fail.
		gone, err := by.GoneTx(ctx, tx)
		if !gone {
			elsewhere = by
		}
		return err
	})
	return log, elsewhere, err
}
