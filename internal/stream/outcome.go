package stream

// Producer numbers its appends. If two producers use the same name, the one with the higher epoch fences the other.
type Producer struct {
	Name string
	// Epoch increases when a producer restarts, which then begins again with Seq 0.
	Epoch int64
	// Seq increases by one with each append.
	Seq int64
}

// WriteOutcome is the result of a [Write].
type WriteOutcome int

// The outcomes. Only an Accepted write changed the log.
const (
	// Accepted: the write is committed, or the log is closed as the write requested.
	Accepted WriteOutcome = iota
	// Duplicate: the producer already wrote this append.
	Duplicate
	// Closed: the log is closed and accepts no writes.
	Closed
	// OtherContent: the write's content type differs from the log's.
	OtherContent
	// Fenced: another producer of this name has a higher epoch.
	Fenced
	// NotFromStart: a new epoch must begin with Seq 0.
	NotFromStart
	// Gap: an earlier append of the producer is missing.
	Gap
	// SeqTooLow: the write's Seq is not greater than that of an earlier write.
	SeqTooLow
)

// lastWrite is the last accepted append of a producer.
type lastWrite struct {
	Producer
	// closed reports that the append closed the log. The same append again is then a duplicate instead of a write to a
	// closed log.
	closed bool
}

func (l *lastWrite) producer() *Producer {
	if l == nil {
		return nil
	}
	return &l.Producer
}

// after decides whether p is the append that follows the producer's last one.
func (p Producer) after(last *lastWrite) WriteOutcome {
	switch {
	case last == nil && p.Seq == 0:
		return Accepted
	case last == nil:
		return Gap
	case p.Epoch < last.Epoch:
		return Fenced
	case p.Epoch > last.Epoch && p.Seq != 0:
		return NotFromStart
	case p.Epoch > last.Epoch || p.Seq == last.Seq+1:
		return Accepted
	case p.Seq <= last.Seq:
		return Duplicate
	}
	return Gap
}
