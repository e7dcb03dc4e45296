package db

import "time"

// Null is v as a nullable column takes it: nil for the zero value.
func Null[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// Zero is what a nullable column holds: the zero value for null.
func Zero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Cursor is a place in a list that is ordered by time and id: the last row of the page before. The zero
// Cursor is the start of a list that runs upward.
type Cursor struct {
	Time time.Time
	ID   string
}

// Newest is the start of a list that runs from the newest row downward.
var Newest = Cursor{Time: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
