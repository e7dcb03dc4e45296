package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// People refer to things by an id, the beginning of an id, or a name. This file resolves all three to ids, so that every
// verb accepts the same forms.

// thing is something that a person may have named.
type thing struct{ id, name string }

// kind is a kind of things.
type kind struct {
	noun, plural string
	// list is the verb that lists them.
	list string
	// whole matches whole ids, which need no lookup.
	whole *lazyregexp.Regexp
	// in returns the things of a house that ref may name. It may return others, too, because [kind.pick] chooses among
	// them.
	in func(ctx context.Context, c *arbe.Client, house, ref string) ([]thing, error)
}

var (
	// Ids of 20 characters are derived from an id that a caller chose.
	shortID = lazyregexp.New(`^([0-9a-hjkmnp-tv-z]{12}|[0-9a-hjkmnp-tv-z]{20})$`)
	uuidID  = lazyregexp.New(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// The kinds whose ids people type.
var (
	threadKind      = kind{"thread", "threads", "arbe thread list", shortID, matchingThreads}
	environmentKind = kind{"environment", "environments", "arbe env list", shortID, environmentsOf}
	sandboxKind     = kind{"sandbox", "sandboxes", "arbe sandbox list", shortID, matchingSandboxes}
	agentKind       = kind{"agent", "agents", "arbe member list", uuidID, agentsOf}
	botKind         = kind{"bot", "bots", "arbe bot list", uuidID, botsNamed}
	addresseeKind   = kind{"person or bot", "people and bots", "arbe member list", uuidID, addressed}
	keyKind         = kind{"API key", "API keys", "arbe key list", shortID, keysNamed}
	artifactKind    = kind{"artifact", "artifacts", "arbe artifact list", shortID, matchingArtifacts}
	inviteKind      = kind{"invite", "invites", "arbe invite list", shortID, invitesOf}
)

// minPrefix is the length of the shortest prefix of an id. It must not be less than the server's minimum, because the server
// finds nothing for a shorter prefix.
const minPrefix = 4

// find returns the id of the thing that a person named. It searches the given house, else the house of $ARBE_HOUSE, else all
// houses of the caller. With a credential that may not list these, people must give whole ids.
func (a *app) find(ctx context.Context, c *arbe.Client, k kind, house, ref string) (id string, err error) {
	if k.whole.MatchString(ref) {
		return ref, nil
	}
	houses := []string{house}
	if first(house, a.getenv("ARBE_HOUSE")) != "" {
		if houses[0], err = a.inHouse(ctx, c, house); err != nil {
			return "", err
		}
	} else {
		all, err := allHouses(ctx, c)
		if connect.CodeOf(err) == connect.CodePermissionDenied {
			return ref, nil // no error here, because the verb's own call explains better what the credential allows
		} else if err != nil {
			return "", err
		}
		houses = nil
		for _, h := range all {
			houses = append(houses, h.GetId())
		}
	}
	var found []thing
	for _, house := range houses {
		things, err := k.in(ctx, c, house, ref)
		if connect.CodeOf(err) == connect.CodePermissionDenied {
			return ref, nil
		} else if err != nil {
			return "", err
		}
		found = append(found, things...)
	}
	return k.pick(ref, found)
}

// pick returns the id of the only thing that ref names.
func (k kind) pick(ref string, things []thing) (id string, err error) {
	var named []thing
	for _, t := range things {
		switch {
		case t.id == ref:
			return ref, nil
		case slices.Contains(named, t):
		case t.name == ref, len(ref) >= minPrefix && strings.HasPrefix(t.id, ref):
			named = append(named, t)
		}
	}
	switch len(named) {
	case 0:
		return "", fault.Newf(fault.NotFound, fmt.Sprintf("%s shows them; an id may be shortened to %d characters", k.list, minPrefix), "there is no %s %q", k.noun, ref)
	case 1:
		return named[0].id, nil
	}
	const shown = 10
	var which []string
	for _, t := range named[:min(len(named), shown)] {
		which = append(which, strings.TrimSuffix(fmt.Sprintf("%s (%s)", t.id, entry.PrintableLine(t.name)), " ()"))
	}
	if len(named) > shown {
		which = append(which, "…")
	}
	return "", fault.Newf(fault.Invalid, "give more of the id", "%q names several %s: %s", ref, k.plural, strings.Join(which, ", "))
}

// matchingThreads returns the threads of a house that the server finds for ref.
func matchingThreads(ctx context.Context, c *arbe.Client, house, ref string) ([]thing, error) {
	page, err := c.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: house, Match: ref, PageSize: 50})
	return things(page.GetThreads()), err
}

// matchingSandboxes returns the sandboxes of a house whose ids begin with ref. They have no names.
func matchingSandboxes(ctx context.Context, c *arbe.Client, house, ref string) (found []thing, err error) {
	if len(ref) < minPrefix {
		return nil, nil
	}
	page, err := c.Sandboxes.ListSandboxes(ctx, &arbev1.ListSandboxesRequest{HouseId: house, IdPrefix: ref, PageSize: 50})
	for _, s := range page.GetSandboxes() {
		found = append(found, thing{id: s.GetId()})
	}
	return found, err
}

