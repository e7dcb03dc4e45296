package sandbox

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/etag"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// maxEnvironmentName is the longest name of an environment, in characters.
const maxEnvironmentName = 100

// Environments stores the recipes of houses. A stored recipe names an existing driver and asks for no more than the
// operator allows. It is safe for concurrent use.
type Environments struct {
	db      *db.DB
	drivers *drivers
	maxima  Maxima
	q       *query.Queries
}

// CreateEnvironment creates an environment in the scope's house.
func (e *Environments) CreateEnvironment(ctx context.Context, scope db.Scope, name string, recipe Recipe) (made Environment, err error) {
	err = e.db.In(ctx, scope, func(tx pgx.Tx) error {
		made, err = e.CreateEnvironmentTx(ctx, tx, scope, name, recipe)
		return err
	})
	return made, err
}

// CreateEnvironmentTx is [Environments.CreateEnvironment] in the caller's transaction.
func (e *Environments) CreateEnvironmentTx(ctx context.Context, tx pgx.Tx, scope db.Scope, name string, recipe Recipe) (Environment, error) {
	name, err := entry.RequiredName("name", name, maxEnvironmentName)
	if err != nil {
		return Environment{}, err
	}
	config, secrets, err := e.checked(recipe)
	if err != nil {
		return Environment{}, err
	}
	return environmentFrom(e.q.InsertEnvironment(ctx, tx, query.InsertEnvironmentParams{HouseID: scope.House, Name: name, Config: config, SecretBindings: secrets}))
}

// Environment returns an environment, or a [fault.NotFound].
func (e *Environments) Environment(ctx context.Context, scope db.Scope, id string) (env Environment, err error) {
	err = e.db.In(ctx, scope, func(tx pgx.Tx) error {
		env, err = environmentFrom(e.q.GetEnvironment(ctx, tx, id))
		return err
	})
	return env, err
}

// GitCredential returns an environment's credential for repositories on a host, with its user name. Without one, the
// error is a [fault.Forbidden].
func (e *Environments) GitCredential(ctx context.Context, scope db.Scope, id, host string) (GitCredential, error) {
	env, err := e.Environment(ctx, scope, id)
	if err != nil {
		return GitCredential{}, err
	}
	for _, c := range env.Recipe.Git {
		if c.Host == host {
			return c, nil
		}
	}
	return GitCredential{}, fault.Newf(fault.Forbidden, "add the host to git in: arbe env edit "+id, "the environment has no credential for repositories at %s", host)
}

// AppKeys returns those of some names that belong to secrets with private keys of GitHub Apps, whether they are set or not. Callers
// let only owners set, delete or bind them.
func (e *Environments) AppKeys(ctx context.Context, scope db.Scope, names ...string) (keys []string, err error) {
	err = e.db.In(ctx, scope, func(tx pgx.Tx) error {
		keys, err = e.q.GitHubAppSecrets(ctx, tx, scope.House, names)
		return err
	})
	return keys, err
}

// ListEnvironments returns up to limit environments of the scope's house after a cursor, oldest first.
func (e *Environments) ListEnvironments(ctx context.Context, scope db.Scope, after db.Cursor, limit int) (list []Environment, err error) {
	err = e.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := e.q.ListEnvironments(ctx, tx, query.ListEnvironmentsParams{
			HouseID: scope.House, AfterTime: after.Time, AfterID: after.ID, MaxRows: int32(limit),
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			env, err := environmentFrom(row, nil)
			if err != nil {
				return err
			}
			list = append(list, env)
		}
		return nil
	})
	return list, err
}

// UpdateEnvironment changes an environment's name, its recipe, or both. It ignores nil arguments. version is the etag of the
// version to change, or empty for any; if the environment has another one, the error is a [fault.Aborted]. Existing sandboxes
// do not change.
func (e *Environments) UpdateEnvironment(ctx context.Context, scope db.Scope, id, version string, name *string, recipe *Recipe) (changed Environment, err error) {
	if name != nil {
		clean, err := entry.RequiredName("name", *name, maxEnvironmentName)
		if err != nil {
			return Environment{}, err
		}
		name = &clean
	}
	var config, secrets json.RawMessage
	if recipe != nil {
		if config, secrets, err = e.checked(*recipe); err != nil {
			return Environment{}, err
		}
	}
	err = e.db.In(ctx, scope, func(tx pgx.Tx) error {
		now, err := environmentFrom(e.q.LockEnvironment(ctx, tx, id))
		if err == nil {
			err = etag.Check(version, now.ETag(), "this environment")
		}
		if err != nil {
			return err
		}
		changed, err = environmentFrom(e.q.UpdateEnvironment(ctx, tx, query.UpdateEnvironmentParams{Name: name, Config: config, SecretBindings: secrets, ID: id}))
		return err
	})
	return changed, err
}

