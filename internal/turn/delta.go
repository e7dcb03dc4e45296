package turn

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

// publisher streams a model's answer to the thread's tails: as lines of JSON, each an [entry.PiChunk], without the
// provider's key. Sent deltas cannot be replaced, so each model call has its own delta. The log drops a delta when the
// next call for the same step has one, when the step's entry is written, or when the turn has ended.
type publisher struct {
	ctx      context.Context
	log      *stream.Log
	ref      stream.Ref
	redactor *secret.Redactor
	id       string

	// mu guards offset, because a timer sends delayed text.
	mu     sync.Mutex
	offset int64
	// text redacts the open block; block is the piece that it is in.
	text  *secret.Stream
	block entry.PiChunk
}

// publisher returns the publisher for the next call of the turn's model.
func (r *run) publisher(ctx context.Context) *publisher {
	r.calls++
	id := r.turn.stepID(r.turn.Steps + 1)
	// A new id, because the delta of an earlier call for this step, here or on a killed server, cannot be continued.
	return &publisher{ctx: ctx, log: r.log, ref: r.ref, redactor: r.redactor, id: id + "~" + entry.StepCall(r.turn.Attempts, r.calls)}
}

// delta sends a piece of an answer. It waits a moment for the next piece, because the key may arrive in pieces. What it
// sends, and when, does not reveal whether the text resembles the key.
func (p *publisher) delta(d model.Delta) {
	c := entry.PiChunk{Kind: string(d.Kind), Block: d.Block, Text: d.Text, CallID: d.CallID, Name: p.redactor.String(d.CallName)}
	if d.Kind == model.TextDelta {
		c.Text = strings.Map(printable, c.Text) // as in the answer, so that readers can switch from the delta to the answer
	}
	if p.text != nil && (p.block.Kind != c.Kind || p.block.Block != c.Block) {
		p.flush()
	}
	if p.redactor == nil || c.Text == "" {
		p.send(c)
		return
	}
	if p.text == nil {
		p.block = c
		p.text = p.redactor.Live(func(text []byte) {
			c := c
			c.Text = string(text)
			p.send(c)
		})
	}
	_, _ = p.text.Write([]byte(c.Text)) // never fails
}

// flush sends delayed text.
func (p *publisher) flush() {
	if p.text != nil {
		p.text.Flush()
		p.text = nil
	}
}

func (p *publisher) send(c entry.PiChunk) {
	line, err := json.Marshal(c)
	if err != nil {
		panic(err) // cannot happen for this struct
	}
	line = append(line, '\n')
	p.mu.Lock()
	defer p.mu.Unlock()
	// An error does not matter, because the step's entry is complete.
	_ = p.log.Publish(p.ctx, p.ref, stream.Delta{EntryID: p.id, Offset: p.offset, Data: line})
	p.offset += int64(len(line))
}