func environmentsOf(ctx context.Context, c *arbe.Client, house, _ string) ([]thing, error) {
	all, _, err := allEnvironments(ctx, c, house)
	return things(all), err
}

// agentsOf returns the people and bots of a house. A handle such as "@reviewer" also names a bot.
func agentsOf(ctx context.Context, c *arbe.Client, house, ref string) ([]thing, error) {
	if strings.HasPrefix(ref, "@") {
		return botsNamed(ctx, c, house, ref)
	}
	all, err := allAgents(ctx, c, house)
	return things(all), err
}

// botsNamed returns the bots of a house. A bot whose handle is ref gets ref as its name.
func botsNamed(ctx context.Context, c *arbe.Client, house, ref string) (found []thing, err error) {
	all, err := allBots(ctx, c, house)
	for _, b := range all {
		name := b.GetName()
		if handle := "@" + b.GetHandle(); strings.EqualFold(handle, ref) || b.GetHandle() == ref {
			name = ref
		}
		found = append(found, thing{b.GetId(), name})
	}
	return found, err
}

// addressed returns the possible recipients of direct messages: the bots of a house as in [botsNamed], and its people, who
// also get ref as their name if it is their handle.
func addressed(ctx context.Context, c *arbe.Client, house, ref string) (found []thing, err error) {
	if found, err = botsNamed(ctx, c, house, ref); err != nil {
		return nil, err
	}
	bots := len(found)
	people, err := allAgents(ctx, c, house)
	for _, p := range people {
		handle := strings.ToLower(strings.TrimPrefix(ref, "@"))
		if p.GetKind() != "human" || slices.ContainsFunc(found[:bots], func(b thing) bool { return b.name == ref }) {
			continue // the handle belongs to a bot
		}
		name := p.GetName()
		if slices.Contains(entry.HandlesOf(name), handle) {
			name = ref
		}
		found = append(found, thing{p.GetId(), name})
	}
	return found, err
}

// keysNamed returns the keys of a house, and those of the caller for all houses.
func keysNamed(ctx context.Context, c *arbe.Client, house, _ string) ([]thing, error) {
	keys, err := keysOf(ctx, c, house)
	if err != nil {
		return nil, err
	}
	own, err := keysOf(ctx, c, "")
	if connect.CodeOf(err) == connect.CodePermissionDenied {
		err = nil // ignored, because the credential in use is limited to a house
	}
	return things(append(keys, own...)), err
}

func invitesOf(ctx context.Context, c *arbe.Client, house, _ string) (found []thing, err error) {
	all, err := allInvites(ctx, c, house)
	for _, i := range all {
		found = append(found, thing{i.GetId(), i.GetNote()})
	}
	return found, err
}

// things converts messages that have an id and a name.
func things[Message interface {
	GetId() string
	GetName() string
}](messages []Message) []thing {
	found := make([]thing, len(messages))
	for i, m := range messages {
		found[i] = thing{m.GetId(), m.GetName()}
	}
	return found
}

// matchingArtifacts returns the artifacts of a house that the server finds for ref.
func matchingArtifacts(ctx context.Context, c *arbe.Client, house, ref string) (found []thing, err error) {
	req := &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_HouseId{HouseId: house}, Match: ref, PageSize: 50}
	page, err := c.Artifacts.ListArtifacts(ctx, req)
	for _, f := range page.GetArtifacts() {
		found = append(found, thing{f.GetId(), f.GetLabel()})
	}
	return found, err
}

// houseKind is looked up without a house, by [app.inHouse].
var houseKind = kind{noun: "house", plural: "houses", list: "arbe house list"}

// inHouse returns the id of the house that a verb works in: the named house, or the caller's only house.
func (a *app) inHouse(ctx context.Context, c *arbe.Client, flag string) (string, error) {
	ref := first(flag, a.getenv("ARBE_HOUSE"))
	if shortID.MatchString(ref) {
		return ref, nil
	}
	houses, err := allHouses(ctx, c)
	if ref != "" && connect.CodeOf(err) == connect.CodePermissionDenied {
		return ref, nil // no error here, because the verb's own call explains better what the credential allows
	} else if ref != "" && err == nil {
		return houseKind.pick(ref, things(houses))
	}
	switch {
	case err != nil:
		return "", err
	case len(houses) == 1:
		return houses[0].GetId(), nil
	case len(houses) == 0:
		return "", fault.New(fault.Precondition, "you are not in any house yet", "make one with: arbe house create NAME, or ask an owner of one to invite you")
	}
	names := make([]string, len(houses))
	for i, h := range houses {
		names[i] = fmt.Sprintf("%s (%s)", h.GetId(), h.GetName())
	}
	return "", fault.New(fault.Invalid, "you are in several houses: "+strings.Join(names, ", "), "say which one with --house, or set ARBE_HOUSE")
}
