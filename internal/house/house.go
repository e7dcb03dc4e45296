// Package house manages tenants: houses (create.go), their members (member.go) and the invites by which people join (invite.go). A
// house owns everything in it and is the only privacy boundary between people.
package house

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/etag"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// MaxName is the longest name of a house or an agent, in characters.
const MaxName = 100

// House is a tenant, as one of its members sees it.
type House struct {
	ID, Name string
	// DefaultEnvironment is the environment of threads without one; empty if there is none.
	DefaultEnvironment string
	// DefaultModel is the model of bots that name none, as provider/model; empty for the installation's.
	DefaultModel string
	// Limits has only the limits that were set; see [Limits.OrDefaults].
	Limits Limits
	// Ask are the tools that every bot of the house uses only with a person's approval, by name, in the order of
	// [entry.Tools].
	Ask []string
	// KeepThreads and KeepArtifacts are how many days inactive threads and artifacts are kept; 0 means forever.
	KeepThreads, KeepArtifacts int
	// KeepThreadsMB and KeepArtifactsMB are how many MiB of thread logs and of artifacts are kept; the oldest beyond that
	// are deleted. 0 means no limit.
	KeepThreadsMB, KeepArtifactsMB int
	// PrimaryThread is the thread for signal.house.* entries.
	PrimaryThread string
	CreatedAt     time.Time
	// Role is the role of the requesting agent: "owner" or "member".
	Role string
}

// ETag names the version of the fields that [Houses.Update] changes.
func (h House) ETag() string {
	return etag.Of(h.Name, h.DefaultEnvironment, h.Limits, h.Ask, h.KeepThreads, h.KeepArtifacts, h.KeepThreadsMB, h.KeepArtifactsMB)
}

// Houses manages houses. It is safe for concurrent use.
type Houses struct {
	// Creation says who may create houses. PerPerson limits how many houses may belong to a person, in the sense of
	// houses.belongs_to. They default to [Anyone] and to 0, which is no limit. Set them before the first use.
	Creation  Creation
	PerPerson int
	// Maxima are the highest limits that a house may have. They default to [DefaultMaxima]. Set them before the first use.
	Maxima Limits

	db           *db.DB
	log          *stream.Log
	threads      *thread.Threads
	environments Environments
	bots         Bots
	q            *query.Queries
}

// Environments creates the default environment of a new house; see [sandbox.Environments].
type Environments interface {
	CreateEnvironmentTx(ctx context.Context, tx pgx.Tx, scope db.Scope, name string, recipe sandbox.Recipe) (sandbox.Environment, error)
}

// Bots creates the bots of a new house; see [bot.Bots].
type Bots interface {
	CreateDefaultsTx(ctx context.Context, tx pgx.Tx, scope db.Scope) error
}

// New returns a Houses.
func New(d *db.DB, log *stream.Log, threads *thread.Threads, environments Environments, bots Bots) *Houses {
	return &Houses{Maxima: DefaultMaxima, db: d, log: log, threads: threads, environments: environments, bots: bots, q: query.New()}
}

// Get returns the scope's house.
func (h *Houses) Get(ctx context.Context, scope db.Scope) (got House, err error) {
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		got, err = h.get(ctx, tx, scope.House)
		return err
	})
	return got, err
}

func (h *Houses) get(ctx context.Context, tx pgx.Tx, id string) (House, error) {
	r, err := h.q.GetHouse(ctx, tx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return House{}, noSuchHouse()
	} else if err != nil {
		return House{}, err
	}
	return fromRow(query.ListHousesRow(r))
}

func noSuchHouse() *fault.Error {
	return fault.New(fault.NotFound, "there is no such house", "list your houses with: arbe house list")
}

func fromRow(r query.ListHousesRow) (House, error) {
	limits, err := limitsFromRow(r.ID, r.Limits)
	return House{ID: r.ID, Name: r.Name, DefaultEnvironment: db.Zero(r.DefaultEnvironmentID), DefaultModel: r.DefaultModel, Limits: limits, Ask: r.Ask,
		KeepThreads: int(r.KeepThreadsDays), KeepArtifacts: int(r.KeepArtifactsDays),
		KeepThreadsMB: int(r.KeepThreadsMb), KeepArtifactsMB: int(r.KeepArtifactsMb),
		PrimaryThread: db.Zero(r.PrimaryThreadID), CreatedAt: r.CreatedAt, Role: r.Role}, err
}

