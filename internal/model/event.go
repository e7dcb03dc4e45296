package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Limits of the events of an answer, whose sender is not trusted. They are checked before an event is decoded, so that
// decoders need no checks. Real providers stay far below these limits.
const (
	// maxEvent is the largest size of an event, in bytes. The last event of responses repeats the whole answer.
	maxEvent = 4 << 20
	// maxLevels is how deep an event may be nested. In some dialects it contains the arguments of calls.
	maxLevels = maxDepth + 28
	// maxValues is how many values an event may have, and maxElements how many an array may have.
	maxValues, maxElements = 20_000, 1024
	// maxNumber is how many characters a number may have.
	maxNumber = 64
	// maxRefusal is how long a refusal may be, in bytes.
	maxRefusal = 16 << 10
	// maxNames limits the names of all called functions together, in bytes.
	maxNames = 64 << 10
	// maxSignatures is the largest number of pieces of one block's signature.
	maxSignatures = 64
	// maxItems is how many blocks or items an answer may begin.
	maxItems = 1024
)

// A server may send quietBytes and quietEvents without progress. Progress is growth of the answer; each byte of it
// allows some more.
const (
	quietBytes, bytesEach   = 8 << 20, 128
	quietEvents, eventsEach = 16 << 10, 1
)

// allowance is what a server may use without progress.
type allowance struct{ left, most, each float64 }

func allow(most, each float64) allowance { return allowance{most, most, each} }

// spend takes n from the allowance, and reports whether it had so much.
func (a *allowance) spend(n float64) bool {
	a.left -= n
	return a.left >= 0
}

// earn adds for progress.
func (a *allowance) earn(progress int) { a.left = min(a.left+float64(progress)*a.each, a.most) }

// boundsError says what is wrong with an event. It contains no text of the server.
type boundsError struct{ words string }

func (e *boundsError) Error() string { return e.words }

func outOfBounds(format string, args ...any) error { return &boundsError{fmt.Sprintf(format, args...)} }

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

// message reports whether an event of messages must be read, and counts pieces of blocks and signatures.
func (e *events) message(w walk) (known bool, err error) {
	pieces, isOpen := e.open[w.index]
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
		switch w.inner {
		case "text_delta", "thinking_delta", "input_json_delta":
			return true, nil
		case "signature_delta":
			if pieces++; pieces > maxSignatures {
				return false, outOfBounds("it signs a block in more than %d pieces", maxSignatures)
			}
			e.open[w.index] = pieces
			return true, nil
		}
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

// walk passes once over the JSON of an event, which is known to be valid.
type walk struct {
	data    []byte
	dialect Dialect

	at     int
	values int
	stack  []level
	// kind is the type of the event, index its index, and inner the type of the delta or block in it.
	kind  string
	index int
	inner string
	// refusal and names are the sizes of the event's refusal and of names of functions, in bytes.
	refusal, names int
}

// level is an object or array that is being read.
type level struct {
	isArray bool
	// key is the key of the current value, in lower case; inside an array, the key of the array.
	key  string
	keys []string
	n    int
	// free reports that this is part of a call's arguments, whose keys and numbers the model chooses.
	free bool
}

// unused are the keys whose values nobody reads. Servers may send large ones.
var unused = []string{"logprobs", "top_logprobs", "logprobsresult", "tools", "instructions"}

func (w *walk) walk() error {
	for w.at < len(w.data) {
		var top *level
		if n := len(w.stack); n > 0 {
			top = &w.stack[n-1]
		}
		switch c := w.data[w.at]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
			w.at++
		case '{', '[':
			if err := w.value(top, c); err != nil {
				return err
			}
			if len(w.stack) == maxLevels {
				return outOfBounds("it sends an event of more than %d levels", maxLevels)
			}
			next := level{isArray: c == '['}
			if top != nil {
				next.free = top.free || w.dialect == Gemini && top.key == "args" || w.dialect == Messages && top.key == "input"
				if next.isArray {
					next.key = top.key
				}
			}
			w.stack = append(w.stack, next)
			w.at++
		case '}', ']':
			w.stack = w.stack[:len(w.stack)-1]
			w.at++
		case '"':
			text := w.string()
			if top != nil && !top.isArray && w.isKey() {
				if err := w.begin(top, text); err != nil {
					return err
				}
				continue
			}
			if err := w.value(top, c); err != nil {
				return err
			}
			w.text(top, text)
		case 't', 'f', 'n':
			if err := w.value(top, c); err != nil {
				return err
			}
			w.at += 4
			if c == 'f' {
				w.at++
			}
		default:
			if err := w.value(top, c); err != nil {
				return err
			}
			if err := w.number(top); err != nil {
				return err
			}
		}
	}
	return nil
}

