package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
)

// event is one event of an answer that is within bounds.
type event struct {
	// data is a JSON object. It is valid until the next call of next.
	data []byte
	// failed reports that its sender calls it an error.
	failed bool
}

// events reads a stream of events (SSE). It skips comments, empty events and events that the dialect does not have.
type events struct {
	from    io.Reader
	dialect Dialect
	// size returns the size of the answer so far.
	size func() int
	// pace waits until n bytes may be checked; see [Request].
	pace func(n int) (end func())

	chunk   []byte
	line    []byte // the beginning of a line
	failed  bool   // the current event is called an error
	data    []byte // its data
	hasData bool
	out     []byte // the data of checked events that were not returned yet
	ready   []span // their positions in out
	err     error

	grown        int
	bytes, count allowance
	refusal      int
	names        int
	items        int
	started      bool        // messages: the message has begun
	open         map[int]int // messages: the number of signature pieces of each open block
	deltas       int         // messages: the number of message_delta events
}

// span is where an event is.
type span struct {
	from, to int
	failed   bool
}

func newEvents(from io.Reader, d Dialect, size func() int) *events {
	return &events{from: from, dialect: d, size: size, pace: func(int) func() { return func() {} }, chunk: make([]byte, 16<<10), open: map[int]int{},
		bytes: allow(quietBytes, bytesEach), count: allow(quietEvents, eventsEach)}
}

// next returns the next event, or the error that ended them: [io.EOF] after the last, a [boundsError], or one that wraps
// [io.ErrUnexpectedEOF].
func (e *events) next() (event, error) {
	for len(e.ready) == 0 {
		if e.err != nil {
			return event{}, e.err
		}
		e.out = e.out[:0]
		n, err := e.from.Read(e.chunk)
		if grown := e.size(); grown > e.grown {
			e.bytes.earn(grown - e.grown)
			e.count.earn(grown - e.grown)
			e.grown = grown
		}
		if !e.bytes.spend(float64(n)) {
			e.err = outOfBounds("it keeps sending data that is not part of an answer")
			continue
		}
		end := e.pace(n)
		e.err = e.feed(e.chunk[:n])
		end()
		if e.err != nil || err == nil {
			continue
		}
		if e.err = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err); err == io.EOF { // some servers do not terminate their last event
			e.err = cmp.Or(e.take(e.line), e.take(nil), io.EOF)
		}
	}
	s := e.ready[0]
	e.ready = e.ready[1:]
	return event{e.out[s.from:s.to], s.failed}, nil
}

// feed handles a piece of the stream.
func (e *events) feed(text []byte) error {
	for len(text) > 0 {
		part, rest, ends := bytes.Cut(text, []byte("\n"))
		if len(e.line)+len(e.data)+len(part) > maxEvent {
			return outOfBounds("it sends an event of more than %d bytes", maxEvent)
		}
		if !ends {
			e.line = append(e.line, part...)
			return nil
		}
		if len(e.line) > 0 {
			part = append(e.line, part...)
			e.line = part[:0]
		}
		if err := e.take(part); err != nil {
			return err
		}
		text = rest
	}
	return nil
}

// take handles a line. An empty line ends an event.
func (e *events) take(line []byte) error {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 {
		failed, data, hasData := e.failed, e.data, e.hasData
		e.failed, e.data, e.hasData = false, e.data[:0], false
		if !hasData {
			return nil
		}
		return e.check(failed, bytes.TrimSpace(data))
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "event":
		e.failed = string(value) == "error"
	case "data":
		if e.hasData {
			e.data = append(e.data, ' ') // between JSON tokens a line break is white space, and inside them it is not allowed
		}
		e.data, e.hasData = append(e.data, value...), true
	}
	return nil
}

// check handles a complete event. Events within bounds, of a known kind, become ready.
func (e *events) check(failed bool, data []byte) error {
	if !e.count.spend(1) {
		return outOfBounds("it keeps sending events that are not part of an answer")
	}
	switch {
	case len(data) == 0:
		return nil
	case bytes.HasPrefix(data, []byte("[DONE]")) && (e.dialect == Chat || e.dialect == Responses):
		return io.EOF
	case data[0] != '{' || !json.Valid(data):
		return outOfBounds("it sends an event that is not a JSON object")
	}
	w := walk{data: data, dialect: e.dialect}
	if err := w.walk(); err != nil {
		return err
	}
	if err := e.bound(w); err != nil {
		return err
	}
	failed = failed || w.kind == "error"
	if e.dialect == Messages && !failed {
		if known, err := e.message(w); err != nil || !known {
			return err
		}
	}
	from := len(e.out)
	e.out = append(e.out, data...)
	e.ready = append(e.ready, span{from, len(e.out), failed})
	return nil
}

// bound counts what an event adds to the answer, and refuses too much.
func (e *events) bound(w walk) error {
	e.refusal, e.names = e.refusal+w.refusal, e.names+w.names
	switch {
	case e.refusal > maxRefusal:
		return outOfBounds("its refusal has more than %d bytes", maxRefusal)
	case e.names > maxNames:
		return outOfBounds("the names of what it calls have more than %d bytes", maxNames)
	}
	if e.dialect == Responses && w.kind == "response.output_item.added" {
		if e.items++; e.items > maxItems {
			return outOfBounds("it begins more than %d items", maxItems)
		}
	}
	return nil
}

// message reports whether an event of messages must be read, and counts pieces of blocks and signatures.
func (e *events) message(w walk) (known bool, err error) {
	_, isOpen := e.open[w.index]
	switch w.kind {
	case "message_start":
		known, e.started = !e.started, true
		return known, nil
	case "content_block_start":
		if e.items++; e.items > maxItems {
			return false, outOfBounds("it begins more than %d blocks", maxItems)
		}
		e.open[w.index] = 0
		return true, nil
	case "content_block_delta":
		return e.piece(w)
	case "content_block_stop":
		delete(e.open, w.index)
		return isOpen, nil
	case "message_delta":
		e.deltas++
		return e.deltas <= maxSignatures, nil
	case "message_stop":
		return true, nil
	}
	return false, nil
}

// piece reports whether a piece of a block must be read, and counts signatures.
func (e *events) piece(w walk) (known bool, err error) {
	switch w.inner {
	case "text_delta", "thinking_delta", "input_json_delta":
		return true, nil
	case "signature_delta":
		pieces := e.open[w.index] + 1
		if pieces > maxSignatures {
			return false, outOfBounds("it signs a block in more than %d pieces", maxSignatures)
		}
		e.open[w.index] = pieces
		return true, nil
	}
	return false, nil
}
