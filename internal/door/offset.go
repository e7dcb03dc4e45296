package door

import (
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// place is where a read begins.
type place struct {
	after int64
	// now is the end of the stream, wherever that is.
	now bool
	// said is false when the request leaves it out, and means the start.
	said bool
}

// placeOf is where a request wants to begin. 0 is the start too: that is how threads were read first.
func placeOf(query url.Values) (place, error) {
	given, ok := query["offset"]
	switch {
	case !ok:
		return place{}, nil
	case len(given) > 1:
		return place{}, fault.New(fault.Invalid, "offset: it is there more than once", "give one")
	case given[0] == "-1", given[0] == "0":
		return place{said: true}, nil
	case given[0] == "now":
		return place{now: true, said: true}, nil
	}
	after, err := stream.ParseOffset(given[0])
	return place{after: after, said: true}, err
}

// Caches may answer many readers with one response while they ask for the same interval of time.
const (
	cursorInterval = 20 * time.Second
	// cursorJitter is how many intervals a cursor jumps ahead at most, which spreads out readers.
	cursorJitter = 180
)

var cursorEpoch = time.Date(2024, 10, 9, 0, 0, 0, 0, time.UTC)

// cursor is the interval of now; if the request shows one that is not earlier, a later one than that.
func cursor(shown string) string {
	now := int64(time.Since(cursorEpoch) / cursorInterval)
	if given, err := strconv.ParseInt(shown, 10, 64); err == nil && given >= now && given < 1<<52 {
		now = given + 1 + rand.Int64N(cursorJitter)
	}
	return strconv.FormatInt(now, 10)
}
