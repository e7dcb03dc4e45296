package door

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
)

// Limits of the memory that the server holds for clients, in bytes.
const (
	// pageMemory is reserved for a piece of a page while it is read, because its size is still unknown. Most pieces are
	// smaller.
	pageMemory = 16 << 20
	// piecesMemory is reserved for two pieces of small entries, because one is read while the other is written.
	piecesMemory = 2 << 20
	// feedMemory is reserved for a feed that catches up: a page of the log and an event.
	feedMemory = 2 << 20
	// freeBody is the size up to which a body needs no reservation, because nearly all bodies are that small.
	freeBody = 64 << 10
)

// clientMemory limits the memory that the server holds for clients.
type clientMemory struct {
	*httpd.Memory
	wait time.Duration // the longest that a request waits for memory
}

// hold reserves memory for a client. It waits for memory, but not for long.
func (m clientMemory) hold(ctx context.Context, who string, bytes int64) (*httpd.Lease, error) {
	if l := m.Try(who, bytes); l != nil {
		return l, nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.wait)
	defer cancel()
	l, err := m.Take(ctx, who, bytes)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the memory for responses is used up by clients that do not read theirs",
			"read or cancel your earlier requests, and try again in a moment").Because(err)
	}
	return l, nil
}
