package gitdoor

import (
	"context"
	"sync"
	"time"
)

const (
	// margin is how long before its end a token is no longer used for a new request. A host checks a token when a request begins.
	margin = 15 * time.Second
	// maxTokens limits the tokens of a door. A token that is dropped is made again when it is needed.
	maxTokens = 2000
)

// token is a token of a GitHub App.
type token struct {
	value   string
	expires time.Time
}

// tokens holds tokens in memory until shortly before they expire. It is safe for concurrent use.
type tokens struct {
	now func() time.Time

	mu   sync.Mutex
	held map[grant]token
	// making has a channel for each grant for which a token is being made. It is closed at the end.
	making map[grant]chan struct{}
}

// get returns the token for a grant. If the door has none, it calls create, once for all callers that wait for the same token.
func (t *tokens) get(ctx context.Context, g grant, create func() (token, error)) (string, error) {
	for {
		value, wait := t.look(g)
		if value != "" {
			return value, nil
		}
		if wait == nil {
			break
		}
		select {
		case <-wait: // then look again, because create may have failed only for its caller
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	defer t.made(g) // also after a panic, because others wait
	created, err := create()
	if err == nil && t.lasts(created) {
		t.hold(g, created)
	}
	return created.value, err
}

// hold keeps a new token.
func (t *tokens) hold(g grant, created token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.makeRoom()
	t.held[g] = created
}

// made tells those who wait for the token of a grant that nobody makes it any longer.
func (t *tokens) made(g grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.making[g])
	delete(t.making, g)
}

// look returns the token for a grant, or a channel that closes when another caller has finished making it. If both are empty, this caller must make it.
func (t *tokens) look(g grant) (string, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held, ok := t.held[g]; ok && t.lasts(held) {
		return held.value, nil
	}
	if wait, ok := t.making[g]; ok {
		return "", wait
	}
	t.making[g] = make(chan struct{})
	return "", nil
}

// lasts reports whether a token can be used for a new request.
func (t *tokens) lasts(one token) bool { return t.now().Before(one.expires.Add(-margin)) }

// makeRoom drops tokens if there are too many: first those that have expired.
func (t *tokens) makeRoom() {
	if len(t.held) < maxTokens {
		return
	}
	for g, one := range t.held {
		if !t.lasts(one) {
			delete(t.held, g)
		}
	}
	for g := range t.held {
		if len(t.held) < maxTokens {
			return
		}
		delete(t.held, g)
	}
}

// drop forgets a token that a host has refused.
func (t *tokens) drop(g grant, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[g].value == value {
		delete(t.held, g)
	}
}
