package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/trace"
)

// spanKey is the key under which a connection keeps the span of its transaction.
const spanKey = "arbe.span"

// keepSpan keeps a span with the connection of a transaction until the returned function is called. A connection has one
// transaction at a time.
func keepSpan(tx pgx.Tx, span trace.Span) (drop func()) {
	if !span.Recording() {
		return func() {}
	}
	data := tx.Conn().PgConn().CustomData()
	data[spanKey] = span
	return func() { delete(data, spanKey) }
}

// Traced returns a context with the values of ctx whose span is the one of the transaction tx, so that what the transaction
// causes follows from it in a trace. If ctx belongs to another trace, or tx is not traced, it returns ctx.
func Traced(ctx context.Context, tx pgx.Tx) context.Context {
	span, _ := tx.Conn().PgConn().CustomData()[spanKey].(trace.Span)
	return trace.In(ctx, span)
}
