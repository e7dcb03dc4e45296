package auth

import (
	"context"
	"fmt"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

const (
	// askTimeout limits a query whose answer several callers may wait for. No caller's context limits it, because the
	// others would lose the answer.
	askTimeout = 20 * time.Second
	// shareAnswerFor is the maximum age of a query whose answer another caller may share.
	shareAnswerFor = 500 * time.Millisecond
)

// The queries about permission. Each takes one round trip for any number of subjects, and its answers become facts.

// credentials looks up sessions and API keys by their hashes.
func (a *Auth) credentials(ctx context.Context, from query.DBTX, hashes [][]byte) ([]credential, error) {
	asked := a.facts.moment()
	rows, err := a.q.CredentialsOf(ctx, from, hashes)
	if err != nil {
		return nil, db.Explain(err)
	}
	all := make([]credential, len(hashes))
	for _, row := range rows {
		c := credential{agent: row.AgentID, kind: row.Credential, name: row.Name, house: row.HouseID, status: row.Status}
		if !row.Lasting {
			// The database returns the remaining time instead of a date, because its clock may differ from ours.
			c.until = asked.at.Add(time.Duration(row.Lasts * float64(time.Second)))
		}
		all[row.Which-1] = c
		// A refusal is not kept, because facts can only allow.
		if c.status == "ok" {
			a.facts.keep(asked, credentialTopic(hashes[row.Which-1]), c)
		}
	}
	return all, nil
}

// tokenStatus says whether a thread token is valid ("ok", or why not), and the role of its agent in the house.
type tokenStatus struct{ role, status string }

// tokens looks up thread tokens whose signatures are valid.
func (a *Auth) tokens(ctx context.Context, from query.DBTX, shown []*claims) ([]tokenStatus, error) {
	var q query.TokensOfParams
	for _, c := range shown {
		q.KeyIds, q.HouseIds, q.ThreadIds = append(q.KeyIds, c.keyID), append(q.HouseIds, c.House), append(q.ThreadIds, c.Thread)
		q.AgentIds, q.Epochs, q.JoinedAt = append(q.AgentIds, c.Subject), append(q.Epochs, c.Epoch), append(q.JoinedAt, time.UnixMicro(c.Joined))
		q.Makers = append(q.Makers, c.Maker)
	}
	asked := a.facts.moment()
	rows, err := a.q.TokensOf(ctx, from, q)
	if err != nil {
		return nil, db.Explain(err)
	}
	all := make([]tokenStatus, len(shown))
	for _, row := range rows {
		all[row.Which-1] = tokenStatus{row.Role, row.Status}
		if row.Status == "ok" {
			c := shown[row.Which-1]
			a.facts.keep(asked, signingKeyTopic(c.keyID), struct{}{})
			a.facts.keep(asked, Thread(c.Thread).topic(), targetFacts{house: c.House, epoch: c.Epoch})
			a.facts.keep(asked, memberTopic(c.House, row.AgentID), memberFacts{row.Role, c.Joined})
			if c.Maker != "" {
				a.facts.keep(asked, memberTopic(c.House, c.Maker), memberFacts{"owner", row.MakerJoinedAt.UnixMicro()})
			}
		}
	}
	return all, nil
}

// heldToken reports whether facts in memory show that a token is valid.
func (a *Auth) heldToken(c *claims) (role string, ok bool) {
	_, counts := lookUp[struct{}](a.facts, signingKeyTopic(c.keyID))
	t, runs := lookUp[targetFacts](a.facts, Thread(c.Thread).topic())
	m, in := lookUp[memberFacts](a.facts, memberTopic(c.House, c.Subject))
	if c.Maker != "" {
		if maker, known := lookUp[memberFacts](a.facts, memberTopic(c.House, c.Maker)); !known || maker.role != "owner" {
			return "", false
		}
	}
	return m.role, counts && runs && in && t.house == c.House && t.epoch != 0 && t.epoch == c.Epoch && m.joined == c.Joined
}

// membershipKey identifies a membership: an agent and a target.
type membershipKey struct {
	target Target
	agent  string
}

// memberships looks up the house of each target and the agent's role in it.
func (a *Auth) memberships(ctx context.Context, from query.DBTX, keys []membershipKey) ([]membership, error) {
	var kinds, ids, agents []string
	for _, s := range keys {
		kinds, ids, agents = append(kinds, s.target.kind), append(ids, s.target.id), append(agents, s.agent)
	}
	asked := a.facts.moment()
	rows, err := a.q.MembershipsOf(ctx, from, kinds, ids, agents)
	if err != nil {
		return nil, db.Explain(err)
	}
	all := make([]membership, len(keys))
	for _, row := range rows {
		s := keys[row.Which-1]
		t, m := targetFacts{row.HouseID, row.ThreadID, row.Holder, row.Epoch}, memberFacts{row.Role, row.JoinedAt.UnixMicro()}
		all[row.Which-1] = membershipOf(row.AgentID, t, m)
		a.facts.keep(asked, memberTopic(row.HouseID, row.AgentID), m)
		if s.target.kind != houseKind { // a house has no facts but its members
			a.facts.keep(asked, s.target.topic(), t)
		}
	}
	return all, nil
}

// heldMembership is memberships for a single one, from memory.
func (a *Auth) heldMembership(s membershipKey) (at membership, ok bool) {
	t := targetFacts{house: s.target.id}
	if s.target.kind != houseKind {
		if t, ok = lookUp[targetFacts](a.facts, s.target.topic()); !ok {
			return membership{}, false
		}
	}
	m, ok := lookUp[memberFacts](a.facts, memberTopic(t.house, s.agent))
	return membershipOf(s.agent, t, m), ok
}

// membershipOf combines facts about a target and an agent. The holder of a target owns it.
func membershipOf(agent string, t targetFacts, m memberFacts) membership {
	at := membership{house: t.house, role: m.role, thread: t.thread}
	if t.holder != "" && t.holder == agent {
		at.role = "owner"
	}
	return at
}

// askOne looks up one subject. While facts are valid, callers that ask the same question at about the same time, with
// no change in between, share one query.
func askOne[S, T any](ctx context.Context, a *Auth, name string, subject S, ask func(context.Context, query.DBTX, []S) ([]T, error)) (answer T, err error) {
	holds, changes := a.facts.state()
	// Then each caller asks for itself, because a change between two callers would go unnoticed.
	if !holds {
		all, err := ask(ctx, a.db.Pool(), []S{subject})
		if err != nil {
			return answer, err
		}
		return all[0], nil
	}
	// The query gets another name after each change and each half second, so that nobody shares an older answer.
	name = fmt.Sprint(name, "@", changes, "/", time.Now().UnixNano()/int64(shareAnswerFor))
	result := a.asked.DoChan(name, func() (any, error) {
		// Not the caller's context, because others may wait for the answer too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		return ask(ctx, a.db.Pool(), []S{subject})
	})
	select {
	case r := <-result:
		if r.Err != nil {
			return answer, r.Err
		}
		return r.Val.([]T)[0], nil
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}