// List returns up to limit houses of an agent after a cursor, oldest first. If only is not empty, it returns just that
// house.
func (h *Houses) List(ctx context.Context, agent, only string, after db.Cursor, limit int) (list []House, err error) {
	err = h.db.In(ctx, db.Scope{Agent: agent}, func(tx pgx.Tx) error {
		rows, err := h.q.ListHouses(ctx, tx, query.ListHousesParams{AfterTime: after.Time, AfterID: after.ID, OnlyHouse: only, MaxRows: int32(limit)})
		if err != nil {
			return err
		}
		for _, r := range rows {
			found, err := fromRow(r)
			if err != nil {
				return err
			}
			list = append(list, found)
		}
		return nil
	})
	return list, err
}

// Change describes a change of a house. Nil fields are left unchanged. Package model sets the default model.
type Change struct {
	Name *string
	// Environment is the default environment, empty for none.
	Environment *string
	// Limits replaces all limits.
	Limits *Limits
	// Ask replaces the list of tools that bots use only with a person's approval.
	Ask *[]string
	// These replace those of [House].
	KeepThreads, KeepArtifacts, KeepThreadsMB, KeepArtifactsMB *int32
	// ETag is the version that the change was made for; empty changes any version.
	ETag string
}

// Update changes the scope's house and returns it.
func (h *Houses) Update(ctx context.Context, scope db.Scope, c Change) (changed House, err error) {
	params, err := c.params(scope.House, h.Maxima)
	if err != nil {
		return House{}, err
	}
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		if c.ETag != "" {
			if err := h.checkVersion(ctx, tx, scope.House, c.ETag); err != nil {
				return err
			}
		}
		if _, err := h.q.UpdateHouse(ctx, tx, params); err != nil {
			return err
		}
		changed, err = h.get(ctx, tx, scope.House)
		return err
	})
	if db.Violates(err, "houses_keep_threads_days_check") || db.Violates(err, "houses_keep_artifacts_days_check") {
		return House{}, fault.New(fault.Invalid, "retention: a number of days is from 0 to 3650", "use 0 to delete nothing").Because(err)
	}
	// The error is examined here instead of after the update, because the constraint is checked at commit.
	if db.Violates(err, "houses_id_default_environment_id_fkey") {
		return House{}, fault.New(fault.NotFound, "default_environment_id: the house has no environment with this id",
			"use an environment of the same house").Because(err)
	}
	return changed, err
}

// params checks a change, and returns it as the database takes it.
func (c Change) params(house string, maxima Limits) (params query.UpdateHouseParams, err error) {
	params = query.UpdateHouseParams{ID: house, KeepThreadsDays: c.KeepThreads, KeepArtifactsDays: c.KeepArtifacts, KeepThreadsMb: c.KeepThreadsMB, KeepArtifactsMb: c.KeepArtifactsMB}
	if c.Name != nil {
		clean, err := entry.RequiredName("name", *c.Name, MaxName)
		if err != nil {
			return params, err
		}
		params.Name = &clean
	}
	if c.Environment != nil {
		params.SetDefault, params.DefaultEnvironmentID = true, db.Null(*c.Environment)
	}
	if c.Limits != nil {
		if err := c.Limits.validate(maxima); err != nil {
			return params, err
		}
		if params.Limits, err = json.Marshal(*c.Limits); err != nil {
			return params, err
		}
	}
	if c.Ask != nil {
		params.Ask, err = bot.CleanTools("ask", *c.Ask)
	}
	return params, err
}

// checkVersion locks a house and checks that it has not changed since a version.
func (h *Houses) checkVersion(ctx context.Context, tx pgx.Tx, id, version string) error {
	if _, err := h.q.LockHouse(ctx, tx, id); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	now, err := h.get(ctx, tx, id)
	if err != nil {
		return err
	}
	return etag.Check(version, now.ETag(), "this house")
}
