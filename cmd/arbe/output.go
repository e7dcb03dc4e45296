package main

import (
	"io"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// output shows a command's output to a person, each byte once and in order. It takes the bytes from the deltas as they
// arrive, and the rest from the result, because deltas leave out parts of very fast output and of output around a
// reconnect.
type output struct {
	out    io.Writer
	missed func(bytes int64)

	at   int64 // the number of bytes of the command's output that were written or skipped
	gaps bool  // something was skipped
}

func (o *output) delta(d *arbev1.Delta) error { return o.piece(d.GetOffset(), d.GetData()) }

// rest writes the parts that the deltas left out, if the result has them.
func (o *output) rest(r entry.CommandResult) error {
	whole := !r.Truncated
	// If the output is not all text, the result has marks in place of other bytes. Its positions then differ from those in
	// the output.
	if exact := int64(len(r.Output)) == r.OutputBytes; whole && !exact && o.at == 0 {
		o.at = r.OutputBytes
		_, err := io.WriteString(o.out, r.Output)
		return err
	} else if exact || !whole {
		if err := o.piece(0, []byte(r.Output)); err != nil {
			return err
		}
	}
	return o.piece(r.OutputBytes-int64(len(r.OutputTail)), []byte(r.OutputTail))
}

// piece writes the part of data that is not yet written, and reports a gap before it. data starts at offset in the output.
func (o *output) piece(offset int64, data []byte) error {
	if offset > o.at {
		o.missed(offset - o.at)
		o.gaps = true
		o.at = offset
	}
	end := offset + int64(len(data))
	if end <= o.at {
		return nil
	}
	_, err := o.out.Write(data[o.at-offset:])
	o.at = end
	return err
}
