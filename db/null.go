package db

import "time"

// Null returns v for a nullable column: nil for the zero value.
func Null[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// Zero returns the value of a nullable column: the zero value for null.
func Zero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Cursor is a position in a list ordered by time and id: that of the last row of the previous page. The zero Cursor is
// the start of an ascending list.
type Cursor struct {
	Time time.Time
	ID   string
}

// Newest is the start of a descending list.
var Newest = Cursor{Time: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
