package commit

import (
	"math/bits"
	"sync/atomic"
)

// Stats counts what a [Committer] has done since it was opened.
type Stats struct {
	// Batches is the number of committed statements, Appends the number of calls in them, and Entries the number of
	// entries. Calls that needed a separate transaction are not counted.
	Batches, Appends, Entries int64
	// Sizes counts the batches by their number of calls: Sizes[i] is how many had more than 1<<(i-1) and at most 1<<i,
	// and the last one counts all larger ones too.
	Sizes [12]int64
}

type counts struct {
	batches, appends, entries atomic.Int64
	sizes                     [len(Stats{}.Sizes)]atomic.Int64
}

// batch counts a committed batch.
func (c *counts) batch(appends, entries int) {
	c.batches.Add(1)
	c.appends.Add(int64(appends))
	c.entries.Add(int64(entries))
	c.sizes[min(bits.Len(uint(max(appends-1, 0))), len(c.sizes)-1)].Add(1)
}
