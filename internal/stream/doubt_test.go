package stream

import "testing"

// counter counts the calls of a Follower.
type counter struct{ committed, pending int }

func (c *counter) Committed(Ref, int64) { c.committed++ }
func (c *counter) Closing(pending bool) {
	if pending {
		c.pending++
	}
}

// Two transactions in a row use the same connection and write to the same stream. The notification of the first may
// arrive after the second has written. The follower still waits for the second one's.
func TestALateNotificationSettlesNoLaterTransaction(t *testing.T) { // not parallel: TestCloseLeavesNothing looks for this package's goroutines
	var f follower
	var c counter
	f.set(&c)
	f.expect(7, Ref{}, 1, 10)
	f.expect(7, Ref{}, 1, 12)
	f.heard(7, 1, 10)
	f.heard(7, 1, 12)
	if c.committed != 2 {
		t.Errorf("the follower is informed %d times, want 2", c.committed)
	}
	f.close()
	if c.pending != 0 {
		t.Error("a transaction is still in doubt after its notification")
	}
}
