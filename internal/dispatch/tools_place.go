package dispatch

import (
	"context"
	"net/url"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/turn"
)

// settingOf describes a thread to a bot. It starts no sandbox.
func (d *Dispatcher) settingOf(ctx context.Context, scope db.Scope, threadID string) (turn.Setting, error) {
	th, err := d.threads.Get(ctx, scope, threadID)
	if err != nil {
		return turn.Setting{}, err
	}
	s := turn.Setting{Thread: th.Name, Model: th.Model, Think: th.Think}
	around, err := d.boxes.Surroundings(ctx, scope, threadID)
	switch code := fault.CodeOf(err); {
	case code == fault.Precondition, code == fault.NotFound: // there is none, or it was just deleted
		return s, nil
	case err != nil:
		return turn.Setting{}, err
	}
	recipe := around.Environment.Recipe
	s.Environment = &turn.Environment{
		Name: around.Environment.Name, Image: recipe.Image, Repo: withoutPassword(recipe.Repo), Ref: recipe.Ref, Folder: sandbox.Workspace,
		Offline: around.Offline, Reaches: around.Egress.String(), CommandTime: around.CommandTime,
	}
	for _, b := range recipe.Secrets {
		to := &s.Environment.Secrets
		if b.File != "" {
			to = &s.Environment.SecretFiles
		}
		*to = append(*to, b.Name)
	}
	return s, nil
}

// withoutPassword returns an address without its user and password, if any.
func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	u.User = nil
	return u.String()
}
