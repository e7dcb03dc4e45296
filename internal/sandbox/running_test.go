package sandbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestARunningBuild(t *testing.T) {
	t.Parallel()
	type outcome struct {
		box Sandbox
		err error
	}
	// ask begins n calls for one id that share one build, which ends when release is closed or its context ends.
	type calls struct {
		builds  *runningBuilds
		started int
		release chan struct{}
		giveUp  []context.CancelFunc
		results []chan outcome
	}
	ask := func(t *testing.T, n int) *calls {
		c := &calls{builds: newRunningBuilds(), release: make(chan struct{})}
		for i := range n {
			ctx, cancel := context.WithCancel(t.Context())
			c.giveUp, c.results = append(c.giveUp, cancel), append(c.results, make(chan outcome, 1))
			go func() {
				box, err := c.builds.do(ctx, "box", func(ctx context.Context) (Sandbox, error) {
					c.started++
					select {
					case <-c.release:
						return Sandbox{ID: "box"}, nil
					case <-ctx.Done():
						return Sandbox{}, ctx.Err()
					}
				})
				c.results[i] <- outcome{box, err}
			}()
			synctest.Wait() // it waits for the build
		}
		return c
	}
	for name, test := range map[string]func(*testing.T){
		"is shared by all who ask for its id": func(t *testing.T) {
			c := ask(t, 3)
			close(c.release)
			for i := range c.results {
				if got := <-c.results[i]; got.err != nil || got.box.ID != "box" {
					t.Errorf("the call %d gets %+v", i, got)
				}
			}
			if c.started != 1 {
				t.Errorf("%d builds were started", c.started)
			}
		},
		"goes on when the one who began it leaves": func(t *testing.T) {
			c := ask(t, 2)
			c.giveUp[0]()
			if got := <-c.results[0]; !errors.Is(got.err, context.Canceled) {
				t.Errorf("the one who leaves gets %+v", got)
			}
			close(c.release)
			if got := <-c.results[1]; got.err != nil || got.box.ID != "box" || c.started != 1 {
				t.Errorf("the other one gets %+v of %d builds", got, c.started)
			}
		},
		"ends with the last one who waits for it, and before that one leaves": func(t *testing.T) {
			builds, ended := newRunningBuilds(), false
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := builds.do(ctx, "box", func(ctx context.Context) (Sandbox, error) {
				<-ctx.Done()
				ended = true
				return Sandbox{}, ctx.Err()
			})
			if !errors.Is(err, context.Canceled) || !ended {
				t.Errorf("it returns %v; the build has ended: %t", err, ended)
			}
		},
		"is not joined once it was given up or has ended": func(t *testing.T) {
			c := ask(t, 1)
			c.giveUp[0]()
			<-c.results[0]
			for range 2 {
				box, err := c.builds.do(t.Context(), "box", func(context.Context) (Sandbox, error) { return Sandbox{ID: "another"}, nil })
				if err != nil || box.ID != "another" {
					t.Errorf("the next call gets %+v, %v", box, err)
				}
				synctest.Wait()
			}
			if len(c.builds.byID) != 0 {
				t.Errorf("%d builds are remembered", len(c.builds.byID))
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
