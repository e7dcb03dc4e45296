package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

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
		top := w.top()
		var err error
		switch c := w.data[w.at]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
			w.at++
		case '{', '[':
			err = w.open(top, c)
		case '}', ']':
			w.stack = w.stack[:len(w.stack)-1]
			w.at++
		case '"':
			err = w.quoted(top)
		case 't', 'f', 'n':
			err = w.value(top, c)
			w.at += 4
			if c == 'f' {
				w.at++
			}
		default:
			if err = w.value(top, c); err == nil {
				err = w.number(top)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// top returns the innermost object or array, or nil.
func (w *walk) top() *level {
	if n := len(w.stack); n > 0 {
		return &w.stack[n-1]
	}
	return nil
}

// open begins an object or an array.
func (w *walk) open(top *level, c byte) error {
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
	return nil
}

// quoted reads a key or a text.
func (w *walk) quoted(top *level) error {
	text := w.string()
	if top != nil && !top.isArray && w.isKey() {
		return w.begin(top, text)
	}
	if err := w.value(top, '"'); err != nil {
		return err
	}
	w.text(top, text)
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
