package web

import (
	"cmp"
	"context"
	"maps"
	"slices"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxNames limits the people and bots in a text's menu. Those who joined first are in it.
const maxNames = 200

// mentionable returns the people and bots in a text's menu.
func (a *app) mentionable(ctx context.Context, house string) ([]*arbev1.Agent, error) {
	res, err := a.services.agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: house, PageSize: maxNames})
	return res.GetAgents(), err
}

// people returns the watched members in the order of ListAgents, so that a page and its updates have the same digest.
func (w *watched) people() []*arbev1.Agent {
	members := slices.SortedFunc(maps.Values(w.members), func(a, b *arbev1.Member) int {
		return cmp.Or(a.JoinedAt.AsTime().Compare(b.JoinedAt.AsTime()), cmp.Compare(a.Agent.Id, b.Agent.Id))
	})
	var people []*arbev1.Agent
	for _, m := range members[:min(len(members), maxNames)] {
		people = append(people, m.Agent)
	}
	return people
}

// names is the view of the menu's template.
type names struct{ digest, html string }

func namesOf(ctx context.Context, people []*arbev1.Agent) (names, error) {
	html, err := rendered(ctx, completions(people))
	return names{namesDigest(people), string(html)}, err
}

func (n names) cursor() string { return n.digest }

// whole replaces the template, because Datastar's morphing does not look into templates.
func (n names) whole() []patch {
	return []patch{{Selector: "#completions", Mode: "replace", HTML: n.html}}
}

func (n names) since(old view) []patch {
	if old == n {
		return nil
	}
	return n.whole()
}
