package web

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

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
}

// peopleOf reads the members of a house: the first two hundred.
func (a *app) peopleOf(ctx context.Context, house string) (*people, error) {
	p := &people{services: a.services, former: &a.former, house: house, known: map[string]transcript.Author{"": {Name: "arbe", Initial: "a", System: true}}}
	res, err := a.services.agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: house, PageSize: 200})
	if err != nil {
		return nil, err
	}
	for _, agent := range res.Agents {
		p.known[agent.Id] = authorOf(agent)
	}
	return p, nil
}

// Meet finds out who the agents with these ids are, for [people.ByID]. A former member has the name that they had when they
// left, or "former member" if the recent log of the house does not have it. It fails if that cannot be found out now.
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
			// Nobody has such an id. It is no error of the page, because a payload may contain any text.
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

// ByID returns an agent whom the page has met.
func (p *people) ByID(id string) transcript.Author { return p.known[id] }

const (
	// formerMember is shown for a former member whose name cannot be found, unknownAgent for an id that belongs to nobody.
	formerMember, unknownAgent = "former member", "unknown"
	// formerFor is how long the name of a former member is remembered. It is short, because somebody may return to a house,
	// and leave it under another name.
	formerFor = time.Minute
	// formerSearch is how many entries of a log are searched for former members.
	formerSearch = 500
	// maxFormer limits how many former members are remembered.
	maxFormer = 10_000
)

// formerMembers remembers the names of the former members of all houses, because finding one takes a piece of a log. The
// zero value is ready to use. It is safe for concurrent use.
type formerMembers struct {
	mu    sync.Mutex
	known map[membership]formerName
}

type membership struct{ house, agent string }

type formerName struct {
	name  string
	until time.Time
}

// names returns the names of former members of a house, by id: formerMember for those whose name is not found.
func (f *formerMembers) names(ctx context.Context, s services, house string, ids []string) (map[string]string, error) {
	if names := f.recall(house, ids); names != nil {
		return names, nil
	}
	read, err := readFormerNames(ctx, s, house)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		read[id] = cmp.Or(read[id], formerMember)
	}
	f.remember(house, read)
	return read, nil
}

// recall returns the names with these ids; nil if one of them is not remembered.
func (f *formerMembers) recall(house string, ids []string) map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[string]string{}
	for _, id := range ids {
		one, ok := f.known[membership{house, id}]
		if !ok || time.Now().After(one.until) {
			return nil
		}
		names[id] = one.name
	}
	return names
}

func (f *formerMembers) remember(house string, names map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil || len(f.known)+len(names) > maxFormer {
		f.known = map[membership]formerName{}
	}
	until := time.Now().Add(formerFor)
	for id, name := range names {
		f.known[membership{house, id}] = formerName{name, until}
	}
}

// readFormerNames reads the names of recent former members from the log of the house's primary thread, by id. No other service
// has them, because a house does not see agents who are not its members. If the house has no such thread, there are none.
func readFormerNames(ctx context.Context, s services, house string) (map[string]string, error) {
	names := map[string]string{}
	of, err := s.houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: house})
	if err != nil {
		return nil, err
	}
	if of.House.PrimaryThreadId == "" {
		return names, nil
	}
	res, err := s.entries.List(ctx, &arbev1.ListRequest{ThreadId: of.House.PrimaryThreadId, Last: true, Limit: formerSearch})
	switch {
	case err == nil:
	case faultOf(err).Code == fault.NotFound:
		return names, nil
	default:
		return nil, err
	}
	for _, e := range transcript.Entries(res.Entries) {
		if r, ok := entry.As[entry.MemberRemoved](e); ok {
			names[r.AgentID] = cmp.Or(r.Name, formerMember)
		}
	}
	return names, nil
}

// nameSpeakers fills in the authors of what was said last in threads, where they are former members.
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

func authorOf(a *arbev1.Agent) transcript.Author {
	tone := fnv.New32a()
	_, _ = tone.Write([]byte(a.Id))
	return transcript.Author{Name: a.Name, Initial: initial(a.Name), Bot: a.Kind == "bot", Tone: tone.Sum32() % 8}
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
