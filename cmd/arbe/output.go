package main

import (
	"io"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// output shows a person what one command prints, each byte once and in order: first from the deltas as they
// come, which leave out a part of what is printed very fast or around a reconnect, and at last from the
// result.
type output struct {
	out    io.Writer
	missed func(bytes int64)

	at   int64 // how many bytes of all that the command printed are written or given up
	gaps bool  // something was given up
}

// delta takes a piece of live output.
func (o *output) delta(d *arbev1.Delta) error { return o.piece(d.GetOffset(), d.GetData()) }

// rest writes what the deltas left out, as far as the result has it.
func (o *output) rest(r entry.CommandResult) error {
	whole := !r.Truncated
	// A result has marks in place of bytes that are not text; then its positions are not the output's.
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

// piece writes what data, which starts at offset of the output, has beyond what is written, and tells
// of what is missing in between.
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
