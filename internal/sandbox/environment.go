package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// DefaultDriver makes the sandboxes of a recipe that names no driver.
const DefaultDriver = "local"

// defaultCommandTimeout bounds a command when its recipe does not.
const defaultCommandTimeout = 10 * time.Minute

// maxEnvironmentName is the longest name of an environment, in characters.
const maxEnvironmentName = 100

// Environment is a recipe: what a sandbox is built from.
type Environment struct {
	ID, House, Name string
	Recipe          Recipe
	CreatedAt       time.Time
}

// Recipe is what an environment says of its sandboxes. Its JSON is the environment's stored config.
type Recipe struct {
	// Driver makes the box. Defaults to [DefaultDriver].
	Driver string `json:"driver,omitempty"`
	// Image is the root file system in the driver's terms. Defaults to the driver's base.
	Image string `json:"image,omitempty"`
	// Repo is a git repository cloned into the working tree, at Ref (a branch, tag or commit; defaults
	// to its default branch).
	Repo string `json:"repo,omitempty"`
	Ref  string `json:"ref,omitempty"`
	// Setup is a shell script run once in a new box, after the clone.
	Setup string `json:"setup,omitempty"`
	// Limits bound the box. Default to the driver's.
	Limits Limits `json:"limits,omitzero"`
	// CommandTimeout bounds one command. Defaults to ten minutes.
	CommandTimeout time.Duration `json:"command_timeout,omitempty"`
}

// driver is the recipe's driver with its default.
func (r Recipe) driver() string {
	if r.Driver == "" {
		return DefaultDriver
	}
	return r.Driver
}

// commandTimeout is the recipe's limit with its default.
func (r Recipe) commandTimeout() time.Duration {
	if r.CommandTimeout == 0 {
		return defaultCommandTimeout
	}
	return r.CommandTimeout
}

// CreateEnvironment adds a recipe to the scope's house.
func (r *Resolver) CreateEnvironment(ctx context.Context, scope db.Scope, name string, recipe Recipe) (made Environment, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		made, err = r.CreateEnvironmentTx(ctx, tx, scope, name, recipe)
		return err
	})
	return made, err
}

// CreateEnvironmentTx is [Resolver.CreateEnvironment] inside the caller's transaction.
func (r *Resolver) CreateEnvironmentTx(ctx context.Context, tx pgx.Tx, scope db.Scope, name string, recipe Recipe) (Environment, error) {
	name, err := entry.RequiredName("name", name, maxEnvironmentName)
	if err != nil {
		return Environment{}, err
	}
	config, err := r.checkRecipe(recipe)
	if err != nil {
		return Environment{}, err
	}
	return environment(r.q.InsertEnvironment(ctx, tx, scope.House, name, config))
}

// Environment returns one recipe, or a [fault.NotFound].
func (r *Resolver) Environment(ctx context.Context, scope db.Scope, id string) (e Environment, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		e, err = environment(r.q.GetEnvironment(ctx, tx, id))
		return err
	})
	return e, err
}

// Environments returns up to limit recipes of the scope's house behind a cursor, oldest first.
func (r *Resolver) Environments(ctx context.Context, scope db.Scope, after db.Cursor, limit int) (list []Environment, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := r.q.ListEnvironments(ctx, tx, query.ListEnvironmentsParams{
			HouseID: scope.House, AfterTime: after.Time, AfterID: after.ID, MaxRows: int32(limit),
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			e, err := environment(row, nil)
			if err != nil {
				return err
			}
			list = append(list, e)
		}
		return nil
	})
	return list, err
}

// UpdateEnvironment changes a recipe's name, the recipe itself, or both; nil leaves as it is. Sandboxes
// built before stay as they are.
func (r *Resolver) UpdateEnvironment(ctx context.Context, scope db.Scope, id string, name *string, recipe *Recipe) (changed Environment, err error) {
	if name != nil {
		clean, err := entry.RequiredName("name", *name, maxEnvironmentName)
		if err != nil {
			return Environment{}, err
		}
		name = &clean
	}
	var config json.RawMessage
	if recipe != nil {
		if config, err = r.checkRecipe(*recipe); err != nil {
			return Environment{}, err
		}
	}
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		changed, err = environment(r.q.UpdateEnvironment(ctx, tx, name, config, id))
		return err
	})
	return changed, err
}

// DeleteEnvironment removes a recipe, and with it what is remembered of the dead sandboxes built from it.
// One that a thread, a sandbox or the house still names is a [fault.Precondition]; one that is gone is no
// error.
func (r *Resolver) DeleteEnvironment(ctx context.Context, scope db.Scope, id string) error {
	err := r.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := r.q.ForgetDeadSandboxes(ctx, tx, id); err != nil {
			return err
		}
		return r.q.DeleteEnvironment(ctx, tx, id)
	})
	if db.State(err) == "23503" { // foreign key violation
		return fault.New(fault.Precondition, "this environment is still in use",
			"delete the threads and sandboxes that name it, or give them another one; a house's default is changed with the house").Because(err)
	}
	return err
}

// checkRecipe says what is wrong with a recipe, and is its stored form.
func (r *Resolver) checkRecipe(recipe Recipe) (json.RawMessage, error) {
	// A driver that this server cannot use now may be right on another, or tomorrow.
	if _, err := r.driver(recipe.driver()); err != nil && r.broken[recipe.driver()] == nil {
		return nil, err
	}
	if strings.ContainsRune(recipe.Image+recipe.Repo+recipe.Ref+recipe.Setup, 0) {
		return nil, fault.New(fault.Invalid, "config: it has a NUL byte", "remove the NUL byte")
	}
	if err := checkRepo(recipe.Repo, recipe.Ref); err != nil {
		return nil, err
	}
	return json.Marshal(recipe)
}

func environment(row query.Environment, err error) (Environment, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return Environment{}, fault.New(fault.NotFound, "there is no such environment", "list the house's environments")
	}
	if err != nil {
		return Environment{}, err
	}
	e := Environment{ID: row.ID, House: row.HouseID, Name: row.Name, CreatedAt: row.CreatedAt}
	if err := json.Unmarshal(row.Config, &e.Recipe); err != nil {
		return Environment{}, fault.New(fault.Precondition, "the recipe of this environment cannot be read", "write it anew").Because(err)
	}
	return e, nil
}
