package web

import (
	"cmp"
	"context"
	"hash/fnv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// author is somebody as a page shows them.
type author struct {
	Name, Initial string
	// Bot is shown square, System (arbe itself) without a disc.
	Bot, System bool
	// Left is set for somebody who is no longer in the house.
	Left bool
	// Tone is which of the eight colours their disc has.
	Tone uint32
}

// people knows the agents of one house by name. It is not safe for concurrent use.
type people struct {
	services services
	house    string
	known    map[string]author
	// left are the names that members had when they left; nil until one is looked for.
	left map[string]string
}

// peopleOf reads who is in a house.
func (a *app) peopleOf(ctx context.Context, house string) (*people, error) {
	p := &people{services: a.services, house: house, known: map[string]author{"": {Name: "arbe", Initial: "a", System: true}}}
	res, err := a.services.agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: house, PageSize: 200})
	if err != nil {
		return nil, err
	}
	for _, agent := range res.Agents {
		p.known[agent.Id] = authorOf(agent)
	}
	return p, nil
}

// byID is the author with this id. Of somebody who left it has the name that they had then, and "former member" if the
// house's log does not say it any more.
func (p *people) byID(ctx context.Context, id string) author {
	if known, ok := p.known[id]; ok {
		return known
	}
	if res, err := p.services.agents.GetAgent(ctx, &arbev1.GetAgentRequest{HouseId: p.house, Id: id}); err == nil {
		p.known[id] = authorOf(res.Agent) // a member beyond the first two hundred
		return p.known[id]
	}
	if p.left == nil {
		p.left = formerNames(ctx, p.services, p.house)
	}
	found := authorOf(&arbev1.Agent{Id: id, Name: cmp.Or(p.left[id], formerMember)})
	found.Left = true
	p.known[id] = found
	return found
}

// formerMember stands for somebody who left, and whose name nobody knows.
const formerMember = "former member"

// formerNames reads the names of those who left a house lately, by their ids. Only the house's own log has them: a house
// does not see agents who are not in it. It finds none in a log that it cannot read.
func formerNames(ctx context.Context, s services, house string) map[string]string {
	names := map[string]string{}
	of, err := s.houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: house})
	if err != nil || of.House.PrimaryThreadId == "" {
		return names
	}
	res, err := s.entries.List(ctx, &arbev1.ListRequest{ThreadId: of.House.PrimaryThreadId, Last: true, Limit: searchSize})
	if err != nil {
		return names
	}
	for _, e := range entriesOf(res.Entries) {
		if r, ok := entry.As[entry.MemberRemoved](e); ok {
			names[r.AgentID] = r.Name
		}
	}
	return names
}

// nameSpeakers fills in who said the last thing in threads, where that is somebody who left.
func nameSpeakers(ctx context.Context, s services, house string, threads []*arbev1.Thread) {
	var names map[string]string
	for _, t := range threads {
		if t.LastSaid == nil || t.LastSaid.AuthorName != "" {
			continue
		}
		if names == nil {
			names = formerNames(ctx, s, house)
		}
		t.LastSaid.AuthorName = cmp.Or(names[t.LastSaid.AuthorAgentId], formerMember)
	}
}

func authorOf(a *arbev1.Agent) author {
	tone := fnv.New32a()
	_, _ = tone.Write([]byte(a.Id))
	return author{Name: a.Name, Initial: initial(a.Name), Bot: a.Kind == "bot", Tone: tone.Sum32() % 8}
}

// initial is the first letter or digit of a name.
func initial(name string) string {
	i := strings.IndexFunc(name, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) })
	if i < 0 {
		return "?"
	}
	c, _ := utf8.DecodeRuneInString(name[i:])
	return string(unicode.ToUpper(c))
}
