package sandbox

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// gitTokenPath is the file of a box that holds the token with which git asks the server's door over the network. It is in
	// the form in which git's credential helpers answer.
	gitTokenPath = Home + "/.arbe/git-token"
	// gitTokenEach is the age at which the token in a box is replaced. A token is valid much longer.
	gitTokenEach = 30 * time.Minute
	// gitTokenTime limits the writing of a token, because what uses the sandbox waits for it.
	gitTokenTime = time.Minute
)

// gitAccess gives git in boxes the way to the server's door. A box of a [Doored] driver needs only its address. In any other box,
// git shows a token of the box there. It gets the token from a credential helper, which reads it from a file. The file is
// replaced while the box is used, so that a token that was taken out of a box is of no use for long. It is safe for concurrent
// use.
type gitAccess struct {
	public string                                      // [Config.Door]
	token  func(house, sandbox string) (string, error) // [Config.GitToken]
	logger *slog.Logger

	mu      sync.Mutex
	written map[string]time.Time // by sandbox
}

// door returns the address at which git in a box asks; empty if it cannot.
func (g *gitAccess) door(ctx context.Context, d Driver, ref string) (string, error) {
	if doored, ok := d.(Doored); ok {
		return doored.Door(), nil
	}
	if !g.tokens(d) {
		return "", nil
	}
	door, err := doorOf(ctx, d, ref, g.public)
	if offline, ok := d.(Offline); ok && offline.Offline() && door == g.public {
		door = ""
	}
	return door, err
}

// tokens reports whether git in the boxes of a driver needs a token.
func (g *gitAccess) tokens(d Driver) bool {
	_, doored := d.(Doored)
	return !doored && g.token != nil
}

// configuration returns the git configuration for a door: names and values.
func (g *gitAccess) configuration(door string, d Driver, credentials []GitCredential) []string {
	all := rewrites(door, credentials)
	if g.tokens(d) {
		helper := "credential." + door + ".helper"
		// The empty helper keeps the image's helpers from storing the token.
		all = append(all, helper, "", helper, `!f() { test "$1" != get || cat `+gitTokenPath+`; }; f`)
	}
	return all
}

// write writes a new token into a box.
func (g *gitAccess) write(ctx context.Context, d Driver, ref, house, id string) error {
	token, err := g.token(house, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, gitTokenTime)
	defer cancel()
	began := time.Now()
	if err := d.Upload(ctx, ref, gitTokenPath, 0o600, strings.NewReader("username=arbe\npassword="+token+"\n")); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written[id] = began
	return nil
}

// refresh replaces the token in a sandbox if it is old. Only a box that is gone is an error: without a token, git says what is
// wrong, and everything else works.
func (g *gitAccess) refresh(ctx context.Context, p Handle) error {
	if !g.tokens(p.driver) || len(p.recipe.Git) == 0 {
		return nil
	}
	g.mu.Lock()
	recent := time.Since(g.written[p.ID]) < gitTokenEach
	g.mu.Unlock()
	if recent {
		return nil
	}
	err := g.write(ctx, p.driver, p.Ref, p.House, p.ID)
	if err == nil || fault.CodeOf(err) == fault.NotFound || ctx.Err() != nil {
		return err
	}
	g.logger.WarnContext(ctx, "git in a sandbox gets no new token", "sandbox", p.ID, "error", fault.From(err).Detail())
	return nil
}

// forget forgets the sandboxes whose tokens have not been replaced for long.
func (g *gitAccess) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, at := range g.written {
		if time.Since(at) > 2*gitTokenEach {
			delete(g.written, id)
		}
	}
}
