package web

import (
	"context"
	"slices"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// people knows the agents of one house by name, as a [transcript.People]. It is not safe for concurrent use.
type people struct {
	services services
	former   *formerMembers
	house    string
	known    map[string]transcript.Author
	// addresses holds the members' pages by handle.
	addresses map[string]string
}

// peopleOf reads the first two hundred members of a house.
func (a *app) peopleOf(ctx context.Context, house string) (*people, error) {
	p := &people{services: a.services, former: &a.former, house: house, known: map[string]transcript.Author{"": {Name: "arbe", Initial: "a", System: true}}}
	res, err := a.services.agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: house, PageSize: 200})
	if err != nil {
		return nil, err
	}
	for _, agent := range res.Agents {
		p.known[agent.Id] = authorOf(agent)
	}
	p.addresses = addressesOf(house, res.Agents)
	return p, nil
}

// Meet finds out who the agents with these ids are, for [people.ByID]. A former member has the name that they had when they
// left, or "former member" if the recent log of the house does not have it. Meet fails if it cannot find out now.
func (p *people) Meet(ctx context.Context, ids ...string) error {
	var left []string
	for _, id := range ids {
		if _, known := p.known[id]; known || slices.Contains(left, id) {
			continue
		}
		res, err := p.services.agents.GetAgent(ctx, &arbev1.GetAgentRequest{HouseId: p.house, Id: id})
		switch {
		case err == nil:
			p.known[id] = authorOf(res.Agent) // a member beyond the first two hundred
		case faultOf(err).Code == fault.NotFound:
			left = append(left, id)
		case faultOf(err).Code == fault.Invalid:
			// Nobody has this id. That is no error, because a payload may contain any text.
			p.known[id] = authorOf(&arbev1.Agent{Id: id, Name: unknownAgent})
		default:
			return err
		}
	}
	if len(left) == 0 {
		return nil
	}
	names, err := p.former.names(ctx, p.services, p.house, left)
	if err != nil {
		return err
	}
	for _, id := range left {
		found := authorOf(&arbev1.Agent{Id: id, Name: names[id]})
		found.Left = true
		p.known[id] = found
	}
	return nil
}

// Address returns the page of the bot or person that a handle means, or "" if the handle means nobody.
func (p *people) Address(handle string) string { return p.addresses[handle] }

// addressesOf maps handles to the pages of a house's bots and people. If several have the same handle, it means the bot, or
// the first of them if no bot has it.
func addressesOf(house string, agents []*arbev1.Agent) map[string]string {
	to := map[string]string{}
	for _, a := range agents {
		if a.Handle != "" {
			to[a.Handle] = botPath(house, a.Id)
		}
	}
	for _, a := range agents {
		if a.Kind != "human" {
			continue
		}
		for _, handle := range entry.HandlesOf(a.Name) {
			if to[handle] == "" {
				to[handle] = settingsPath(house, "members") + "#member-" + a.Id
			}
		}
	}
	return to
}

// ByID returns an agent whom the page has met.
func (p *people) ByID(id string) transcript.Author { return p.known[id] }

// nameSpeakers fills in the names of former members among the last speakers of threads.
func (a *app) nameSpeakers(ctx context.Context, house string, threads []*arbev1.Thread) error {
	unnamed := func(t *arbev1.Thread) bool { return t.LastSaid != nil && t.LastSaid.AuthorName == "" }
	var ids []string
	for _, t := range threads {
		if unnamed(t) {
			ids = append(ids, t.LastSaid.AuthorAgentId)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	names, err := a.former.names(ctx, a.services, house, ids)
	if err != nil {
		return err
	}
	for _, t := range threads {
		if unnamed(t) {
			t.LastSaid.AuthorName = names[t.LastSaid.AuthorAgentId]
		}
	}
	return nil
}
