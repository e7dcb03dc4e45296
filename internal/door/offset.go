package door

import (
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// startPosition is the position at which a read begins.
type startPosition struct {
	after int64
	// now means the current end of the stream.
	now bool
	// given is false if the request has no offset, which means the start.
	given bool
}

// startOf returns the position at which a request wants to begin. 0 also means the start, because the first clients
// used it.
func startOf(query url.Values) (startPosition, error) {
	given, ok := query["offset"]
	switch {
	case !ok:
		return startPosition{}, nil
	case len(given) > 1:
		return startPosition{}, fault.New(fault.Invalid, "offset: there is more than one", "send one")
	case given[0] == "-1", given[0] == "0":
		return startPosition{given: true}, nil
	case given[0] == "now":
		return startPosition{now: true, given: true}, nil
	}
	after, err := stream.ParseOffset(given[0])
	return startPosition{after: after, given: true}, err
}

// Caches may answer many readers with one response if they ask for the same interval of time.
const (
	cursorInterval = 20 * time.Second
	// cursorJitter is the largest number of intervals that a cursor jumps ahead, so that readers spread out.
	cursorJitter = 180
)

var cursorEpoch = time.Date(2024, 10, 9, 0, 0, 0, 0, time.UTC)

// cursor returns the current interval, or a later one than the request's cursor if that is not in the past. Otherwise a
// cache would answer the next request with the same response.
func cursor(shown string) string {
	now := int64(time.Since(cursorEpoch) / cursorInterval)
	if given, err := strconv.ParseInt(shown, 10, 64); err == nil && given >= now && given < 1<<52 {
		now = given + 1 + rand.Int64N(cursorJitter)
	}
	return strconv.FormatInt(now, 10)
}
