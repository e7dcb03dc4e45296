package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
)

// mostOutput limits the output of a program, in bytes.
const mostOutput = 16 << 20

// Run tries a program that its box keeps from running several times, with a pause between attempts, before it restarts the box:
// a few times if the box has no room for the program, and more often if the program was killed, because a command may kill it
// once by accident.
const (
	crowdedAttempts, killedAttempts = 3, 10
	hinderedPause                   = 200 * time.Millisecond
)

// Run runs a program. If nothing can run in the box any more, because a command exhausts its processes or memory or kills
// every new program, Run restarts the box. Nothing else would end such a command, and the box keeps its files.
func (p *provider) Run(ctx context.Context, ref string, argv []string, input []byte) (out []byte, code int, err error) {
	if err := checkRef(ref); err != nil {
		return nil, 0, err
	}
	return p.run(ctx, ref, fmt.Sprintf("%d:%d", userID, userID), argv, input)
}

// run runs a program as a user and a group.
func (p *provider) run(ctx context.Context, ref, as string, argv []string, input []byte) (out []byte, code int, err error) {
	end, err := p.begin(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	defer end()
	begun := ""
	for attempt, tries := 1, 1; ; attempt, tries = attempt+1, tries+1 {
		out, code, err = p.execute(ctx, ref, as, argv, input)
		if fault.CodeOf(err) == fault.NotFound && tries > 1 {
			err = unavailable(err) // an earlier attempt may have had an effect, so "gone" would be wrong
		}
		if err != nil {
			return nil, 0, err
		}
		most := p.attempts(ctx, ref, out, code)
		if most == 0 {
			return out, code, nil
		}
		box, err := p.find(ctx, ref)
		switch {
		case fault.CodeOf(err) == fault.NotFound:
			return nil, 0, unavailable(err)
		case err != nil:
			return nil, 0, err
		case box.State.StartedAt != begun:
			begun, attempt = box.State.StartedAt, 1
		case attempt >= most:
			if err := p.restart(ctx, ref, begun); err != nil {
				return nil, 0, err
			}
		}
		select {
		case <-time.After(hinderedPause):
		case <-ctx.Done():
			return nil, 0, fault.From(ctx.Err())
		}
	}
}

// killed is the exit code of a program that SIGKILL ended.
const killed = 137

// attempts returns how often to try a program that ended this way, or 0 if the box let it run to its end.
func (p *provider) attempts(ctx context.Context, ref string, out []byte, code int) int {
	switch {
	case notStarted(out, code), code != 0 && p.full(ctx, ref):
		return crowdedAttempts
	case code == killed:
		return killedAttempts
	}
	return 0
}

// notStarted reports whether the runtime lacked the resources to start a program, or the container had ended without the
// engine knowing it yet, as opposed to the program not existing.
func notStarted(out []byte, code int) bool {
	text := string(out[:min(len(out), 2000)])
	if code < 126 {
		return false
	}
	for _, words := range []string{
		"cannot exec in a stopped state", "cannot exec in a deleted state", "ttrpc: closed", "task ",
		"OCI runtime exec failed: exec failed: unable to create new parent process", // its namespaces are gone
	} {
		if strings.HasPrefix(text, words) {
			return true
		}
	}
	if !strings.HasPrefix(text, "OCI runtime exec failed") {
		return false
	}
	for _, words := range []string{"no such file or directory", "not found", "permission denied", "not a directory", "is a directory"} {
		if strings.Contains(text, words) {
			return false
		}
	}
	return true
}

// full reports whether a box has almost used up its processes or memory.
func (p *provider) full(ctx context.Context, ref string) bool {
	var use container.StatsResponse
	err := p.call(ctx, func(ctx context.Context) error {
		answer, err := p.engine.ContainerStats(ctx, ref, client.ContainerStatsOptions{})
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		return json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&use)
	})
	m := use.MemoryStats
	kept := m.Usage - min(m.Usage, max(m.Stats["total_inactive_file"], m.Stats["inactive_file"])) // the rest can be reclaimed
	return err == nil && (use.PidsStats.Limit > 0 && use.PidsStats.Current+ownPIDs/2 > use.PidsStats.Limit || m.Limit > 0 && kept > m.Limit/16*15)
}

