package stream

import "sync/atomic"

// changes notifies the followers of all logs of a database.
type changes struct {
	// changed receives one token for any number of changes. More tokens would be of no use to its reader.
	changed chan struct{}
	// callback is called with the ids of the changed streams.
	callback atomic.Pointer[func(streams []int64)]
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
	if callback := c.callback.Load(); callback != nil && (streams == nil || len(streams) > 0) {
		(*callback)(streams)
	}
}
