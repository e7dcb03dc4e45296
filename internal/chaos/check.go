// Package chaos states what arbe promises about its logs, whatever happens to servers, Postgres and the connections
// between them, as an invariant over what the clients of a run saw ([Check]). Its tests are the runs: they start real
// servers on a Postgres of their own, write and follow, kill, cut and fill whatever can be killed, cut and filled, and
// check the history (scenario_test.go). They also break the promise on purpose, to show that the invariant would notice
// (check_test.go, planted_test.go).
package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// History records what was done to some logs, what the clients saw, and what Postgres holds at the end. Times are
// measured on one clock since the run began, because those of several clocks could not be compared.
type History struct {
	Appends []Append
	Reads   []Read
	Tails   []Tail
	// Logs are the final records of each log, in the order of their positions.
	Logs map[string][]Record
}

// Record is one entry of a log.
type Record struct {
	Seq  int64
	Text string
}

// Outcome is the result of an append, as far as its writer knows.
type Outcome string

// The outcomes.
const (
	// Acknowledged: the server said that it was written.
	Acknowledged Outcome = "acknowledged"
	// Unknown: no server said whether it was written, however often it was tried. Check must not count it as lost or as
	// left over.
	Unknown Outcome = "unknown"
	// Refused: the server said that it was not written and never will be.
	Refused Outcome = "refused"
)

// Append is one append with all its attempts: from the call of the first to the return of the last, because any of them
// may have written it.
type Append struct {
	Log, Writer string
	// Texts are the texts that it writes: all or nothing, in this order and with nothing in between.
	Texts        []string
	Call, Return time.Duration
	Outcome      Outcome
	// Last is the acknowledged position of its last record; 0 if the answer did not contain it.
	Last int64
}

// Read is a query for the end of a log.
type Read struct {
	Log          string
	Call, Return time.Duration
	// End is the position of the last record.
	End int64
}

// Tail is the part of a log that one follower received after a position, over all its connections.
type Tail struct {
	Log, Name string
	After     int64
	Seen      []Record
}

// Violation is a broken promise.
type Violation struct {
	Kind   Kind
	Detail string
}

func (v Violation) String() string { return string(v.Kind) + ": " + v.Detail }

// Kind is the kind of promise that was broken.
type Kind string

// The kinds.
const (
	// Lost: an acknowledged append is not in its log.
	Lost Kind = "lost"
	// Doubled: a text is in its log more than once.
	Doubled Kind = "doubled"
	// Gap: the positions of a log are not 1, 2, 3, and so on.
	Gap Kind = "gap"
	// Torn: only a part of an append is there, or it is out of order or mixed with others.
	Torn Kind = "torn"
	// Misplaced: an append is not where it was acknowledged.
	Misplaced Kind = "misplaced"
	// Kept: a refused append left something.
	Kept Kind = "kept"
	// Strange: a log holds something that nobody wrote to it.
	Strange Kind = "strange"
	// Reordered: no order of the appends and reads of a log agrees with both their results and their times.
	Reordered Kind = "reordered"
	// Repeated, Skipped: a tail sent a record twice, or skipped one.
	Repeated Kind = "repeated"
	Skipped  Kind = "skipped"
	// Altered: a tail sent something other than what the log holds at that position.
	Altered Kind = "altered"
	// Unfinished: a tail did not reach the end of its log.
	Unfinished Kind = "unfinished"
)

// Check returns the promises that a history breaks; none if it keeps them all:
//
//   - Every acknowledged append is in its log once, whole, at the acknowledged position. An append of unknown
//     outcome is there once or not at all, and a refused one is not there. A log has nothing else.
//   - Positions count from 1 without a gap.
//   - Appends and reads are linearizable: each takes effect at one moment between its call and its return. What was
//     acknowledged before an append began has a lower position, and a read sees what was acknowledged before it
//     began.
//   - Every tail sent every record after its start, once and in order.
func Check(h History) []Violation {
	c := checker{History: h, at: map[string]map[string]int64{}}
	for _, name := range slices.Sorted(maps.Keys(h.Logs)) {
		c.log(name)
	}
	byLog := map[string][]operation{}
	for _, a := range h.Appends {
		if op, there := c.checkAppend(a); there {
			byLog[a.Log] = append(byLog[a.Log], op)
		}
	}
	for _, r := range h.Reads {
		byLog[r.Log] = append(byLog[r.Log], r.operation())
	}
	for _, name := range slices.Sorted(maps.Keys(byLog)) {
		c.order(name, byLog[name])
	}
	for _, t := range h.Tails {
		c.tail(t)
	}
	return c.found
}

type checker struct {
	History
	// at are the positions of all texts, by log.
	at    map[string]map[string]int64
	found []Violation
}

func (c *checker) report(k Kind, format string, args ...any) {
	c.found = append(c.found, Violation{k, fmt.Sprintf(format, args...)})
}

