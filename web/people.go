package web

import (
	"context"
	"hash/fnv"
	"strings"
	"unicode"
	"unicode/utf8"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// author is somebody as a page shows them.
type author struct {
	Name, Initial string
	// Bot is shown square, System (arbe itself) without a disc.
	Bot, System bool
	// Tone is which of the eight colours their disc has.
	Tone uint32
}

// people knows the agents of one house by name. It is not safe for concurrent use.
type people struct {
	services services
	house    string
	known    map[string]author
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

// mentionable are the people and bots whom the menu of a text offers: the first two hundred.
func (a *app) mentionable(ctx context.Context, house string) ([]*arbev1.Agent, error) {
	res, err := a.services.agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: house, PageSize: 200})
	return res.GetAgents(), err
}

// byID is the author with this id; somebody nobody can name any more is "former member".
func (p *people) byID(ctx context.Context, id string) author {
	if known, ok := p.known[id]; ok {
		return known
	}
	found := author{Name: "former member", Initial: "?"}
	if res, err := p.services.agents.GetAgent(ctx, &arbev1.GetAgentRequest{HouseId: p.house, Id: id}); err == nil {
		found = authorOf(res.Agent)
	}
	p.known[id] = found
	return found
}

func authorOf(a *arbev1.Agent) author {
	tone := fnv.New32a()
	_, _ = tone.Write([]byte(a.Id))
	return author{Name: a.Name, Initial: initial(a.Name), Bot: a.Kind == "bot", Tone: tone.Sum32() % 8}
}

// authorWord is who said the last thing in a thread.
func authorWord(s *arbev1.LastSaid) string {
	if s.AuthorName == "" {
		return "former member"
	}
	return s.AuthorName
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
