// Package fair shares among houses what a server has only once: the connections to its database, and its time for the
// output of programs and models. Houses take turns by what they have used, and a house that is alone is not slowed.
package fair

import (
	"slices"
	"time"
)

// Queue is a waiting line in which houses take turns by what they have used, however often each of them waits (start-time
// fair queuing). The zero value is ready to use. Its owner's lock guards it.
type Queue struct {
	// clock is the position, in the order of all turns, of the last turn that began. next holds the position of each house's
	// next turn, unless that is the clock.
	clock   int64
	next    map[string]int64
	waiting []*Turn
	running int
}

// Turn is one turn of a house.
type Turn struct {
	House string
	// Cost is the cost of the turn.
	Cost int64
	// Begun is closed when the turn begins.
	Begun chan struct{}
	start int64
}

// Add adds a waiting turn of a house.
func (q *Queue) Add(house string, cost int64) *Turn {
	t := &Turn{House: house, Cost: cost, Begun: make(chan struct{}), start: max(q.clock, q.next[house])}
	if q.next == nil {
		q.next = map[string]int64{}
	}
	q.next[house] = t.start + cost
	q.waiting = append(q.waiting, t)
	return t
}

// First returns the next turn to begin among those that may allows; nil if it allows none. A nil may allows all.
func (q *Queue) First(may func(*Turn) bool) (first *Turn) {
	for _, t := range q.waiting {
		if (first == nil || t.start < first.start) && (may == nil || may(t)) {
			first = t
		}
	}
	return first
}

// Begin begins a turn that waits.
func (q *Queue) Begin(t *Turn) {
	q.clock = max(q.clock, t.start)
	q.running++
	q.remove(t)
	close(t.Begun)
}

// Leave removes a turn, and reports whether it was still waiting. Otherwise its owner must end it.
func (q *Queue) Leave(t *Turn) bool { return q.remove(t) }

func (q *Queue) remove(t *Turn) bool {
	i := slices.Index(q.waiting, t)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// End ends a turn that has begun.
func (q *Queue) End() {
	q.running--
	if q.running == 0 && len(q.waiting) == 0 { // nobody is behind any more
		clear(q.next)
	}
}

// Waiting returns how many turns wait.
func (q *Queue) Waiting() int { return len(q.waiting) }

// Running returns how many turns have begun and not ended.
func (q *Queue) Running() int { return q.running }

// Activity records when houses last asked for something. The zero value is ready to use. Its owner's lock guards it.
type Activity struct {
	// last is the house that asked last, at the time at, and before is when another one last did.
	last       string
	at, before time.Time
}

// Ask records that a house asks for something.
func (a *Activity) Ask(house string, now time.Time) {
	if a.last != house {
		a.last, a.before = house, a.at
	}
	a.at = now
}

// Others returns how long ago a house other than the given one last asked for something.
func (a *Activity) Others(house string, now time.Time) time.Duration {
	if a.last == house {
		return now.Sub(a.before)
	}
	return now.Sub(a.at)
}