// string reads a string in its written form, without quotes.
func (w *walk) string() []byte {
	w.at++
	from := w.at
	for w.data[w.at] != '"' {
		if w.data[w.at] == '\\' {
			w.at++
		}
		w.at++
	}
	w.at++
	return w.data[from : w.at-1]
}

// isKey reports whether a string that was just read is followed by a colon.
func (w *walk) isKey() bool {
	for _, c := range w.data[w.at:] {
		switch c {
		case ' ', '\t', '\n', '\r':
			continue
		}
		return c == ':'
	}
	return false
}

// begin handles a key of an object.
func (w *walk) begin(top *level, written []byte) error {
	key := string(written)
	if bytes.IndexByte(written, '\\') >= 0 { // "\u0069ndex" is the same key
		if json.Unmarshal(append(append([]byte{'"'}, written...), '"'), &key) != nil {
			return outOfBounds("it sends an event with a key that cannot be read")
		}
	}
	top.key = strings.ToLower(key) // the decoder ignores case
	if top.free {
		return nil
	}
	if slices.Contains(top.keys, top.key) {
		return outOfBounds("it sends an event that has the same key twice")
	}
	if len(top.keys) == 128 {
		return outOfBounds("it sends an event with an object of more than 128 keys")
	}
	top.keys = append(top.keys, top.key)
	if slices.Contains(unused, top.key) {
		for strings.IndexByte(" \t\r\n:", w.data[w.at]) >= 0 {
			w.at++
		}
		w.skip()
	}
	return nil
}

// skip moves past a value.
func (w *walk) skip() {
	for depth := 0; ; {
		switch c := w.data[w.at]; c {
		case '"':
			w.string()
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // after a literal or a number
				return
			}
			if depth--; depth == 0 {
				w.at++
				return
			}
		case ',':
			if depth == 0 {
				return
			}
		}
		w.at++
	}
}

// value counts a value that begins with c.
func (w *walk) value(top *level, c byte) error {
	if w.values++; w.values > maxValues {
		return outOfBounds("it sends an event of more than %d values", maxValues)
	}
	if top == nil || top.free {
		return nil
	}
	if !top.isArray {
		if strings.HasSuffix(top.key, "index") && (c == '"' || c == '{' || c == '[' || c == 't' || c == 'f') {
			return outOfBounds("it sends an event whose index is not a number")
		}
		return nil
	}
	most := maxElements
	switch top.key {
	case "choices", "candidates":
		most = maxChoices
	}
	if top.n++; top.n > most {
		return outOfBounds("it sends an event with an array of more than %d elements", most)
	}
	return nil
}

// maxChoices is how many choices or candidates an event may have. Only one is asked for.
const maxChoices = 8

// text handles a string value.
func (w *walk) text(top *level, written []byte) {
	if top == nil || top.isArray || top.free {
		return
	}
	switch top.key {
	case "type":
		switch len(w.stack) {
		case 1:
			w.kind = string(written)
		case 2:
			if outer := w.stack[0].key; outer == "delta" || outer == "content_block" {
				w.inner = string(written)
			}
		}
	case "refusal":
		w.refusal += len(written)
	case "delta":
		if strings.HasPrefix(w.kind, "response.refusal") {
			w.refusal += len(written)
		}
	case "name":
		if w.dialect == Chat {
			w.names += len(written)
		}
	}
}

// number handles a number.
func (w *walk) number(top *level) error {
	from := w.at
	for w.at < len(w.data) && strings.IndexByte("+-.0123456789eE", w.data[w.at]) >= 0 {
		w.at++
	}
	written := string(w.data[from:min(w.at, from+maxNumber+1)])
	value, err := strconv.ParseFloat(written, 64)
	if len(written) > maxNumber || err != nil || value > 1e19 || value < -1e19 {
		return outOfBounds("it sends an event with a number that is too large")
	}
	if top == nil || top.isArray || top.free || !strings.HasSuffix(top.key, "index") {
		return nil
	}
	most := maxItems
	if n := len(w.stack); n > 1 && w.stack[n-2].isArray && (w.stack[n-2].key == "choices" || w.stack[n-2].key == "candidates") {
		most = maxChoices
	}
	index, err := strconv.Atoi(written)
	if err != nil || index < 0 || index >= most {
		return outOfBounds("it sends an event whose index is not from 0 to %d", most-1)
	}
	if len(w.stack) == 1 {
		w.index = index
	}
	return nil
}

// passable returns nil for the error that a value has an unexpected type, because the decoder skips such values.
func passable(err error) error {
	if _, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		return nil
	}
	return err
}