// restart stops a box and starts it again, unless someone has done so since begun.
func (p *provider) restart(ctx context.Context, ref, begun string) error {
	p.restarting.Lock()
	defer p.restarting.Unlock()
	box, err := p.find(ctx, ref)
	if err != nil || box.State.StartedAt != begun {
		return err
	}
	if err := p.stop(ctx, ref); err != nil {
		return err
	}
	return p.awaitRunning(ctx, ref)
}

// execute runs a program once, starting its box if it is stopped.
func (p *provider) execute(ctx context.Context, ref, as string, argv []string, input []byte) ([]byte, int, error) {
	id, err := p.prepareExec(ctx, ref, as, argv)
	if stopped(err) {
		if err = p.awaitRunning(ctx, ref); err != nil {
			return nil, 0, err
		}
		id, err = p.prepareExec(ctx, ref, as, argv)
	}
	if err != nil {
		return nil, 0, p.lost(ctx, ref, err)
	}
	out, err := p.exchange(ctx, id, input)
	if err != nil {
		return nil, 0, p.lost(ctx, ref, err)
	}
	code, err := p.exitCode(ctx, id)
	if err != nil {
		return nil, 0, p.lost(ctx, ref, err)
	}
	return out, code, nil
}

// stopped reports whether a program could not start because the container is not running.
func stopped(err error) bool { return errdefs.IsConflict(err) }

// lost returns the fault for a program that could not be run: either its box is gone, or the caller can try again.
func (p *provider) lost(ctx context.Context, ref string, cause error) error {
	if ctx.Err() != nil {
		return fault.From(ctx.Err())
	}
	if _, err := p.find(ctx, ref); err != nil {
		return err
	}
	return unavailable(cause)
}

func (p *provider) prepareExec(ctx context.Context, ref, as string, argv []string) (id string, err error) {
	err = p.call(ctx, func(ctx context.Context) error {
		made, err := p.engine.ExecCreate(ctx, ref, client.ExecCreateOptions{
			User: as, WorkingDir: "/", Cmd: argv, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		})
		id = made.ID
		return err
	})
	return id, err
}

// exchange starts a program, sends its input and returns what it prints. If ctx ends, the program may run on.
func (p *provider) exchange(ctx context.Context, id string, input []byte) ([]byte, error) {
	attached, err := p.engine.ExecAttach(ctx, id, client.ExecAttachOptions{})
	if err != nil {
		return nil, err
	}
	defer attached.Close()
	stop := context.AfterFunc(ctx, attached.Close)
	defer stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := attached.Conn.Write(input); err == nil {
			_ = attached.CloseWrite() // a program need not read its input
		}
	}()
	defer func() { attached.Close(); <-sent }()
	out := &bounded{}
	if _, err := stdcopy.StdCopy(out, out, attached.Reader); err != nil {
		return nil, fmt.Errorf("the connection to a program was lost: %w", err)
	}
	return out.Bytes(), ctx.Err()
}

// bounded is a buffer of limited size.
type bounded struct{ bytes.Buffer }

// Write fails once there is too much output.
func (b *bounded) Write(text []byte) (int, error) {
	if b.Len()+len(text) > mostOutput {
		return 0, errTooMuch
	}
	return b.Buffer.Write(text)
}

var (
	errTooMuch = errors.New("a program printed too much")
	errUnknown = errors.New("the exit code of a program is unknown")
)

// endLimit limits the wait for a program's exit code after the end of its output.
const endLimit = 10 * time.Second

// exitCode returns a program's exit code. The engine may know it a moment after the output has ended.
func (p *provider) exitCode(ctx context.Context, id string) (int, error) {
	for begin := time.Now(); ; {
		var state client.ExecInspectResult
		err := p.call(ctx, func(ctx context.Context) (err error) {
			state, err = p.engine.ExecInspect(ctx, id, client.ExecInspectOptions{})
			return err
		})
		switch {
		case err != nil:
			return 0, err
		case !state.Running:
			return state.ExitCode, nil
		case time.Since(begin) > endLimit:
			return 0, errUnknown
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
