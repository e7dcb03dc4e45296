package store

// Ref names a log.
type Ref struct {
	// House is the id of the house that owns the log. Other houses cannot see it.
	House string
	// Name is the log's name in the house. A thread's log is "arbe-thread-…" (threads.stream_id).
	Name string
}

// MaxRows limits the entries of one [Read]; defaultRows is the limit of a [Range] that has none.
const MaxRows, defaultRows = 1000, 100

// Range selects the entries of a log between two positions, both exclusive.
type Range struct {
	// After is the position before the first entry. Defaults to 0, the start.
	After int64
	// Before is the position after the last entry. Defaults to 0, no bound.
	Before int64
	// Last selects the end of the range instead of its start.
	Last bool
	// Limit is the largest number of entries. Defaults to 100; more than 1000 counts as 1000.
	Limit int
}
