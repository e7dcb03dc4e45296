package model

import (
	"context"
	"sync"
	"time"
)

// probeEvery is how long the result of a probe is used. An Ollama may pull further models, or restart.
const probeEvery = time.Minute

// Installation knows the endpoints that the operator's machine offers, which it probes from time to time. It is safe
// for concurrent use.
type Installation struct {
	look func(context.Context) Environment

	mu      sync.Mutex
	found   Environment
	at      time.Time
	looking chan struct{} // closed when the probe in progress ends; nil if there is none
}

// NewInstallation returns the Installation of [FromEnvironment], which it calls for the first time at once, in the
// background.
func NewInstallation(getenv func(string) string, probe Probe) *Installation {
	i := &Installation{look: func(ctx context.Context) Environment { return FromEnvironment(ctx, getenv, probe) }}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lookAgain()
	return i
}

func (i *Installation) lookAgain() {
	done := make(chan struct{})
	i.looking = done
	go func() {
		found := i.look(context.Background()) // it limits its own time
		i.mu.Lock()
		defer i.mu.Unlock()
		i.found, i.at, i.looking = found, time.Now(), nil
		close(done)
	}()
}

// Environment returns the result of the last probe. It waits only for the first one, at most until ctx ends.
func (i *Installation) Environment(ctx context.Context) (Environment, error) {
	i.mu.Lock()
	if i.looking == nil && time.Since(i.at) > probeEvery {
		i.lookAgain()
	}
	found, first, looking := i.found, i.at.IsZero(), i.looking
	i.mu.Unlock()
	if !first {
		return found, nil
	}
	select {
	case <-looking:
	case <-ctx.Done():
		return Environment{}, ctx.Err()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.found, nil
}
