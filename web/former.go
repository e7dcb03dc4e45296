package web

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

const (
	// formerMember is shown for a former member whose name cannot be found, and unknownAgent for an id that belongs to nobody.
	formerMember, unknownAgent = "former member", "unknown"
	// formerFor is how long the name of a former member is remembered. It is short, because someone may return to a house and
	// leave it again under another name.
	formerFor = time.Minute
	// formerSearch limits the entries of a log that are searched for former members.
	formerSearch = 500
	// maxFormer limits the former members that are remembered.
	maxFormer = 10_000
)

// formerMembers caches the names of former members of all houses, because finding one requires reading a piece of a log. The
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

// names returns the names of former members of a house, by id. The name is formerMember where it is not found.
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

// recall returns the names with these ids, or nil if any of them is not remembered.
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

// readFormerNames reads the names of recent former members from the log of the house's primary thread, by id. No other source
// has them, because a house does not see agents who are not its members. A house without such a thread has no names.
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
