package house

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Agent is any actor: a human or a bot.
type Agent struct {
	ID string
	// Kind is "human" or "bot". Runtime is the coding agent that a bot runs.
	Kind, Runtime string
	Name          string
	// Handle is how people mention a bot in the house, without the @.
	Handle    string
	CreatedAt time.Time
	// Unnamed reports whether arbe made up the name of a person.
	Unnamed bool
}

// CreatePerson adds a human, who is not in any house yet, to the installation, and returns their id.
func (h *Houses) CreatePerson(ctx context.Context, name string) (id string, err error) {
	return h.CreatePersonWith(ctx, Person{Name: name}, func(pgx.Tx, string) error { return nil })
}

// Person is a human to create. Unnamed reports that the name is made up: pages then ask for the real one.
type Person struct {
	Name    string
	Unnamed bool
}

// CreatePersonWith adds a human, who is not in any house yet, to the installation. The function with runs in the same
// transaction: if it fails, nothing changes.
func (h *Houses) CreatePersonWith(ctx context.Context, p Person, with func(tx pgx.Tx, agentID string) error) (id string, err error) {
	name, err := entry.RequiredName("name", p.Name, MaxName)
	if err != nil {
		return "", err
	}
	id = uuid.NewString()
	return id, h.db.In(ctx, db.Scope{Agent: id}, func(tx pgx.Tx) error {
		if err := h.q.InsertAgent(ctx, tx, query.InsertAgentParams{ID: id, Kind: "human", Name: &name, Unnamed: p.Unnamed}); err != nil {
			return err
		}
		return with(tx, id)
	})
}

// Agent returns an agent of the scope's house or the scope's own agent. For any other agent the error is a
// [fault.NotFound], so nobody learns who is in other houses.
func (h *Houses) Agent(ctx context.Context, scope db.Scope, id string) (a Agent, err error) {
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		a, err = agent(h.q.GetAgent(ctx, tx, id))
		return err
	})
	return a, err
}

// Rename gives the scope's agent, who must be a person, another name. It is the same in all their houses.
func (h *Houses) Rename(ctx context.Context, scope db.Scope, name string) (renamed Agent, err error) {
	if name, err = entry.RequiredName("name", name, MaxName); err != nil {
		return Agent{}, err
	}
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		changed, err := h.q.NamePerson(ctx, tx, name, scope.Agent)
		if err != nil {
			return err
		}
		if changed == 0 {
			return fault.New(fault.Forbidden, "a bot cannot rename itself", "ask an owner of its house to rename it")
		}
		renamed, err = agent(h.q.GetAgent(ctx, tx, scope.Agent))
		return err
	})
	return renamed, err
}

func agent(r query.GetAgentRow, err error) (Agent, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return Agent{}, fault.New(fault.NotFound, "there is no such agent in this house", "list the house's agents")
	}
	return Agent{ID: r.ID, Kind: r.Kind, Runtime: db.Zero(r.Runtime), Name: db.Zero(r.Name), Handle: r.Handle, CreatedAt: r.CreatedAt, Unnamed: r.Unnamed}, err
}
