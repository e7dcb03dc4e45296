package auth

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
)

// CountKeyReads counts how often the signing keys are read from here on.
func (a *Auth) CountKeyReads() *atomic.Int64 {
	c := &counted{DBTX: a.signing.from}
	a.signing.from = c
	return &c.queries
}

type counted struct {
	query.DBTX
	queries atomic.Int64
}

// Query counts the query.
func (c *counted) Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error) {
	c.queries.Add(1)
	return c.DBTX.Query(ctx, statement, args...)
}

// Holds reports whether facts are valid.
func (a *Auth) Holds() bool {
	holds, _ := a.facts.state()
	return holds
}

// Facts returns the number of facts.
func (a *Auth) Facts() int {
	a.facts.mu.Lock()
	defer a.facts.mu.Unlock()
	return a.facts.byTopic.Len()
}

// AskMeanwhile looks up a credential, and calls meanwhile after the database has answered but before the answer is
// used.
func (a *Auth) AskMeanwhile(ctx context.Context, token string, meanwhile func()) error {
	_, err := a.credentials(ctx, slow{a.db.Pool(), meanwhile}, [][]byte{digest(token)})
	return err
}

type slow struct {
	query.DBTX
	meanwhile func()
}

// Query calls meanwhile after the first row.
func (s slow) Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error) {
	rows, err := s.DBTX.Query(ctx, statement, args...)
	return &slowRows{rows, s.meanwhile}, err
}

type slowRows struct {
	pgx.Rows
	meanwhile func()
}

func (r *slowRows) Next() bool {
	is := r.Rows.Next()
	if is {
		r.meanwhile()
	}
	return is
}

// AskAgain rechecks all watches now.
func (a *Auth) AskAgain(ctx context.Context) error {
	return a.rechecker.check(ctx, a.db.Pool(), a.rechecker.watched())
}
