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

// author is an agent as a page shows them.
type author struct {
	Name, Initial string
	// Bot has a square instead of a disc. System, which is arbe itself, has none.
	Bot, System bool
	// Left is set for an agent who is no longer in the house.
	Left bool
	// Tone is the number of the disc's colour, of eight.
	Tone uint32
}

// people knows the agents of one house by name. It is not safe for concurrent use.
type people struct {
	services services
	house    string
	known    map[string]author
	// left are the names of former members, nil until the first one is needed.
	left map[string]string
}

// peopleOf reads the members of a house: the first two hundred.
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

// byID returns the author with this id. A former member has the name that they had when they left, or "former member" if the
// recent log of the house does not have it.
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

// formerMember stands for a former member whose name is not known.
const formerMember = "former member"

// formerNames reads the names of recent former members from the log of the house's primary thread, by id. No other service has
// them, because a house does not see agents who are not its members. If the log cannot be read, there are none.
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

// nameSpeakers fills in the authors of what was said last in threads, where they are former members.
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

// initial returns the first letter or digit of a name, as a capital.
func initial(name string) string {
	i := strings.IndexFunc(name, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) })
	if i < 0 {
		return "?"
	}
	c, _ := utf8.DecodeRuneInString(name[i:])
	return string(unicode.ToUpper(c))
}
