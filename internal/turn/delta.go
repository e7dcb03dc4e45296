package turn

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/stream"
)

// publisher sends what a model writes to the thread's tails while it writes it: lines of JSON, each an [entry.PiChunk].
// The log's deltas replace nothing that was sent, so each call of a model has deltas of its own.
type publisher struct {
	ctx    context.Context
	log    *stream.Log
	ref    stream.Ref
	id     string
	offset int64
}

// publisher returns the one for the next call of the turn's model.
func (r *run) publisher(ctx context.Context) *publisher {
	r.calls++
	id := r.turn.stepID(r.turn.Steps + 1)
	// What an earlier call for this step wrote, here or on a server that was killed, is not continued.
	return &publisher{ctx, r.log, r.ref, id + "~" + strconv.Itoa(r.turn.Attempts) + "." + strconv.Itoa(r.calls), 0}
}

func (p *publisher) delta(d model.Delta) {
	c := entry.PiChunk{Kind: string(d.Kind), Block: d.Block, Text: d.Text, CallID: d.CallID, Name: d.CallName}
	if d.Reason != nil {
		c.Text, c.DelayMS = d.Reason.Error(), d.Delay.Milliseconds()
	}
	line, err := json.Marshal(c)
	if err != nil {
		panic(err) // cannot happen for this struct
	}
	line = append(line, '\n')
	// An error does not matter, because the entry of the step has everything.
	_ = p.log.Publish(p.ctx, p.ref, stream.Delta{EntryID: p.id, Offset: p.offset, Data: line})
	p.offset += int64(len(line))
}
