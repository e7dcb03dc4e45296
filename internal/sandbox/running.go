package sandbox

import (
	"context"
	"sync"
)

// runningBuilds are this server's current builds. A caller that asks for a box that is being built joins its build. It
// is safe for concurrent use.
type runningBuilds struct {
	mu   sync.Mutex
	byID map[string]*runningBuild // by the sandbox's id
}

// runningBuild is one build, shared by all callers on this server that wait for it.
type runningBuild struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	box     Sandbox // set when done
	err     error   // set when done
}

func newRunningBuilds() *runningBuilds { return &runningBuilds{byID: map[string]*runningBuild{}} }

// do runs build, or waits for the running build with the same id, and returns its result. If ctx ends, it returns ctx's
// error. The build continues while anybody waits for it. When the last caller leaves, the build's context ends, and
// that caller returns when the build has, so that no build goes on without a caller.
func (r *runningBuilds) do(ctx context.Context, id string, build func(context.Context) (Sandbox, error)) (Sandbox, error) {
	b := r.join(ctx, id, build)
	select {
	case <-b.done:
		return b.box, b.err
	case <-ctx.Done():
		r.leave(id, b)
		return Sandbox{}, ctx.Err()
	}
}

func (r *runningBuilds) join(ctx context.Context, id string, build func(context.Context) (Sandbox, error)) *runningBuild {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.byID[id]
	if !ok {
		// The build's context must not end with that of the first caller, because others may wait for the build.
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		b = &runningBuild{cancel: cancel, done: make(chan struct{})}
		r.byID[id] = b
		go func() {
			defer cancel()
			defer close(b.done)
			b.box, b.err = build(ctx)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.forgetLocked(id, b)
		}()
	}
	b.waiting++
	return b
}

func (r *runningBuilds) leave(id string, b *runningBuild) {
	r.mu.Lock()
	b.waiting--
	last := b.waiting == 0
	if last {
		r.forgetLocked(id, b)
		b.cancel()
	}
	r.mu.Unlock()
	if last {
		<-b.done
	}
}

// forgetLocked prevents further callers from joining a build that has ended or was cancelled. By then another build may
// have its id, which must stay.
func (r *runningBuilds) forgetLocked(id string, b *runningBuild) {
	if r.byID[id] == b {
		delete(r.byID, id)
	}
}
