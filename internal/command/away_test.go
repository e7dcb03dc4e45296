//go:build linux

package command_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// faraway is a driver whose provider is slow to answer, or does not answer for a while.
type faraway struct {
	*commandtest.OwnBoxes
	// launched, unless nil, receives each launch, whose answer arrives only after its context has ended.
	launched chan struct{}
	// silent is how often a follower gets no answer, each time after one more part of the record.
	silent atomic.Int32
	// ended counts the commands that were ended.
	ended atomic.Int32
}

// serve starts a server with real boxes behind the driver, and returns a thread on it.
func (d *faraway) serve(t *testing.T) (b *bench, thread string) {
	t.Helper()
	b = database(t)
	d.OwnBoxes = commandtest.RealBoxes(t)
	b.driver = d
	b.use(b.serve())
	return b, b.Thread(sandbox.Recipe{})
}

func (d *faraway) Launch(ctx context.Context, ref, id string, cmd sandbox.Command) error {
	err := d.OwnBoxes.Launch(ctx, ref, id, cmd)
	if err == nil && d.launched != nil {
		d.launched <- struct{}{}
		<-ctx.Done()
		return fault.From(ctx.Err())
	}
	return err
}

func (d *faraway) Follow(ctx context.Context, ref, id string, from int64, to func(sandbox.Record) error) error {
	if d.silent.Add(-1) < 0 {
		return d.OwnBoxes.Follow(ctx, ref, id, from, to)
	}
	once, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = d.OwnBoxes.Follow(once, ref, id, from, func(r sandbox.Record) error {
		defer cancel()
		return to(r)
	})
	return fault.New(fault.Unavailable, "the provider does not answer", "try again")
}

func (d *faraway) End(ctx context.Context, ref, id string, grace time.Duration) error {
	d.ended.Add(1)
	return d.OwnBoxes.End(ctx, ref, id, grace)
}

// A launch whose answer is under way when its server stops belongs to the next server.
func TestAServerThatStopsWhileItLaunches(t *testing.T) {
	t.Parallel()
	d := &faraway{launched: make(chan struct{}, 1)}
	b, th := d.serve(t)
	id := b.Ask(th, "echo ran >>runs; until test -e go; do sleep 0.05; done; cat runs")
	<-d.launched
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	d.launched = nil
	b.use(b.serve())
	b.Sh(th, "touch go")
	if r := b.Result(th, id); r.Output != "ran\n" || r.ExitCode != 0 || d.ended.Load() > 0 {
		t.Errorf("the result is %+v, and %d commands were ended", r, d.ended.Load())
	}
}

// A launch that its person cancelled, or that took too long, may have started the command all the same.
func TestALaunchThatNobodyWantsIsEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cancelled bool
		limit     int64 // in milliseconds
	}{"it is cancelled": {true, 600_000}, "its time is over": {false, 1000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &faraway{launched: make(chan struct{}, 1)}
			b, th := d.serve(t)
			id := b.AskFor(th, "unwanted", entry.Command{Command: "exec sleep 3210", TimeoutMS: c.limit})
			<-d.launched
			if c.cancelled {
				b.Cancel(th, id)
			}
			if r := b.Result(th, id); r.Cancelled != c.cancelled || r.TimedOut == c.cancelled || d.ended.Load() == 0 {
				t.Errorf("the result is %+v, and %d commands were ended", r, d.ended.Load())
			}
		})
	}
}

// A command goes on while the provider of its sandbox does not answer.
func TestACommandWhoseProviderDoesNotAnswer(t *testing.T) {
	t.Parallel()
	d := &faraway{}
	d.silent.Store(2)
	b, th := d.serve(t)
	if r := b.Result(th, b.Ask(th, "echo one; sleep 0.2; echo two; sleep 0.2; echo three; exit 3")); r.Output != "one\ntwo\nthree\n" || r.ExitCode != 3 || r.Error != "" {
		t.Errorf("the result is %+v", r)
	}
}