// log checks a log by itself and against what was written to it.
func (c *checker) log(name string) {
	written := map[string]bool{}
	for _, a := range c.Appends {
		if a.Log == name {
			for _, text := range a.Texts {
				written[text] = true
			}
		}
	}
	at := map[string]int64{}
	c.at[name] = at
	for i, r := range c.Logs[name] {
		if r.Seq != int64(i)+1 {
			c.report(Gap, "%s: position %d comes where %d should", name, r.Seq, i+1)
		}
		// Every append of a run writes other texts, so that a text that occurs twice was written twice.
		if first, ok := at[r.Text]; ok {
			c.report(Doubled, "%s: %q is at %d and at %d", name, r.Text, first, r.Seq)
			continue
		}
		at[r.Text] = r.Seq
		if !written[r.Text] {
			c.report(Strange, "%s: nobody wrote %q, which is at %d", name, r.Text, r.Seq)
		}
	}
}

// checkAppend checks the records of an append in its log. It returns the append as an operation if the log has any of
// them. Otherwise the append has no place in the order, and nothing else can be checked.
func (c *checker) checkAppend(a Append) (op operation, there bool) {
	seqs := c.positions(a)
	what := fmt.Sprintf("%s: %q of %s, called at %v and returned at %v", a.Log, a.Texts, a.Writer, a.Call, a.Return)
	switch {
	case a.Outcome == Refused:
		if len(seqs) > 0 {
			c.report(Kept, "%s: it was refused, and is at %d", what, seqs)
		}
		return op, false
	case len(seqs) == 0:
		if a.Outcome == Acknowledged {
			c.report(Lost, "%s: it was acknowledged at %d, and is not there", what, a.Last)
		}
		return op, false
	}
	last := seqs[len(seqs)-1]
	if len(seqs) < len(a.Texts) || !consecutive(seqs) {
		c.report(Torn, "%s: %d of its %d records are there, at %d", what, len(seqs), len(a.Texts), seqs)
	}
	if a.Outcome == Acknowledged && a.Last != 0 && a.Last != last {
		c.report(Misplaced, "%s: it was acknowledged at %d, and is at %d", what, a.Last, last)
	}
	op = operation{what: what, first: 2 * seqs[0], last: 2 * last, call: a.Call, end: a.Return}
	if a.Outcome == Unknown {
		op.end = math.MaxInt64 // because it may have been written at any later time
	}
	return op, true
}

// positions returns where the log has the records of an append.
func (c *checker) positions(a Append) (seqs []int64) {
	for _, text := range a.Texts {
		if seq, ok := c.at[a.Log][text]; ok {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

func consecutive(seqs []int64) bool {
	for i, seq := range seqs {
		if seq != seqs[0]+int64(i) {
			return false
		}
	}
	return true
}

// operation is an append or a read with its place in the only order in which the operations of a log can have happened.
// An append has the places from twice its first position to twice its last one. A read has the place after the last
// record that it saw.
type operation struct {
	what        string
	first, last int64
	call, end   time.Duration
}

func (r Read) operation() operation {
	place := 2*r.End + 1
	what := fmt.Sprintf("%s: a read of %d records, called at %v and returned at %v", r.Log, r.End, r.Call, r.Return)
	return operation{what, place, place, r.Call, r.Return}
}

// order checks that every operation of a log can have happened between its call and its return. Their order is known,
// because each has a position. So it is enough to check that no operation was called after a later one in this order
// had returned. Other objects would need a search for an order.
func (c *checker) order(name string, ops []operation) {
	slices.SortFunc(ops, func(a, b operation) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.call, b.call))
	})
	latest := ops[0] // of the earlier ones, the one called last
	reach := ops[0]  // of the earlier ones, the one that reaches furthest
	for _, op := range ops[1:] {
		if op.first < reach.last {
			c.report(Torn, "%s: it is within %s", op.what, reach.what)
		}
		if latest.call > op.end {
			c.report(Reordered, "%s: it returned before what it follows was called, %s", op.what, latest.what)
		}
		if op.call > latest.call {
			latest = op
		}
		if op.last > reach.last {
			reach = op
		}
	}
	// The last operation has the highest place, because ops are sorted by it.
	if end := int64(len(c.Logs[name])); ops[len(ops)-1].first > 2*end+1 {
		c.report(Lost, "%s: it saw more than the %d records there are", ops[len(ops)-1].what, end)
	}
}

// tail checks what a tail sent against its log.
func (c *checker) tail(t Tail) {
	records := c.Logs[t.Log]
	next := t.After + 1
	for _, r := range t.Seen {
		switch {
		case r.Seq < next:
			c.report(Repeated, "tail %s of %s: %d, %q, came after %d", t.Name, t.Log, r.Seq, r.Text, next-1)
			continue
		case r.Seq > next: // go on behind it, so that one gap is reported once
			c.report(Skipped, "tail %s of %s: %d came after %d", t.Name, t.Log, r.Seq, next-1)
		}
		if r.Seq > int64(len(records)) {
			c.report(Altered, "tail %s of %s: it received %q at %d, and the log ends at %d", t.Name, t.Log, r.Text, r.Seq, len(records))
		} else if held := records[r.Seq-1].Text; held != r.Text {
			c.report(Altered, "tail %s of %s: it received %q at %d, where the log holds %q", t.Name, t.Log, r.Text, r.Seq, held)
		}
		next = r.Seq + 1
	}
	if end := int64(len(records)); next <= end {
		c.report(Unfinished, "tail %s of %s: it ended at %d, the log at %d", t.Name, t.Log, next-1, end)
	}
}
