package main

import (
	"io"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// output writes what one command prints, each byte once and in order: first from the deltas as they
// come, which may repeat or miss something around a reconnect, and at last from the result.
type output struct {
	out    io.Writer
	missed func(bytes int64)

	at int64 // how many bytes of all that the command printed are written or given up
}

// delta writes what a delta has beyond what is written.
func (o *output) delta(d *arbev1.Delta) error { return o.piece(d.GetOffset(), d.GetData()) }

// rest writes what the deltas left out, as far as the result has it. A result has marks in place of
// bytes that are not text; its positions are the output's only while it has none.
func (o *output) rest(r entry.CommandResult) error {
	if !r.Truncated {
		if o.at > 0 && int64(len(r.Output)) != r.OutputBytes {
			return o.piece(r.OutputBytes, nil)
		}
		return o.piece(0, []byte(r.Output))
	}
	if err := o.piece(0, []byte(r.Output)); err != nil {
		return err
	}
	return o.piece(r.OutputBytes-int64(len(r.OutputTail)), []byte(r.OutputTail))
}

// piece writes what data, which starts at offset of the output, has beyond what is written, and tells
// of what is missing in between.
func (o *output) piece(offset int64, data []byte) error {
	if offset > o.at {
		o.missed(offset - o.at)
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
