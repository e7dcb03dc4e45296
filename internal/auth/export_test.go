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

// Query counts.
func (c *counted) Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error) {
	c.queries.Add(1)
	return c.DBTX.Query(ctx, statement, args...)
}

// AskAgain asks about everyone who reads on, now.
func (a *Auth) AskAgain() { a.live.round() }
