package stream

import "sync/atomic"

// changes notifies the followers of all logs of a database.
type changes struct {
	// changed receives one token for any number of changes. Its reader would learn nothing more from several.
	changed chan struct{}
	// to is called with the ids of the changed streams.
	to atomic.Pointer[func(streams []int64)]
}

func newChanges() *changes { return &changes{changed: make(chan struct{}, 1)} }

// heard passes on the streams that were appended to. An empty slice means that logs were closed or deleted; nil means
// that notifications may have been lost.
func (c *changes) heard(streams []int64) {
	if streams != nil {
		select {
		case c.changed <- struct{}{}:
		default: // a token is already pending
		}
	}
	if to := c.to.Load(); to != nil && (streams == nil || len(streams) > 0) {
		(*to)(streams)
	}
}