// rebuild makes the next sandboxes of an environment, on all machines, be built from the beginning.
func (e *Environments) rebuild(ctx context.Context, scope db.Scope, id string) (env Environment, err error) {
	err = e.db.In(ctx, scope, func(tx pgx.Tx) error {
		env, err = environmentFrom(e.q.RebuildEnvironment(ctx, tx, id))
		return err
	})
	return env, err
}

// DeleteEnvironment deletes an environment and the records of dead sandboxes built from it, which would otherwise keep
// it forever. If a thread, a live sandbox or the house still names it, the error is a [fault.Precondition]. Deleting
// one that does not exist succeeds.
func (e *Environments) DeleteEnvironment(ctx context.Context, scope db.Scope, id string) error {
	err := e.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := e.q.ForgetDeadSandboxes(ctx, tx, id); err != nil {
			return err
		}
		return e.q.DeleteEnvironment(ctx, tx, id)
	})
	// The foreign keys decide (23503 is a violation), because a check before would miss a concurrent reference.
	if db.State(err) == "23503" {
		return fault.New(fault.Precondition, "this environment is still in use",
			"delete the threads and sandboxes that name it, or give them another one; a house's default is changed with the house").Because(err)
	}
	return err
}

// chooseTx returns the environment for a thread's first sandbox: the one with the requested id, otherwise the thread's,
// otherwise the house's. If there is none, the error is a [fault.Precondition].
func (e *Environments) chooseTx(ctx context.Context, tx pgx.Tx, threadID, id string) (env Environment, err error) {
	if id == "" {
		if id, err = e.q.DefaultEnvironmentOf(ctx, tx, threadID); err != nil {
			return Environment{}, err
		}
	}
	if id == "" {
		return Environment{}, fault.New(fault.Precondition, "there is no environment to build a sandbox from: the thread names none and the house has no default",
			"name one with the command, set the thread's, or set the house's default environment")
	}
	return environmentFrom(e.q.GetEnvironment(ctx, tx, id))
}

// checked validates a recipe and returns its stored form.
func (e *Environments) checked(recipe Recipe) (config, secrets json.RawMessage, err error) {
	if err := e.drivers.known(recipe.driver()); err != nil {
		return nil, nil, err
	}
	if config, err = recipe.encode(); err != nil {
		return nil, nil, err
	}
	if err := e.drivers.checkSecretFiles(recipe); err != nil {
		return nil, nil, err
	}
	if secrets, err = json.Marshal(append([]secret.Binding{}, recipe.Secrets...)); err != nil {
		return nil, nil, err
	}
	return config, secrets, e.maxima.check(recipe)
}

// environmentFrom returns the environment of a row that was queried.
func environmentFrom(row query.Environment, err error) (Environment, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return Environment{}, fault.New(fault.NotFound, "there is no such environment", "list the house's environments")
	}
	if err != nil {
		return Environment{}, err
	}
	env := Environment{ID: row.ID, House: row.HouseID, Name: row.Name, CreatedAt: row.CreatedAt, rebuilds: row.Rebuilds}
	if err := json.Unmarshal(row.Config, &env.Recipe); err != nil {
		return Environment{}, fault.New(fault.Precondition, "the recipe of this environment cannot be read", "save the environment again with a new recipe").Because(err)
	}
	var bound []secret.Binding
	if err := json.Unmarshal(row.SecretBindings, &bound); err != nil {
		return Environment{}, fault.New(fault.Precondition, "the secrets of this environment cannot be read", "save the environment again").Because(err)
	}
	if len(bound) > 0 {
		env.Recipe.Secrets = bound
	}
	return env, nil
}
